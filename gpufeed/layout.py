"""Where the arrays of a batch stand in its slab.

What travels, and what kernels make of it, stands one array after the other from the slab's start.
What ``densify="reuse"`` leaves for the next batch stands at its end:

    ┌─────────────┬─────────────────┬─────────────── ── ─┬────────────────────┬────────────────┐
    │ wire prefix │ unpacked region │      (free)        │ entries of the rows│ the dense rows │
    └─────────────┴─────────────────┴─────────────── ── ─┴────────────────────┴────────────────┘

so that dense rows of one shape are always in the same place of a slab, however much room the rest
of the batch needs, and the next batch can clear just what was written: the wire prefix, where the
entries came in, is its own by then, so they are kept in a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpufeed.device.host import ALIGNMENT

__all__ = ["Placed", "Remains", "Section", "find_again", "lay_out", "lay_out_remains"]

Section = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype of one array in the slab
Placed = tuple[int, tuple[int, ...], np.dtype[Any]]  # the byte where it starts, shape, dtype


class Remains(NamedTuple):
    """What one field leaves: its dense rows, and the CSR rows that they were made of."""

    dense: Placed
    offsets: Placed
    indices: Placed


def lay_out(sections: Sequence[Section], start: int) -> tuple[list[Placed], int]:
    """Return each array with the byte at which it starts, and where the last one ends.

    >>> lay_out([((3,), np.dtype("int32")), ((2, 2), np.dtype("uint8"))], 0)
    ([(0, (3,), dtype('int32')), (256, (2, 2), dtype('uint8'))], 512)
    """
    placed = []
    for shape, dtype in sections:
        placed.append((start, shape, dtype))
        start += _room(shape, dtype)
    return placed, start


def lay_out_remains(
    fields: Sequence[tuple[Section, Section, Section]], slab_nbytes: int
) -> list[Remains]:
    """Return where each field's dense rows, offsets and indices stand, from the slab's end down."""
    end = slab_nbytes // ALIGNMENT * ALIGNMENT
    placed: list[list[Placed]] = [[], [], []]
    for part in range(3):
        for field in fields:
            shape, dtype = field[part]
            end -= _room(shape, dtype)
            placed[part].append((end, shape, dtype))
    return [Remains(*parts) for parts in zip(*placed, strict=True)]


def find_again(
    mine: Sequence[Remains], left: object, end: int
) -> Sequence[Remains] | Sequence[None]:
    """Return what an earlier batch left where this one will leave ``mine``; Nones if it is lost.

    Args:
        mine: Of this batch.
        left: Of the earlier one, or anything else.
        end: Where this batch's own arrays end, which have overwritten what stood before that.
    """
    nothing = [None] * len(mine)
    if not isinstance(left, list) or len(left) != len(mine):
        return nothing
    for old, new in zip(left, mine, strict=True):
        if old.dense != new.dense or min(old.offsets[0], old.indices[0]) < end:
            return nothing
    return left


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
