"""Mini-batches: `paddle.batch`, with its quirks repaired, and arguments that go together or not."""

from __future__ import annotations

import pickle
import weakref

import pytest
from support.readers import BrokenError, Watched, counting, failing, taken_until

from gpufeed.errors import FieldError, ReaderError
from gpufeed.reader import batch, buffered, shard
from gpufeed.reader.base import Reader


@pytest.mark.parametrize(
    ("num", "drop_last", "expected"),
    [
        (0, False, []),
        (3, False, [[0, 1, 2]]),
        (4, False, [[0, 1, 2], [3]]),
        (4, True, [[0, 1, 2]]),
        (6, True, [[0, 1, 2], [3, 4, 5]]),
        (2, True, []),
    ],
)
def test_batches(num, drop_last, expected):
    assert list(batch(counting(num), 3, drop_last)) == expected


@pytest.mark.parametrize("drop_last", [None, 0, "", False])
def test_any_false_value_keeps_the_last_batch(drop_last):
    assert list(batch(counting(4), 3, drop_last)) == [[0, 1, 2], [3]]


@pytest.mark.parametrize("drop_last", [1, "no", True])
def test_any_true_value_drops_the_last_batch(drop_last):
    assert list(batch(counting(4), 3, drop_last)) == [[0, 1, 2]]


def test_every_batch_is_a_new_list_of_the_samples_themselves():
    samples = [object() for _ in range(4)]
    first, second = batch(lambda: samples, 2)
    assert first is not second
    assert all(a is b for a, b in zip(first + second, samples, strict=True))


def test_a_batch_may_be_changed_by_its_receiver():
    received = []
    for samples in batch(counting(5), 2):
        received.append(samples.copy())
        samples.clear()
    assert received == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("size", [0, -1, 2.7, "2", "x"])
def test_a_wrong_size_is_refused_at_the_call(size):
    with pytest.raises(ValueError, match=r"batch.batch_size must be a whole number >= 1, got"):
        batch(counting(3), size)


def test_no_size_is_refused_at_the_call():
    with pytest.raises(TypeError, match=r"batch.batch_size must be given, got None"):
        batch(counting(3))


def test_an_integral_float_is_a_size():
    reader = batch(counting(3), 2.0)
    assert reader.batch_size == 2
    assert list(reader) == [[0, 1], [2]]


def test_the_samples_before_a_failure_come_as_a_short_batch():
    taken, error = taken_until(batch(failing(5), 2))
    assert taken == [[0, 1], [2, 3], [4]]
    assert isinstance(error, BrokenError)


def test_a_short_batch_before_a_failure_is_dropped_like_any_other():
    assert taken_until(batch(failing(5), 2, drop_last=True))[0] == [[0, 1], [2, 3]]


def test_a_source_that_ends_on_a_full_batch_is_asked_once_more_at_most():
    ends = []

    def source():
        yield from range(4)
        ends.append(True)

    assert list(batch(source, 2)) == [[0, 1], [2, 3]]
    assert ends == [True]


def test_a_batch_larger_than_any_list_is_all_samples():
    assert list(batch(counting(3), 10**30)) == [[0, 1, 2]]


class Seekable(Reader[int]):
    """Samples that know how many of them were skipped."""

    def __init__(self, num):
        super().__init__("seekable", num=num)
        self.num = num
        self.skipped = []

    def open(self, epoch, skip):
        self.skipped.append(skip)
        return iter(range(skip, self.num))


def test_skipped_batches_are_skipped_as_samples():
    source = Seekable(20)
    assert list(batch(source, 3).open(0, 5)) == [[15, 16, 17], [18, 19]]
    assert source.skipped == [15]


def test_nothing_is_read_but_what_a_batch_needs():
    source = Watched(100)
    batches = batch(source, 5)()
    assert source.num_read == 0
    next(batches)
    assert source.num_read == 5
    batches.close()
    assert source.num_open == 0


def grow(epoch, number):
    return 1 + epoch + number


def test_sizes_may_grow_with_the_batch_and_the_epoch():
    reader = batch(counting(6), grow)
    assert list(reader) == [[0], [1, 2], [3, 4, 5]]
    assert list(reader) == [[0, 1], [2, 3, 4], [5]]


def test_a_size_may_bound_batches_of_tokens():
    reader = batch(counting(6), grow, max_tokens=2, length=lambda _: 1)
    assert list(reader) == [[0], [1, 2], [3, 4], [5]]


def test_growing_batches_are_skipped_as_samples():
    source = Seekable(20)
    assert next(batch(source, grow).open(1, 3)) == [9, 10, 11, 12, 13]
    assert source.skipped == [9]


