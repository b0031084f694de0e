from __future__ import annotations

import numpy as np
import pytest

from gpufeed.device.host import ALIGNMENT
from gpufeed.layout import find_again, lay_out_remains

INT32, SINGLE = np.dtype("int32"), np.dtype("float32")
NBYTES = 1 << 16


def field(rows, dim, entries):
    return ((rows, dim), SINGLE), ((rows + 1,), INT32), ((entries,), INT32)


def test_remains_stand_at_the_end_aligned_and_apart():
    placed = lay_out_remains([field(3, 7, 5), field(4, 100, 0)], NBYTES + 3)
    spans = sorted(
        (start, start + int(np.prod(shape)) * dtype.itemsize)
        for remains in placed
        for start, shape, dtype in remains
    )
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(
        end <= start for (_, end), (start, _) in zip(spans, [*spans[1:], (NBYTES, 0)], strict=True)
    )


def test_dense_rows_are_where_they_were_however_many_entries_there_are():
    one, other = ([field(3, 7, n), field(4, 100, 2 * n)] for n in (0, 900))
    first, second = lay_out_remains(one, NBYTES), lay_out_remains(other, NBYTES)
    assert [each.dense for each in first] == [each.dense for each in second]
    assert list(find_again(second, first, 1000)) == first


@pytest.mark.parametrize(
    "left",
    [
        None,
        "something else",
        [],
        lay_out_remains([field(2, 7, 5), field(4, 100, 0)], NBYTES),
        lay_out_remains([field(3, 7, 5), field(4, 99, 0)], NBYTES),
        lay_out_remains([field(3, 7, 5), field(4, 100, 0)], NBYTES // 2),
    ],
    ids=["none", "another plan's", "another feeder's", "fewer rows", "narrower", "another slab"],
)
def test_what_is_not_the_same_is_not_found(left):
    mine = lay_out_remains([field(3, 7, 5), field(4, 100, 0)], NBYTES)
    assert list(find_again(mine, left, 0)) == [None, None]


def test_what_has_been_overwritten_is_not_found():
    left = lay_out_remains([field(3, 7, 5)], NBYTES)
    mine = lay_out_remains([field(3, 7, 9)], NBYTES)
    begins = min(part[0] for part in left[0])
    assert list(find_again(mine, left, begins)) == left
    assert list(find_again(mine, left, begins + 1)) == [None]
