"""Whole columns: a field that arrives as one array with its offsets, and only needs to be copied.

They have the interfaces of `gpufeed.columns`, and the same rules: what a column of samples may be
converted from, a whole one may.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import gpufeed.strict as strict
from gpufeed.columnar import Column, ColumnarBatch
from gpufeed.columns import is_outside
from gpufeed.errors import FieldError, PlaceError
from gpufeed.places import CPUPlace
from gpufeed.ragged import Ragged
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable
from gpufeed.writing import concatenate, refuses, write_arrays

__all__ = ["WHOLE", "WholeDense", "WholeSparse", "samples_of"]

Array = np.ndarray[Any, Any]

WHOLE = (LoDTensor, SparseRows, np.ndarray)  # what `Column` is, for `isinstance`


class WholeDense:
    """Rows that are one array already; has the interface of `gpufeed.columns.DenseColumn`.

    Attributes:
        offsets: One int64 array a level, the top level first.
        shape: Of the values, ``(rows, *item)``.
    """

    __slots__ = ("_column", "_values", "_variable", "offsets", "shape")

    def __init__(self, variable: Variable, column: Column) -> None:
        self._variable = variable
        self._column = column
        self.offsets = _levels(variable, column, variable.lod_level)
        if isinstance(column, SparseRows):
            raise _expected(variable, "dense rows", column)
        values: Array = column.data if isinstance(column, LoDTensor) else column
        self._values = _shaped(variable, values)
        if variable.shape[0] not in (-1, len(values)):
            raise strict.batch_size(variable, len(values))
        self.shape = self._values.shape

    def write(self, out: Array) -> None:
        """Write the values into ``out``, which has this column's shape and the dtype that travels.

        Raises:
            FieldError: A value does not fit; names field, sample, expected and got.
        """
        if refuses(concatenate, [self._values], out):
            samples = samples_of(self._column)
            write_arrays(strict.dense_rows(self._variable, samples, self.shape[1:], out.dtype), out)


class WholeSparse:
    """Sparse rows that are arrays already; has the interface of `gpufeed.columns.SparseColumn`.

    Binary rows may also be a LoDTensor of whole numbers, one level deeper than the variable: its
    lowest sequences are the indices of the rows.

    Attributes:
        offsets: The LoD that cuts the rows; empty for one row a sample.
        row_offsets: Whole numbers ``(rows + 1,)``, where each row's entries begin.
    """

    __slots__ = ("_column", "_indices", "_values", "_variable", "offsets", "row_offsets")

    def __init__(self, variable: Variable, column: Column) -> None:
        self._variable = variable
        self._column = column
        self._values: Array | None = None
        is_binary = variable.layout == "sparse_binary"
        if isinstance(column, SparseRows):
            self.offsets = _levels(variable, column, variable.lod_level)
            if column.dim != variable.dim or (column.values is None) != is_binary:
                raise _expected(variable, f"{variable.layout} rows of dim {variable.dim}", column)
            self.row_offsets, self._indices = column.offsets, column.indices
            self._values = column.values
        elif isinstance(column, LoDTensor) and is_binary:
            *self.offsets, self.row_offsets = _levels(variable, column, variable.lod_level + 1)
            self._indices = column.data
            if column.dtype.kind not in "iu" or len(column.shape) != 1:
                raise _expected(variable, "one whole number an index", column)
        else:
            raise _expected(variable, "SparseRows", column)

    def write_indices(self, out: Array, *, checks_range: bool = True) -> None:
        """Write the column numbers into ``out``, ``(entries,)`` int32 or int64.

        Raises:
            FieldError: One is not in ``[0, dim)``. It is asked too where the dtype that travels
                would not keep it.
        """
        given = self._indices
        checks_range |= not np.can_cast(given.dtype, out.dtype)
        if checks_range and is_outside(given, self._variable.dim):
            strict.sparse_rows(self._variable, samples_of(self._column))  # names the sample
        np.copyto(out, given, casting="unsafe")

    def write_values(self, out: Array) -> None:
        """Write the values into ``out``, ``(entries,)``, of the dtype that travels.

        Raises:
            FieldError: One does not fit.
        """
        assert self._values is not None
        if refuses(concatenate, [self._values], out):
            pairs = strict.sparse_rows(self._variable, samples_of(self._column), out.dtype)
            write_arrays([values for _, values in pairs], out)


def _levels(variable: Variable, column: Column, levels: int) -> list[Array]:
    """Return the offsets of a column on the host that is cut ``levels`` deep."""
    offsets: list[Array] = []
    if isinstance(column, Ragged):
        if column.place != CPUPlace():
            raise PlaceError(
                f"field {variable.name!r}: a column must be on the host, got one on {column.place}"
            )
        offsets = list(column._fitting())
    if len(offsets) != levels:
        raise _expected(variable, f"a column cut {levels} levels deep", column)
    return offsets


def _shaped(variable: Variable, values: Array) -> Array:
    """Return the values as rows of the declared shape; flat rows of its size are reshaped."""
    item = variable.item_shape
    if strict.matches(values.shape[1:], item):
        return values
    if values.ndim <= 2 and -1 not in item and math.prod(values.shape[1:]) == math.prod(item):
        return values.reshape(len(values), *item)
    raise FieldError(
        f"field {variable.name!r}: expected rows of shape {item}, got {values.shape[1:]}"
    )


def samples_of(column: Column) -> list[Any]:
    """Return the column as a reader would have given it, sample by sample."""
    return [sample for (sample,) in ColumnarBatch({"column": column}).rows()]


def _expected(variable: Variable, expected: str, column: Column) -> FieldError:
    got = f"an array of {column.dtype}" if isinstance(column, np.ndarray) else repr(column)
    return FieldError(f"field {variable.name!r}: expected {expected}, got {got}")
