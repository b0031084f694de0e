"""Packing: best fit, bounded waiting, and the order of rooms that finds the bin."""

from __future__ import annotations

import pytest

from gpufeed.feeder import DataFeeder
from gpufeed.reader import batch, map_readers
from gpufeed.reader.packing import NUM_OPEN, SortedNumbers
from gpufeed.variables import Program, data, program_guard


def of_lengths(*lengths):
    return lambda: [[number] * length for number, length in enumerate(lengths)]


def lengths_of(batches):
    return [[len(sample) for sample in samples] for samples in batches]


def packed(*lengths, max_tokens=10, **options):
    return lengths_of(batch(of_lengths(*lengths), max_tokens=max_tokens, pack=True, **options))


def test_a_sample_goes_where_it_leaves_the_least_room():
    assert packed(6, 7, 3, 4) == [[7, 3], [6, 4]]


def test_a_new_bin_is_begun_only_if_it_fits_nowhere():
    assert packed(6, 7, 5, 1) == [[6], [7, 1], [5]]


def test_of_bins_with_the_same_room_the_oldest_is_filled():
    bins = batch(of_lengths(6, 6, 4), max_tokens=10, pack=True)
    assert list(bins) == [[[0] * 6, [2] * 4], [[1] * 6]]


def test_full_bins_leave_at_once_and_the_others_in_the_order_they_were_begun():
    assert packed(7, 8, 10, 6) == [[10], [7], [8], [6]]


def test_samples_of_no_length_fit_anywhere():
    assert packed(0, 9, 0, 10, 0) == [[10], [0, 9, 0, 0]]


def test_no_sample_makes_no_bin():
    assert packed() == []
    assert packed(sort_window=3) == []


def test_a_bin_holds_no_more_samples_than_batch_size():
    assert packed(1, 1, 1, 1, 1, batch_size=2) == [[1, 1], [1, 1], [1]]


def test_the_oldest_bin_leaves_when_too_many_are_open():
    samples = [6] * (NUM_OPEN + 1) + [4, 7]
    bins = batch(of_lengths(*samples), max_tokens=10, pack=True)()
    assert next(bins) == [[0] * 6]
    assert next(bins) == [[1] * 6, [NUM_OPEN + 1] * 4]
    assert [next(bins), next(bins)] == [[[2] * 6], [[3] * 6]]


def test_a_window_is_packed_longest_first():
    assert packed(2, 4, 8, 6) == [[2, 4], [8], [6]]
    assert packed(2, 4, 8, 6, sort_window=4) == [[6, 4], [8, 2]]


def test_the_emptiest_bin_of_a_window_waits_for_the_next():
    assert packed(9, 3, 1, 8, 6, 2, sort_window=2) == [[9], [8, 1], [3, 6], [2]]
    assert packed(9, 3, 8, 7, sort_window=2) == [[9], [3, 7], [8]]


def test_drop_last_leaves_out_the_emptiest_bin():
    assert packed(7, 8, 9, 4, drop_last=True) == [[7], [8], [9]]
    assert packed(2, drop_last=True) == []
    assert packed(9, 8, 7, 6, sort_window=4, drop_last=True) == [[9], [8], [7]]


def test_packing_is_the_lod_of_the_feed():
    with program_guard(Program()):
        feeder = DataFeeder([data("ids", [1], "int64", lod_level=1)], "cpu")
    bins = batch(lambda: [([1, 2, 3],), ([4],), ([5, 6],)], max_tokens=4, pack=True)
    first = feeder.feed(next(bins()))["ids"]
    assert first.cu_seqlens().tolist() == [0, 3, 4]
    assert first.max_seqlen() == 3
    assert first.segment_ids().tolist() == [0, 0, 0, 1]
    assert first.positions().tolist() == [0, 1, 2, 0]


def test_bins_in_batches_are_one_lod_level_more():
    with program_guard(Program()):
        feeder = DataFeeder([data("ids", [1], "int64", lod_level=2)], "cpu")
    bins = batch(lambda: [[1, 2, 3], [4], [5, 6]], max_tokens=4, pack=True)
    rows = batch(map_readers(lambda bin_: (bin_,), bins), 2)
    assert feeder.feed(next(rows()))["ids"].lod() == [[0, 2, 3], [0, 3, 4, 6]]


def test_sorted_numbers_are_taken_from_a_number_on():
    numbers = SortedNumbers()
    assert numbers.largest() is None
    assert numbers.pop_from(0) is None
    for number in (5, 9, 5):
        numbers.add(number)
    assert [numbers.pop_from(5), numbers.pop_from(5), numbers.pop_from(5)] == [5, 5, 9]
    assert numbers.largest() is None


@pytest.mark.parametrize("order", [range(2000), range(2000, 0, -1)])
def test_no_block_of_sorted_numbers_grows_without_bound(order):
    numbers = SortedNumbers()
    for number in order:
        numbers.add(number)
    assert max(map(len, numbers._blocks)) <= SortedNumbers.LONGEST
    assert [numbers.pop_from(0) for _ in order] == sorted(order)
    assert numbers._blocks == numbers._lasts == []
