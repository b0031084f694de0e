"""Batches by length: what is a sample's length, budgets, sorted windows, buckets."""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np
import pytest
from support.readers import BrokenError, failing, taken_until

from gpufeed.errors import FieldError
from gpufeed.reader import batch, filter, map_readers  # noqa: A004 - the public name
from gpufeed.reader.tokens import measured, sorted_by_length


def of_lengths(*lengths):
    return lambda: [[number] * length for number, length in enumerate(lengths)]


def lengths_of(batches):
    return [[len(sample) for sample in samples] for samples in batches]


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        ([7, 8, 9], 3),
        ("text", 4),
        (b"bytes", 5),
        (np.zeros((2, 3)), 2),
        (range(6), 6),
        (([7, 8], 1), 2),
        ((1, [7, 8]), 2),
        ([1, [7, 8], [9]], 2),
        (("a title", np.zeros(3)), 3),
        ((np.float32(1), np.zeros(()), np.zeros(4)), 4),
        ({"__key__": "00017", "label": 3, "ids": [7, 8]}, 2),
        (([],), 0),
        ([[]], 0),
        ([], 0),
        (([[1, 2], [3]], 0), 2),
    ],
)
def test_the_length_is_that_of_the_sample_or_of_its_first_sequence(sample, length):
    assert [number for number, _ in measured([sample, sample], None, None)] == [length, length]


@pytest.mark.parametrize(
    "sample", [3, None, np.zeros(()), (1, 2), (), ("text", 3), {"key": "text"}, {}]
)
def test_a_sample_without_a_sequence_needs_a_length(sample):
    with pytest.raises(FieldError, match=r"sample 0: batch.length must be given for samples that"):
        list(batch(lambda: [sample], max_tokens=5))
    assert list(batch(lambda: [sample], max_tokens=5, length=lambda _: 5)) == [[sample]]


def test_the_first_sample_decides_which_field_is_measured():
    samples = [(3, [7, 8]), ([1, 1, 1, 1], [7])]
    assert [length for length, _ in measured(samples, None, None)] == [2, 1]


@pytest.mark.parametrize("other", [(3,), (3, 4), None, {"ids": [1]}])
def test_a_sample_that_is_built_otherwise_is_named(other):
    taken, error = taken_until(batch(lambda: [(3, [7]), other], max_tokens=5))
    assert taken == [[(3, [7])]]
    assert isinstance(error, FieldError)
    assert str(error).startswith("sample 1: batch.length must be given")
    assert isinstance(error.__cause__, (TypeError, LookupError))


def test_any_integer_is_a_length():
    assert list(batch(of_lengths(2, 2), max_tokens=4, length=lambda s: np.int32(len(s)))) == [
        [[0, 0], [1, 1]]
    ]


@pytest.mark.parametrize("length", [-1, 2.0, None, "2", np.int64(-3)])
def test_a_length_that_is_none_is_named(length):
    taken, error = taken_until(
        batch(of_lengths(2, 3), max_tokens=5, length=lambda s: 2 if s == [0, 0] else length)
    )
    assert taken == [[[0, 0]]]
    assert isinstance(error, FieldError)
    assert f"sample 1: batch.length must return a whole number >= 0, got {length!r}" in str(error)


def test_an_error_of_the_length_function_arrives_as_it_is():
    def length(sample):
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        list(batch(of_lengths(1), max_tokens=5, length=length))


def test_lengths_are_asked_once_a_sample():
    asked = []

    def length(sample):
        asked.append(sample[0])
        return len(sample)

    for options in ({}, {"sort_window": 2}, {"pack": True}, {"buckets": [2]}):
        asked.clear()
        list(batch(of_lengths(1, 4, 2, 3), max_tokens=5, length=length, **options))
        assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("lengths", "cut"),
    [
        ([], []),
        ([2, 2, 1], [[2, 2, 1]]),
        ([2, 2, 2], [[2, 2], [2]]),
        ([5, 5], [[5], [5]]),
        ([1, 5, 1], [[1], [5], [1]]),
        ([0, 0, 5, 0], [[0, 0, 5], [0]]),
    ],
)
def test_a_batch_holds_what_fits_the_budget(lengths, cut):
    assert lengths_of(batch(of_lengths(*lengths), max_tokens=5)) == cut


def test_a_padded_budget_counts_samples_times_the_longest():
    samples = of_lengths(1, 1, 3, 3, 1, 1)
    assert lengths_of(batch(samples, max_tokens=6)) == [[1, 1, 3], [3, 1, 1]]
    assert lengths_of(batch(samples, max_tokens=6, padded=True)) == [[1, 1], [3, 3], [1, 1]]


