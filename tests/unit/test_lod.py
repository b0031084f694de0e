from __future__ import annotations

import numpy as np
import pytest

from gpufeed.errors import LoDError
from gpufeed.lod import (
    LoD,
    absolute,
    concatenate,
    from_lengths,
    from_offsets,
    num_entries,
    segment_ids,
    slice_level,
    take,
    to_lengths,
)


def lists(lod: LoD) -> list[list[int]]:
    return [level.tolist() for level in lod]


def test_offsets_and_lengths_are_two_notations_of_one_lod():
    lod = from_lengths([[2, 1], [3, 2, 4]], rows=9)
    assert lists(lod) == [[0, 2, 3], [0, 3, 5, 9]]
    assert lists(to_lengths(lod)) == [[2, 1], [3, 2, 4]]
    assert lists(from_offsets([[0, 2, 3], [0, 3, 5, 9]], rows=9)) == lists(lod)


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [([], 6), ([[1, 2, 3]], 6), ([[0, 0]], 0), ([[0, 0, 6]], 6), ([[2], [0, 0]], 0), ([[]], 0)],
)
def test_lengths_that_describe_the_rows(lengths, rows):
    assert lists(to_lengths(from_lengths(lengths, rows))) == lengths


@pytest.mark.parametrize(
    ("lengths", "rows", "message"),
    [
        ([[1, 2, 3]], 5, "lengths level 0 must cover 5 rows, got 6"),
        ([[1, 2, 3]], 7, "lengths level 0 must cover 7 rows, got 6"),
        ([[]], 6, "level 0 must cover 6 rows, got 0"),
        ([[], [1], [3]], 3, "level 0 must cover 1 entries of level 1, got 0"),
        ([[0], [2], [3]], 3, "level 0 must cover 1 entries of level 1, got 0"),
        ([[2, 2], [1, 2, 3]], 6, "level 0 must cover 3 entries of level 1, got 4"),
        ([[1, -2, 3]], 2, "level 0 must hold lengths >= 0, got -2 at entry 1"),
    ],
)
def test_lengths_that_do_not(lengths, rows, message):
    with pytest.raises(LoDError, match=message):
        from_lengths(lengths, rows)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([[1, 3, 6]], r"lod level 0 must start with 0, got \[1, 3, 6\]"),
        ([[0, 3, 1, 6]], "level 0 must never fall, got 3 then 1 at entry 1"),
        ([[0]], "level 0 must cover 6 rows, got 0"),
        ([[6]], r"level 0 must start with 0, got \[6\]"),
        ([[0, 3, 6], [0, 1, 3, 6]], "level 0 must cover 3 entries of level 1, got 6"),
        ([[]], r"level 0 must start with 0, got \[\]"),
        ([range(1, 30)], r"must start with 0, got \[1, 2, 3, 4, 5, 6, \.\.\.\]"),
    ],
)
def test_offsets_that_do_not(offsets, message):
    with pytest.raises(LoDError, match=message):
        from_offsets(offsets, rows=6)


@pytest.mark.parametrize(
    "levels",
    [[0, 2, 3], [[0.0, 2.0]], ["012"], "012", 5, [[[0, 1]]], [[[0], [1, 2]]], [[True]], {0: [0]}],
)
def test_levels_are_lists_of_flat_lists_of_whole_numbers(levels):
    with pytest.raises(LoDError, match="must be a"):
        from_offsets(levels)


def test_offsets_may_be_arrays_and_are_copied():
    given = np.array([0, 2, 3], np.int32)
    lod = from_offsets([given])
    given[:] = 9
    assert lists(lod) == [[0, 2, 3]]
    assert lod[0].dtype == np.int64


def test_lengths_beyond_int64_are_refused():
    with pytest.raises(LoDError, match="must never fall"):
        from_lengths([[2**62, 2**62]])


def test_absolute_counts_rows():
    lod = from_offsets([[0, 2], [0, 1, 3], [0, 2, 4, 5]])
    assert [absolute(lod, level).tolist() for level in range(3)] == [
        [0, 5],
        [0, 2, 5],
        [0, 2, 4, 5],
    ]


@pytest.mark.parametrize(
    ("offsets", "begin", "end", "lengths", "rows"),
    [
        (
            [[0, 3, 4, 8], [0, 9, 10, 11, 13, 17, 19, 22, 24]],
            *(1, 3),
            [[1, 4], [2, 4, 2, 3, 2]],
            (11, 24),
        ),
        (
            [[0, 2, 4, 5], [0, 1, 6, 8, 10, 11], [0, 2, 5, 7, 10, 12, 15, 17, 20, 24, 26, 29]],
            *(1, 2),
            [[2], [2, 2], [2, 3, 4, 2]],
            (15, 26),
        ),
        ([[0, 3, 4, 8], [0, 9, 10, 11, 13, 17, 19, 22, 24]], 1, 1, [[], []], (11, 11)),
        ([], 2, 5, [], (2, 5)),
    ],
)
def test_a_slice_keeps_the_lod_and_names_its_rows(offsets, begin, end, lengths, rows):
    lod, first, last = slice_level(from_offsets(offsets), begin, end)
    assert (lists(to_lengths(lod)), (first, last)) == (lengths, rows)


def test_a_slice_of_a_lower_level_drops_the_levels_above():
    lod = from_offsets([[0, 2, 4], [0, 1, 6, 8, 9]])
    cut, first, last = slice_level(lod, 1, 3, level=1)
    assert (lists(cut), first, last) == ([[0, 5, 7]], 1, 8)


def test_concatenate_appends_level_by_level():
    lod = from_offsets([[0, 2], [0, 1, 6], [0, 2, 5, 7, 10, 12, 15]])
    more = from_lengths([[2], [2, 2], [2, 3, 4, 2]])
    assert lists(concatenate([lod, more])) == [
        [0, 2, 4],
        [0, 1, 6, 8, 10],
        [0, 2, 5, 7, 10, 12, 15, 17, 20, 24, 26],
    ]


def test_take_orders_and_repeats():
    lod = from_lengths([[2, 0, 1], [1, 2, 3]])
    taken, rows = take(lod, np.array([2, 1, 0, 2]))
    assert lists(to_lengths(taken)) == [[1, 0, 2, 1], [3, 1, 2, 3]]
    assert rows.tolist() == [3, 4, 5, 0, 1, 2, 3, 4, 5]


def test_segments_pass_over_empty_sequences():
    offsets = from_lengths([[0, 2, 0, 3, 0]])[0]
    assert segment_ids(offsets).tolist() == [1, 1, 3, 3, 3]


def test_lod_expand_repeats_each_row_by_its_length():
    rows = np.array([0, 1])
    assert rows[segment_ids(from_offsets([[0, 3, 5]])[0])].tolist() == [0, 0, 0, 1, 1]


def test_samples_are_top_level_entries_or_rows():
    assert num_entries(from_lengths([[2, 1], [3, 2, 4]]), 9) == 2
    assert num_entries((), 9) == 9
