"""Sizes of a field that another process has written: all that is known of it here but its values.

They stand in for a column (`gpufeed.columns`) where a batch is laid out, so that both processes
lay it out alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpufeed.columnar import Column
from gpufeed.lod import Offsets
from gpufeed.places import CPUPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable

__all__ = ["SIZED", "SizedDense", "SizedSparse"]

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
        """Return the rows as they travel, over the field's arrays in the wire prefix."""
        values = wire[0]
        if self.is_packed:
            bits = np.unpackbits(values, count=int(np.prod(self.shape)), bitorder="little")
            values = bits.view(np.bool_).reshape(self.shape)
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
