"""Laws of batches by length: nothing is lost, limits hold, skipping is draining.

And each way of making them against the plainest program that does the same.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpufeed.columnar import ColumnarBatch
from gpufeed.reader import batch
from gpufeed.reader.packing import NUM_OPEN, SortedNumbers
from gpufeed.tensor import LoDTensor

BUDGET = 12
lengths = st.lists(st.integers(0, BUDGET), max_size=40)
sizes = st.none() | st.integers(1, 5)
options = st.one_of(
    st.fixed_dictionaries(
        {"max_tokens": st.just(BUDGET)},
        optional={
            "batch_size": sizes,
            "sort_window": st.integers(1, 9),
            "padded": st.booleans(),
            "buckets": st.sampled_from([[4], [2, 5, 9]]),
        },
    ),
    st.fixed_dictionaries(
        {"max_tokens": st.just(BUDGET), "pack": st.just(True)},
        optional={"batch_size": sizes, "sort_window": st.integers(1, 9)},
    ),
    st.fixed_dictionaries(
        {"batch_size": st.integers(1, 5), "sort_window": st.integers(1, 9)},
        optional={"buckets": st.sampled_from([[4], [2, 5, 9]])},
    ),
)


def numbered(lengths: list[int]) -> Any:
    """A reader of sequences that hold the sample's number, as often as it is long."""
    return lambda: [(number, [number] * length) for number, length in enumerate(lengths)]


def total(samples: list[Any]) -> int:
    return sum(len(sequence) for _, sequence in samples)


@given(lengths, options)
def test_every_sample_arrives_once_and_limits_hold(lengths, options):
    batches = list(batch(numbered(lengths), **options))
    arrived = sorted(number for samples in batches for number, _ in samples)
    assert arrived == list(range(len(lengths)))
    for samples in batches:
        assert samples
        assert len(samples) <= (options.get("batch_size") or len(lengths))
        if "max_tokens" in options:
            longest = max(len(sequence) for _, sequence in samples)
            padded = options.get("padded", False)
            assert (len(samples) * longest if padded else total(samples)) <= BUDGET


@given(lengths, options, st.booleans(), st.data())
def test_a_state_taken_anywhere_resumes_exactly(lengths, options, drop_last, data):
    def pipeline() -> Any:
        return batch(numbered(lengths), drop_last=drop_last, **options)

    everything = list(pipeline())
    assert list(pipeline()) == everything
    num = data.draw(st.integers(0, len(everything)))
    reader = pipeline()
    assert list(itertools.islice(reader(), num)) == everything[:num]
    again = pipeline()
    again.load_state_dict(json.loads(json.dumps(reader.state_dict())))
    assert list(again) == everything[num:]
    assert list(again) == everything


@given(lengths, options)
def test_drop_last_only_leaves_batches_out(lengths, options):
    everything = list(batch(numbered(lengths), **options))
    kept = list(batch(numbered(lengths), drop_last=True, **options))
    left_out = [samples for samples in everything if samples not in kept]
    assert [samples for samples in everything if samples in kept] == kept
    assert len(left_out) <= 1 + len(options.get("buckets", ()))


@given(lengths, st.integers(1, 9))
def test_a_budget_cuts_as_a_plain_loop_does(lengths, size):
    expected: list[list[int]] = []
    for length in lengths:
        if not expected or len(expected[-1]) == size or sum(expected[-1]) + length > BUDGET:
            expected.append([])
        expected[-1].append(length)
    # A batch that is full to the last token is done: samples of no length begin the next one.
    batches = batch(lambda: lengths, size, max_tokens=BUDGET, length=int)
    if 0 not in lengths:
        assert list(batches) == expected
    else:
        assert list(itertools.chain.from_iterable(batches)) == lengths


@given(st.lists(st.integers(1, BUDGET), max_size=NUM_OPEN))
def test_packing_is_best_fit(lengths):
    bins: list[list[int]] = []
    for length in lengths:
        fitting = [bin_ for bin_ in bins if sum(bin_) + length <= BUDGET]
        if fitting:
            fullest = max(map(sum, fitting))
            next(bin_ for bin_ in fitting if sum(bin_) == fullest).append(length)
        else:
            bins.append([length])
    packed = list(batch(lambda: lengths, max_tokens=BUDGET, length=int, pack=True))
    assert Counter(map(tuple, packed)) == Counter(map(tuple, bins))


@given(st.lists(st.integers(0, BUDGET), max_size=NUM_OPEN))
def test_one_bin_at_most_is_left_half_empty(lengths):
    packed = batch(lambda: lengths, max_tokens=BUDGET, length=int, pack=True)
    assert sum(2 * sum(bin_) <= BUDGET for bin_ in packed) <= 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60), st.integers(1, 6))
def test_sorted_numbers_are_a_sorted_list(steps, longest):
    numbers, expected = SortedNumbers(), []
    numbers.LONGEST = longest
    for is_added, number in steps:
        if is_added:
            numbers.add(number)
            expected = sorted([*expected, number])
        else:
            at = bisect_left(expected, number)
            found = expected.pop(at) if at < len(expected) else None
            assert numbers.pop_from(number) == found
        assert list(itertools.chain.from_iterable(numbers._blocks)) == expected
        assert numbers.largest() == (expected[-1] if expected else None)


def columnar(lengths: list[int], cuts: list[int]) -> Any:
    """The samples of `numbered`, in record batches that end at ``cuts``."""
    ids = np.repeat(np.arange(len(lengths)), lengths)
    offsets = [0, *np.cumsum(lengths, dtype=int).tolist()]
    whole = ColumnarBatch({"number": np.arange(len(lengths)), "ids": LoDTensor(ids, lod=[offsets])})
    return lambda: [whole[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(whole)])]


def listed(rows: ColumnarBatch) -> list[Any]:
    return [(int(row["number"]), row["ids"].tolist()) for row in rows]


@given(lengths, st.one_of(options, sizes.filter(bool).map(lambda n: {"batch_size": n})), st.data())
def test_record_batches_are_batched_as_their_rows_are(lengths, options, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lengths)), max_size=4)))
    drop_last = data.draw(st.booleans())
    expected = list(batch(numbered(lengths), drop_last=drop_last, **options))
    reader = batch(columnar(lengths, cuts), drop_last=drop_last, **options)
    assert [listed(rows) for rows in reader] == expected
    skip = data.draw(st.integers(0, len(expected) + 1))
    assert [listed(rows) for rows in reader.open(0, skip)] == expected[skip:]
