"""Columns: one field of a batch, sized first and then written once into a given array.

A column is sized from lengths alone; its values are not looked at before they are copied. The copy
itself is the check: ``np.concatenate(casting="no")`` refuses another dtype; ``array.fromlist``,
which packs Python numbers before they are written, refuses a float where an integer belongs. Both
run at the speed of a copy. Only when one of them refuses does `gpufeed.strict` look at sample after
sample, to convert what may be converted and to name the one that may not.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

import gpufeed.strict as strict
from gpufeed.variables import Variable

__all__ = ["DenseColumn", "SparseColumn"]

Array = np.ndarray[Any, Any]
Rows = Sequence[Any]

# What the fast paths raise when a value is not exactly what they expect.
REFUSALS = (
    *(TypeError, ValueError, AttributeError, LookupError),
    *(OverflowError, FloatingPointError, RuntimeError),
)


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
        fast = _write_sequences if self.offsets else _write_samples
        if _refuses(fast, self._blocks, out):
            rows = strict.dense_rows(self._variable, self._samples, out.shape[1:], out.dtype)
            _write_converted(rows, out)


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
                rows = _flattened(rows)
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
            _require_types(rows, {tuple})
            self._indices, self._values = _transpose(rows)
            _require_types(self._indices, {np.ndarray})
            self.row_offsets = _offsets(self._indices)
            if list(map(len, self._indices)) != list(map(len, self._values)):
                raise ValueError("indices and values differ in length")
        else:
            self.row_offsets = _offsets(rows)
            entries = _flattened(rows)
            _require_types(entries, {tuple, list})
            indices, values = _transpose(entries)
            self._indices, self._values = [list(indices)], [list(values)]

    def write_indices(self, out: Array) -> None:
        """Write the column numbers into ``out``, ``(entries,)`` int32 or int64.

        Raises:
            FieldError: One is not a whole number in ``[0, dim)``.
        """
        is_refused = _refuses(_write_sequences, self._indices, out)
        if is_refused or (out.size and (out.min() < 0 or out.max() >= self._variable.dim)):
            pairs = strict.sparse_rows(self._variable, self._samples)
            _write_converted([indices for indices, _ in pairs], out)

    def write_values(self, out: Array) -> None:
        """Write the values into ``out``, ``(entries,)``, of the dtype that travels.

        Raises:
            FieldError: One does not fit.
        """
        assert self._values is not None
        if _refuses(_write_sequences, self._values, out):
            pairs = strict.sparse_rows(self._variable, self._samples, out.dtype)
            _write_converted([values for _, values in pairs], out)


def _refuses(write: Callable[[Rows, Array], None], blocks: Rows, out: Array) -> bool:
    """Write by a fast path; return whether it met a value that it does not take as it is."""
    try:
        write(blocks, out)
    except REFUSALS:
        return True
    return False


def _offsets(blocks: Rows) -> Array:
    return np.add.accumulate(np.fromiter(chain((0,), map(len, blocks)), np.int64, len(blocks) + 1))


def _peel(samples: Rows, levels: int) -> tuple[list[Array], Rows]:
    """Return the offsets of each level, and the sequences that the lowest level counts."""
    offsets: list[Array] = []
    blocks = samples
    for level in range(levels):
        if level:
            blocks = _flattened(blocks)
        offsets.append(_offsets(blocks))
    return offsets, blocks


def _flattened(blocks: Rows) -> list[Any]:
    strict.require_sequences(blocks)
    return list(chain.from_iterable(blocks))


def _require_types(values: Rows, types: set[type]) -> None:
    if not set(map(type, values)) <= types:
        raise TypeError("another form")


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


def _write_sequences(blocks: Rows, out: Array) -> None:
    """Write blocks of any number of rows each, one after the other."""
    if not len(out):
        strict.require_sequences(blocks)
        return
    first = blocks[0]
    if not len(first):
        first = next(block for block in blocks if len(block))
    if isinstance(first, np.ndarray):
        _concatenate(blocks, out if first.ndim > 1 else _flat_rows(out))
    elif not isinstance(first, (list, tuple)):
        _concatenate(_arrays(blocks), out if np.ndim(first) > 1 else _flat_rows(out))
    elif isinstance(first[0], (list, tuple, np.ndarray)):
        _write_rows(_flattened(blocks), out, flat=False)
    else:
        _write_lists(blocks, _flat_rows(out))


def _write_samples(rows: Rows, out: Array) -> None:
    _write_rows(rows, out, flat=True)


def _write_rows(rows: Rows, out: Array, *, flat: bool) -> None:
    """Write one row after the other, each of shape ``out.shape[1:]``, or flat where that may be."""
    if not rows:
        return
    first, item = rows[0], out.shape[1:]
    if getattr(first, "ndim", 0):
        if first.shape == item:
            _require_lengths(rows, item[0])
            _concatenate(rows, out.reshape(-1, *item[1:]))
        elif flat and first.ndim == 1:
            _require_lengths(rows, math.prod(item))
            _concatenate(rows, out.reshape(-1))
        else:
            raise ValueError("another shape")
    elif isinstance(first, (list, tuple)):
        nested = len(first) > 0 and isinstance(first[0], (list, tuple, np.ndarray))
        if nested and len(item) > 1:
            _require_lengths(rows, item[0])
            inner = out.reshape(-1, *item[1:])
            _write_rows(_flattened(rows), inner, flat=False)
        elif not nested and (flat or len(item) == 1):
            _require_lengths(rows, math.prod(item))
            _write_lists(rows, out.reshape(-1))
        else:
            raise ValueError("another shape")
    else:
        _write_lists([list(rows)], _flat_rows(out))


def _flat_rows(out: Array) -> Array:
    """Return ``out`` as one value a row, which it must be."""
    if out.size != len(out):
        raise ValueError("a row is more than one value")
    return out.reshape(-1)


def _require_lengths(rows: Rows, length: int) -> None:
    if set(map(len, rows)) != {length}:
        raise ValueError("another length")


def _arrays(blocks: Rows) -> list[Array]:
    """Return other libraries' arrays as NumPy's, of as many rows as they were counted to have."""
    arrays = [np.asanyarray(block) for block in blocks]  # "any" keeps masks, to be refused
    if list(map(len, arrays)) != list(map(len, blocks)):  # a LoDTensor counts its sequences
        raise ValueError("another length")
    return arrays


def _concatenate(blocks: Rows, out: Array) -> None:
    if strict.has_masked(blocks):
        raise TypeError("a masked array")
    try:
        np.concatenate(blocks, out=out, casting="no")
    except TypeError:
        _concatenate_cast([np.asarray(block) for block in blocks if len(block)], out)


def _concatenate_cast(arrays: list[Array], out: Array) -> None:
    """Concatenate into another dtype, if every value can be kept."""
    dtypes = {block.dtype for block in arrays}
    if all(strict.is_exact(dtype, out.dtype) for dtype in dtypes):
        # Only a finite value that becomes infinite is refused, whatever the caller has set.
        with np.errstate(over="raise", under="ignore"):
            np.concatenate(arrays, out=out, casting="unsafe")
    elif all(strict.may_fit(dtype, out.dtype) for dtype in dtypes):
        whole = np.concatenate(arrays)
        if not strict.in_range(whole, out.dtype):
            raise OverflowError("an integer is out of range")
        np.copyto(out, whole, casting="unsafe")
    else:
        raise TypeError("another kind of value")


def _write_converted(arrays: list[Array], out: Array) -> None:
    if arrays:
        np.concatenate(arrays, out=out)


def _write_lists(blocks: Rows, out: Array) -> None:
    """Write lists of Python (or NumPy) scalars, one after the other."""
    if set(map(type, blocks)) != {list}:
        _require_types(blocks, {list, tuple})
        blocks = list(map(list, blocks))
    values = _PACKERS[out.dtype](blocks)
    if len(values) != len(out):
        raise ValueError("another number of values")
    np.copyto(out, values)


def _packed(typecode: str, blocks: Rows) -> Array:
    packed = array(typecode)
    for block in blocks:
        packed.fromlist(block)
    return np.frombuffer(packed, typecode)


def _bools(blocks: Rows) -> Array:
    flat = list(chain.from_iterable(blocks))
    _require_types(flat, {bool, np.bool_})
    return np.array(flat, bool)


def _singles(blocks: Rows) -> Array:
    singles = _packed("f", blocks)
    if np.isinf(singles).any():  # array("f") lets a finite value become infinite
        raise FloatingPointError("infinite")
    return singles


def _halves(blocks: Rows) -> Array:
    with np.errstate(over="raise", under="ignore"):
        return _packed("d", blocks).astype(np.float16)


_PACKERS: dict[np.dtype[Any], Callable[[Rows], Array]] = {
    **{np.dtype(code): partial(_packed, code) for code in "bBhiqd"},
    np.dtype(bool): _bools,
    np.dtype(np.float16): _halves,
    np.dtype(np.float32): _singles,
}
