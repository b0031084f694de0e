"""`map_readers` and `compose`: readers side by side."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from support.readers import counting, taken_until

from gpufeed.errors import ComposeNotAligned
from gpufeed.reader import cache, chain, combine, compose, map_readers


def test_map_gets_one_argument_a_reader():
    assert list(map_readers(lambda pair: pair, lambda: [(1, 2)])) == [(1, 2)]
    assert list(map_readers(pow, counting(4), lambda: [2, 2, 2])) == [0, 1, 4]


def test_map_without_a_reader_is_refused():
    with pytest.raises(TypeError, match=r"map_readers.readers must be at least one"):
        map_readers(abs)


def test_map_skips_without_calling():
    called = []
    assert list(map_readers(called.append, counting(5)).open(0, 3)) == [None, None]
    assert called == [3, 4]


def test_compose_splices_tuples_and_nothing_else():
    pair = namedtuple("pair", "a b")
    rows = list(compose(lambda: [(1, 2)], lambda: [[3]], lambda: [pair(4, 5)], lambda: [None]))
    assert rows == [(1, 2, [3], 4, 5, None)]


def test_compose_takes_none_and_arrays_as_data():
    array = np.arange(3)
    ((none, same),) = compose(lambda: [None], lambda: [array])
    assert none is None
    assert same is array


def test_compose_complains_after_all_aligned_rows():
    reader = compose(chain(counting(10), counting(10)), counting(10))
    taken, error = taken_until(reader)
    assert len(taken) == 10
    assert isinstance(error, ComposeNotAligned)
    assert isinstance(error, ValueError)
    assert "end of reader 1 after 10 samples" in str(error)


@pytest.mark.parametrize("lengths", [(3, 4), (4, 3), (0, 1), (3, 3, 4), (4, 3, 3)])
def test_compose_sees_every_misalignment(lengths):
    taken, error = taken_until(compose(*map(counting, lengths)))
    assert len(taken) == min(lengths)
    assert isinstance(error, ComposeNotAligned)


def test_compose_unaligned_stops_at_the_shortest():
    assert list(compose(counting(2), counting(5), check_alignment=False)) == [(0, 0), (1, 1)]


def test_compose_resumed_counts_rows_from_the_beginning():
    with pytest.raises(ComposeNotAligned, match="after 3 samples"):
        list(compose(counting(3), counting(4)).open(0, 2))


def test_compose_refuses_unknown_keywords():
    with pytest.raises(TypeError, match="foo"):
        compose(counting(2), foo=1)


def test_combine_is_compose():
    assert combine is compose


def test_compose_counts_rows_if_all_are_aligned():
    three, four = cache(counting(3)), cache(counting(4))
    assert compose(three, three).count() == 3
    assert compose(three, four).count() is None
    assert compose(three, four, check_alignment=False).count() == 3
    assert compose(three, counting(3)).count() is None


def test_map_of_every_nth_maps_no_other():
    called = []
    reader = map_readers(lambda sample: called.append(sample), counting(9))
    list(reader.open_every(0, 1, 3))
    assert called == [1, 4, 7]
