"""Mini-batches: `paddle.batch`, with its quirks repaired."""

from __future__ import annotations

import pytest
from support.readers import BrokenError, counting, failing, taken_until

from gpufeed.reader import batch


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