def test_both_limits_hold():
    samples = of_lengths(1, 1, 1, 3, 3, 1)
    assert lengths_of(batch(samples, 2, max_tokens=4)) == [[1, 1], [1, 3], [3, 1]]


def test_a_sample_longer_than_the_budget_is_named_after_those_before_it():
    taken, error = taken_until(batch(of_lengths(1, 2, 9, 1), max_tokens=5))
    assert lengths_of(taken) == [[1, 2]]
    assert isinstance(error, FieldError)
    assert "sample 2: batch.max_tokens must be at least the length of every sample" in str(error)
    assert "got 5 for a length of 9" in str(error)


def test_the_remedies_for_samples_that_are_too_long_work():
    samples = of_lengths(1, 9, 2)
    short = filter(lambda sample: len(sample) <= 5, samples)
    assert lengths_of(batch(short, max_tokens=5)) == [[1, 2]]
    cut = map_readers(lambda sample: sample[:5], samples)
    assert lengths_of(batch(cut, max_tokens=5)) == [[1], [5], [2]]


def test_drop_last_leaves_out_what_no_limit_ended():
    assert lengths_of(batch(of_lengths(5, 3), None, True, max_tokens=5)) == [[5]]
    assert lengths_of(batch(of_lengths(3, 2), None, True, max_tokens=5)) == [[3, 2]]
    assert lengths_of(batch(of_lengths(1, 1, 1), 2, True, max_tokens=5)) == [[1, 1]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"sort_window": 4}, {"buckets": [1]}, {"pack": True}, {"pack": True, "sort_window": 4}],
)
def test_what_was_read_before_a_failure_comes_before_it(options, drop_last):
    reader = batch(failing(7), 3, drop_last, max_tokens=3, length=lambda _: 1, **options)
    taken, error = taken_until(reader)
    assert isinstance(error, BrokenError)
    assert list(chain.from_iterable(taken)) == list(range(6 if drop_last else 7))


def test_windows_alternate_so_that_like_meets_like():
    pairs = zip([3, 1, 2, 6, 4, 5, 9, 8], range(8), strict=True)
    assert list(sorted_by_length(pairs, 3)) == [
        *((1, 1), (2, 2), (3, 0)),
        *((6, 3), (5, 5), (4, 4)),
        *((8, 7), (9, 6)),
    ]


def test_equal_lengths_stay_in_order():
    pairs = zip(repeat(1), range(6))
    assert [sample for _, sample in sorted_by_length(pairs, 3)] == list(range(6))


def test_a_window_does_not_end_a_batch():
    samples = of_lengths(2, 1, 3, 1, 2, 3)
    assert lengths_of(batch(samples, 2, sort_window=3)) == [[1, 2], [3, 3], [2, 1]]


def test_no_more_than_one_window_is_read_ahead():
    num_read = 0

    def source():
        nonlocal num_read
        for number in range(100):
            num_read += 1
            yield [number]

    next(batches := batch(source, 2, sort_window=10)())
    assert num_read == 10
    batches.close()


def test_a_sorted_reader_of_fixed_size_skips_whole_windows_unread():
    from gpufeed.reader.base import Reader

    class Seekable(Reader):
        def open(self, epoch, skip):
            self.skipped = skip
            return iter([[0] * (number % 7) for number in range(100)][skip:])

    source = Seekable("seekable")
    reader = batch(source, 4, sort_window=10)
    everything = list(reader.open(0, 0))
    assert list(reader.open(0, 9)) == everything[9:]
    assert source.skipped == 30


def test_every_bucket_fills_batches_of_its_own():
    samples = of_lengths(1, 5, 2, 9, 2, 6, 1)
    reader = batch(samples, 2, buckets=[2, 6])
    assert lengths_of(reader) == [[1, 2], [5, 6], [2, 1], [9]]


def test_buckets_are_flushed_shortest_first():
    assert lengths_of(batch(of_lengths(9, 5, 1), 2, buckets=[2, 6])) == [[1], [5], [9]]
    assert lengths_of(batch(of_lengths(9, 5, 1), 2, True, buckets=[2, 6])) == []


def test_buckets_share_one_budget_each():
    samples = of_lengths(1, 4, 1, 4, 1, 1)
    reader = batch(samples, max_tokens=4, buckets=[2])
    assert lengths_of(reader) == [[4], [4], [1, 1, 1, 1]]
