"""Sizes of a field that another process has written: all that is known of it here but its values.

They stand in for a column (`gpufeed.columns`) where a batch is laid out, so that both processes
lay it out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpufeed.columnar import Column
from gpufeed.lod import Offsets
from gpufeed.places import CPUPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable

__all__ = ["SIZED", "Packed", "Sized", "SizedDense", "SizedSparse", "pack", "unpack"]

Array = np.ndarray[Any, Any]


class SizedDense(NamedTuple):
    """Rows of one shape.

    Attributes:
        num_samples: In the batch.
        offsets: One int64 array a level, the top level first.
        shape: Of the values, ``(rows, *item)``.
        dtype: Of what travels.
        wire_shape: Of what travels; another one if that is bits.
        is_packed: Whether that is bits, the lowest first.
    """

    num_samples: int
    offsets: list[Offsets]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    wire_shape: tuple[int, ...]
    is_packed: bool

    def column(self, variable: Variable, wire: list[Array]) -> Column:
        """Return the rows as they travel, over the field's arrays in the wire prefix.

        What was narrowed to what one batch needs is widened, to be joined with others.
        """
        values = wire[0]
        if self.is_packed:
            bits = np.unpackbits(values, count=int(np.prod(self.shape)), bitorder="little")
            values = bits.view(np.bool_).reshape(self.shape)
        elif variable.wire_dtype == "auto":
            values = values.astype(variable.dtype, copy=False)
        return LoDTensor._assemble(values, self.offsets, CPUPlace())


class SizedSparse(NamedTuple):
    """CSR rows.

    Attributes:
        num_samples: In the batch.
        offsets: The LoD that cuts the rows; empty for one row a sample.
        num_rows: How many.
        num_entries: Of all rows.
    """

    num_samples: int
    offsets: list[Offsets]
    num_rows: int
    num_entries: int

    def column(self, variable: Variable, wire: list[Array]) -> Column:
        """Return the rows, over the field's arrays in the wire prefix."""
        values = wire[2] if variable.layout == "sparse_float" else None
        return SparseRows._assemble(
            wire[0], wire[1], values, variable.dim, self.offsets, CPUPlace()
        )


SIZED = (SizedDense, SizedSparse)
Sized = SizedDense | SizedSparse
# All offsets, one behind the other, and of each field its kind, how many samples and how many
# offsets in each level there are, and what else is to be said of that kind.
Packed = tuple[bytearray, list[tuple[Any, ...]]]


def pack(fields: Sequence[Sized]) -> Packed:
    """Return sizes as few objects: pickling and unpickling takes a time for each, arrays above all.

    >>> fields = [SizedSparse(2, [np.array([0, 1, 3])], 3, 7), SizedSparse(2, [], 2, 5)]
    >>> unpack(pack(fields))[1]
    SizedSparse(num_samples=2, offsets=[], num_rows=2, num_entries=5)
    """
    levels = [level for field in fields for level in field.offsets]
    told = [
        (type(field), field.num_samples, [len(level) for level in field.offsets], *field[2:])
        for field in fields
    ]
    return bytearray(np.concatenate(levels) if levels else b""), told


def unpack(packed: Packed) -> list[Sized]:
    """Return what was packed."""
    data, told = packed
    offsets: Offsets = np.ndarray(len(data) // 8, np.int64, data)
    fields, end = [], 0
    for kind, num_samples, lengths, *others in told:
        levels = []
        for length in lengths:
            begin, end = end, end + length
            levels.append(offsets[begin:end])
        fields.append(kind(num_samples, levels, *others))
    return fields
