"""The fast paths: copies of a whole column into its final place, which are their own check.

``np.concatenate(casting="no")`` refuses another dtype as it copies; ``array.fromlist``, which packs
Python numbers before they are written, refuses a float where an integer belongs. Both run at the
speed of a copy. What they refuse is one of `REFUSALS`; what then becomes of the column is for
`gpufeed.strict` to say.
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

__all__ = [
    "REFUSALS",
    "concatenate",
    "flattened",
    "refuses",
    "require_types",
    "write_arrays",
    "write_samples",
    "write_sequences",
]

Array = np.ndarray[Any, Any]
Rows = Sequence[Any]

# What the fast paths raise when a value is not exactly what they expect.
REFUSALS = (
    *(TypeError, ValueError, AttributeError, LookupError),
    *(OverflowError, FloatingPointError, RuntimeError),
)


def refuses(write: Callable[[Rows, Array], None], blocks: Rows, out: Array) -> bool:
    """Write by a fast path; return whether it met a value that it does not take as it is."""
    try:
        write(blocks, out)
    except REFUSALS:
        return True
    return False


def flattened(blocks: Rows) -> list[Any]:
    """Return what is in the blocks, which must be sequences."""
    strict.require_sequences(blocks)
    return list(chain.from_iterable(blocks))


def require_types(values: Rows, types: set[type]) -> None:
    """Refuse values of any other type."""
    if not set(map(type, values)) <= types:
        raise TypeError("another form")


def write_sequences(blocks: Rows, out: Array) -> None:
    """Write blocks of any number of rows each, one after the other."""
    if not len(out):
        strict.require_sequences(blocks)
        return
    first = blocks[0]
    if not len(first):
        first = next(block for block in blocks if len(block))
    if isinstance(first, np.ndarray):
        concatenate(blocks, out if first.ndim > 1 else _flat_rows(out))
    elif not isinstance(first, (list, tuple)):
        concatenate(_arrays(blocks), out if np.ndim(first) > 1 else _flat_rows(out))
    elif isinstance(first[0], (list, tuple, np.ndarray)):
        _write_rows(flattened(blocks), out, flat=False)
    else:
        _write_lists(blocks, _flat_rows(out))


def write_samples(rows: Rows, out: Array) -> None:
    """Write one row after the other; each may be flat."""
    _write_rows(rows, out, flat=True)


def _write_rows(rows: Rows, out: Array, *, flat: bool) -> None:
    """Write one row after the other, each of shape ``out.shape[1:]``, or flat where that may be."""
    if not rows:
        return
    first, item = rows[0], out.shape[1:]
    if getattr(first, "ndim", 0):
        if first.shape == item:
            _require_lengths(rows, item[0])
            concatenate(rows, out.reshape(-1, *item[1:]))
        elif flat and first.ndim == 1:
            _require_lengths(rows, math.prod(item))
            concatenate(rows, out.reshape(-1))
        else:
            raise ValueError("another shape")
    elif isinstance(first, (list, tuple)):
        nested = len(first) > 0 and isinstance(first[0], (list, tuple, np.ndarray))
        if nested and len(item) > 1:
            _require_lengths(rows, item[0])
            inner = out.reshape(-1, *item[1:])
            _write_rows(flattened(rows), inner, flat=False)
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


def concatenate(blocks: Rows, out: Array) -> None:
    """Write arrays end to end, converted if every value can be kept."""
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


def write_arrays(arrays: list[Array], out: Array) -> None:
    """Write arrays that `gpufeed.strict` has converted."""
    if arrays:
        np.concatenate(arrays, out=out)


def _write_lists(blocks: Rows, out: Array) -> None:
    """Write lists of Python (or NumPy) scalars, one after the other."""
    if set(map(type, blocks)) != {list}:
        require_types(blocks, {list, tuple})
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
    require_types(flat, {bool, np.bool_})
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
