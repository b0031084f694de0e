"""Columns: one field of a batch, sized first and then written once into a given array.

A column is sized from lengths alone; its values are not looked at before they are copied, and the
copy itself is the check (`gpufeed.writing`). Only when it refuses does `gpufeed.strict` look at
sample after sample, to convert what may be converted and to name the one that may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

import gpufeed.strict as strict
from gpufeed.variables import Variable
from gpufeed.writing import (
    REFUSALS,
    flattened,
    refuses,
    require_types,
    write_arrays,
    write_samples,
    write_sequences,
)

__all__ = ["DenseColumn", "SparseColumn", "is_outside"]

Array = np.ndarray[Any, Any]
Rows = Sequence[Any]


class DenseColumn:
    """Rows of one shape, cut by ``offsets`` where the variable has LoD levels.

    Attributes:
        offsets: One int64 array a level, the top level first.
        shape: Of the values, ``(rows, *item)``.
    """

    __slots__ = ("_blocks", "_samples", "_variable", "offsets", "shape")

    def __init__(self, variable: Variable, samples: Rows) -> None:
        self._variable = variable
        self._samples = samples
        try:
            self.offsets, self._blocks = _peel(samples, variable.lod_level)
            item = _item_shape(variable, self._blocks)
        except REFUSALS as error:
            raise strict.explain(variable, samples, error) from None
        num_rows = int(self.offsets[-1][-1]) if self.offsets else len(samples)
        if variable.shape[0] >= 0 and num_rows != variable.shape[0]:
            raise strict.batch_size(variable, num_rows)
        self.shape = (num_rows, *item)

    def write(self, out: Array) -> None:
        """Write the values into ``out``, which has this column's shape and the dtype that travels.

        Raises:
            FieldError: A value does not fit; names field, sample, expected and got.
        """
        fast = write_sequences if self.offsets else write_samples
        if refuses(fast, self._blocks, out):
            rows = strict.dense_rows(self._variable, self._samples, out.shape[1:], out.dtype)
            write_arrays(rows, out)


class SparseColumn:
    """CSR rows given as indices, or as indices and values.

    Attributes:
        offsets: The LoD that cuts the rows; empty for one row a sample.
        row_offsets: int64 ``(rows + 1,)``, where each row's entries begin.
    """

    __slots__ = ("_indices", "_samples", "_values", "_variable", "offsets", "row_offsets")

    def __init__(self, variable: Variable, samples: Rows) -> None:
        self._variable = variable
        self._samples = samples
        self._indices: Rows
        self._values: Rows | None = None
        try:
            self.offsets, rows = _peel(samples, variable.lod_level)
            if self.offsets:
                rows = flattened(rows)
            if variable.layout == "sparse_binary":
                self._indices = rows
                self.row_offsets = _offsets(rows)
            else:
                self._split_entries(rows)
        except REFUSALS:
            pairs = strict.sparse_rows(variable, samples)
            self._indices = [indices for indices, _ in pairs]
            self._values = [values for _, values in pairs]
            self.row_offsets = _offsets(self._indices)

    def _split_entries(self, rows: Rows) -> None:
        """Take rows apart that are (indices, values) array pairs, or lists of (index, value)."""
        if rows and type(rows[0]) is tuple and isinstance(rows[0][0], np.ndarray):
            require_types(rows, {tuple})
            self._indices, self._values = _transpose(rows)
            require_types(self._indices, {np.ndarray})
            self.row_offsets = _offsets(self._indices)
            if list(map(len, self._indices)) != list(map(len, self._values)):
                raise ValueError("indices and values differ in length")
        else:
            self.row_offsets = _offsets(rows)
            entries = flattened(rows)
            require_types(entries, {tuple, list})
            indices, values = _transpose(entries)
            self._indices, self._values = [list(indices)], [list(values)]

    def write_indices(self, out: Array, *, checks_range: bool = True) -> None:
        """Write the column numbers into ``out``, ``(entries,)`` int32 or int64.

        Raises:
            FieldError: One is not a whole number, or, if that is asked, not in ``[0, dim)``.
        """
        is_refused = refuses(write_sequences, self._indices, out)
        if is_refused or (checks_range and is_outside(out, self._variable.dim)):
            pairs = strict.sparse_rows(self._variable, self._samples)
            write_arrays([indices for indices, _ in pairs], out)

    def write_values(self, out: Array) -> None:
        """Write the values into ``out``, ``(entries,)``, of the dtype that travels.

        Raises:
            FieldError: One does not fit.
        """
        assert self._values is not None
        if refuses(write_sequences, self._values, out):
            pairs = strict.sparse_rows(self._variable, self._samples, out.dtype)
            write_arrays([values for _, values in pairs], out)


def is_outside(indices: Array, dim: int) -> bool:
    """Return whether an index is not in ``[0, dim)``."""
    return bool(indices.size) and (indices.min() < 0 or indices.max() >= dim)


def _offsets(blocks: Rows) -> Array:
    return np.add.accumulate(np.fromiter(chain((0,), map(len, blocks)), np.int64, len(blocks) + 1))


def _peel(samples: Rows, levels: int) -> tuple[list[Array], Rows]:
    """Return the offsets of each level, and the sequences that the lowest level counts."""
    offsets: list[Array] = []
    blocks = samples
    for level in range(levels):
        if level:
            blocks = flattened(blocks)
        offsets.append(_offsets(blocks))
    return offsets, blocks


def _transpose(rows: Rows) -> tuple[Rows, Rows]:
    if not rows:
        return (), ()
    first, second = zip(*rows, strict=True)
    return first, second


def _item_shape(variable: Variable, blocks: Rows) -> tuple[int, ...]:
    """Return the shape of one row; dimensions left open take the size they have in the first."""
    item = variable.item_shape
    if -1 not in item:
        return item
    rows = chain.from_iterable(blocks) if variable.lod_level else iter(blocks)
    first = next(rows, None)
    if first is None:
        return tuple(max(0, dim) for dim in item)
    found: tuple[int, ...] = np.shape(first)
    if not strict.matches(found, item):
        raise ValueError("the first row has another shape")
    return found