@pytest.mark.parametrize("size", [0, 1.5, None])
def test_a_size_that_is_none_is_refused_after_the_batches_before_it(size):
    reader = batch(counting(9), lambda epoch, number: 2 if number < 2 else size)
    taken, error = taken_until(reader)
    assert taken == [[0, 1], [2, 3]]
    assert isinstance(error, FieldError)
    assert f"batch.batch_size(0, 2) must be a whole number >= 1, got {size}" in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "batch.max_tokens must be a whole number >= 1, got 0"),
        ({"max_tokens": "9"}, "batch.max_tokens must be a whole number >= 1, got '9'"),
        ({"sort_window": 0}, "batch.sort_window must be a whole number >= 1, got 0"),
        ({"sort_window": 2.5}, "batch.sort_window must be a whole number >= 1, got 2.5"),
        ({"buckets": []}, "batch.buckets must be ascending lengths, at least one, got []"),
        ({"buckets": 3}, "batch.buckets must be ascending lengths, at least one, got 3"),
        ({"buckets": [2, 2]}, "batch.buckets must be ascending lengths, at least one, got [2, 2]"),
        ({"buckets": [1, "x"]}, "each of batch.buckets must be a whole number >= 0, got 'x'"),
        ({"pack": True}, "batch.max_tokens must be given with pack=True, got None"),
        ({"padded": True}, "batch.max_tokens must be given with padded=True, got None"),
        ({"pack": True, "padded": True, "max_tokens": 9}, "batch.padded must be False with pack"),
        ({"pack": True, "buckets": [3], "max_tokens": 9}, "batch.buckets must be None with pack"),
        ({"batch_size": grow, "pack": True, "max_tokens": 9}, "batch.batch_size must be a number"),
        ({"batch_size": grow, "buckets": [3]}, "batch.batch_size must be a number with pack or"),
    ],
)
def test_arguments_that_break_a_rule_are_refused_at_the_call(options, message):
    with pytest.raises(FieldError) as caught:
        batch(counting(3), **{"batch_size": 2, **options})
    assert str(caught.value).startswith(message)


def test_a_length_must_be_callable():
    with pytest.raises(TypeError, match=r"batch.length must be callable, got 3"):
        batch(counting(3), 2, length=3)


def test_a_token_budget_is_enough_without_a_size():
    reader = batch(counting(3), max_tokens=2, length=lambda _: 1)
    assert (reader.batch_size, reader.max_tokens) == (None, 2)
    with pytest.raises(TypeError, match=r"batch.batch_size must be given, got None"):
        batch(counting(3), sort_window=5)


def tokens(sample):
    return 1


def test_repr_shows_what_was_given():
    reader = batch(counting, grow, max_tokens=9, sort_window=20, length=tokens)
    assert repr(reader) == (
        "batch(grow, tokens, counting, drop_last=False, max_tokens=9, sort_window=20)"
    )
    reader = batch(counting, 4, True, max_tokens=9, buckets=[3, 7], padded=True)
    assert repr(reader) == (
        "batch(counting, batch_size=4, drop_last=True, max_tokens=9, buckets=(3, 7), padded=True)"
    )


OPTIONS = {"max_tokens": 9, "sort_window": 4, "length": tokens}


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 3},
        {"batch_size": grow},
        {"drop_last": True},
        {"max_tokens": 8},
        {"sort_window": 5},
        {"sort_window": None},
        {"pack": True},
        {"padded": True},
        {"buckets": [4]},
    ],
)
def test_a_state_of_other_arguments_is_refused(change):
    state = batch(counting(9), 2, **OPTIONS).state_dict()
    with pytest.raises(ReaderError, match="fingerprint"):
        batch(counting(9), **{"batch_size": 2, **OPTIONS, **change}).load_state_dict(state)


def test_functions_are_not_compared():
    state = batch(counting(9), 2, **OPTIONS).state_dict()
    other = batch(counting(9), 2, **{**OPTIONS, "length": lambda _: 1})
    other.load_state_dict(state)
    assert other.state_dict() == state


WAYS = [
    {},
    {"length": tokens},
    {"sort_window": 4, "length": tokens},
    {"max_tokens": 3, "length": tokens},
    {"max_tokens": 3, "length": tokens, "pack": True},
    {"max_tokens": 3, "length": tokens, "pack": True, "sort_window": 4},
    {"buckets": [3], "length": tokens},
]


@pytest.mark.parametrize("options", WAYS)
def test_leaving_the_loop_closes_the_source(options):
    source = Watched(100)
    for _ in batch(buffered(source, 3), 2, **options):
        break
    assert source.num_open == 0


@pytest.mark.parametrize("options", WAYS)
def test_ranks_have_equally_many_batches_of_any_kind(options):
    whole = list(batch(counting(50), 3, **options))
    ranks = [
        list(shard(batch(counting(50), 3, **options), 4, index, equal=True)) for index in range(4)
    ]
    assert {len(batches) for batches in ranks} == {len(whole) // 4}
    assert [batches for step in zip(*ranks, strict=True) for batches in step] == (
        whole[: len(whole) // 4 * 4]
    )


@pytest.mark.parametrize("options", WAYS)
def test_a_batch_reader_can_be_pickled(options):
    reader = batch(Seekable(20), 3, **options)
    next(reader())
    again = pickle.loads(pickle.dumps(reader))
    assert again.state_dict() == reader.state_dict()
    assert list(again) == list(batch(Seekable(20), 3, **options))


class Sample:
    """Something that a weak reference can watch."""


@pytest.mark.parametrize("options", WAYS)
def test_a_batch_that_was_dropped_is_not_kept_while_the_next_is_read(options):
    alive: weakref.WeakSet[Sample] = weakref.WeakSet()
    most = 0

    def source():
        nonlocal most
        for _ in range(60):
            sample = Sample()
            alive.add(sample)
            most = max(most, len(alive))
            yield sample
            del sample

    assert list(map(len, batch(source, 3, **options))) == [3] * 20
    # What is being gathered, a window beside a batch or that alone, and one sample before it.
    assert most <= options.get("sort_window", 1) + 3
