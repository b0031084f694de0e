"""The kernels on host arrays, compiled by numba.

Compiled code is cached on disk, releases the GIL and touches no Python object. Like their twins
these functions check nothing but what only the data can tell; `gpufeed.kernels` does the rest.

What only moves values runs on words (`gpufeed.kernels.words`). Arithmetic on float16, which
numba's CPU target does not have, and plain casts, at which NumPy is as fast, are left to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from gpufeed.kernels import reference
from gpufeed.kernels.half import combined
from gpufeed.kernels.streaming import prefetch, stream_copy
from gpufeed.kernels.words import as_words, word_of

__all__ = ["convert_values", "densify_rows", "pad_rows", "unpad_rows"]

Array = npt.NDArray[Any]

# Rows are zeroed and filled in sweeps of this size, so that the values land in lines still in
# cache, and so that the set-up of a memset (some 30 ns) is paid once for many short rows.
SWEEP_NBYTES = 64 << 10

# An output beyond this would not stay in the cache until somebody reads it. It is made sweep by
# sweep in one that does, and stored past the cache from there: in under half the time of a memset.
STREAM_NBYTES = 16 << 20


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` at its first call, from the disk cache where there is one."""
    try:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


# Words of these add like the values: whole numbers wrap, and words of 16 bits are halves.
WORDS_ADD_LIKE = tuple(np.dtype(name) for name in ("int8", "uint8", "int32", "int64", "float16"))

# What an entry does to its place.
SET_TO_ONE, PUT, ADD = range(3)


@njit  # type: ignore[untyped-decorator]
def _scatter(
    offsets: Any,
    indices: Any,
    values: Any,
    one: Any,
    how: int,
    row: int,
    dim: int,
    flat: Any,
    start: int,
) -> int:
    """Write a row's entries into ``flat[start:]``; return the last that is outside, or -1."""
    outside = -1
    for k in range(offsets[row], offsets[row + 1]):
        # Unsigned, so that one comparison tells both ends, and numba does not ask of each index
        # whether it counts from the end.
        j = np.uint64(indices[k])
        at = np.uint64(start) + j
        if j >= np.uint64(dim):
            outside = k
        elif how == ADD:
            flat[at] = combined(flat[at], values[k])
        elif how == PUT:
            flat[at] = values[k]
        else:
            flat[at] = one
    return outside


@njit  # type: ignore[untyped-decorator]
def _clear(offsets: Any, indices: Any, row: int, dim: int, flat: Any, start: int) -> None:
    """Set to 0 what `_scatter` wrote."""
    for k in range(offsets[row], offsets[row + 1]):
        j = np.uint64(indices[k])
        if j < np.uint64(dim):
            flat[np.uint64(start) + j] = 0


@njit  # type: ignore[untyped-decorator]
def _ask_for(offsets: Any, indices: Any, row: int, dim: int, flat: Any, start: int) -> None:
    """Have the lines fetched that a row's entries are in."""
    address = np.uint64(flat.ctypes.data + start * flat.itemsize)
    for k in range(offsets[row], offsets[row + 1]):
        prefetch(address + np.uint64(indices[k]) * np.uint64(flat.itemsize))


@_compiled
def _densify(
    offsets: Array,
    indices: Array,
    values: Array,
    one: Any,
    how: int,
    old_offsets: Array,
    old_indices: Array,
    rows_per_sweep: int,
    scratch: Array,
    out: Array,
) -> int:
    """Densify in one of three ways; return the last entry outside its row, or -1.

    With old entries only these are cleared. With a scratch of zeros each sweep is made there and
    stored past the cache; without one it is zeroed and filled where it belongs.
    """
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    outside = -1
    for first in range(0, rows, rows_per_sweep):
        last = min(first + rows_per_sweep, rows)
        sweep = flat[first * dim : last * dim]
        made = sweep
        if old_offsets.size:
            pass
        elif scratch.size >= sweep.size:
            made = scratch[: sweep.size]
        elif scratch.size:  # a row that is longer than it
            for begin in range(0, dim, scratch.size):
                part = sweep[begin : begin + scratch.size]
                stream_copy(scratch[: part.size], part)
        else:
            sweep[:] = 0
        for row in range(first, last):
            start = (row - first) * dim
            if old_offsets.size:  # row by row, as the new entries are near the old ones
                if row + 1 < last:
                    _ask_for(old_offsets, old_indices, row + 1, dim, made, start + dim)
                    _ask_for(offsets, indices, row + 1, dim, made, start + dim)
                _clear(old_offsets, old_indices, row, dim, made, start)
            bad = _scatter(offsets, indices, values, one, how, row, dim, made, start)
            outside = max(outside, bad)
        if scratch.size >= sweep.size and not old_offsets.size:
            stream_copy(made, sweep)
            for row in range(first, last):
                _clear(offsets, indices, row, dim, made, (row - first) * dim)
    return outside


# Below, loops over views: numba compiles them to vector copies, several times faster than slice
# assignment and than loops over ``values[start + j]``.


@_compiled
def _pad(values: Array, offsets: Array, width: int, pad_word: Any, out: Array) -> None:
    rows, row_width = out.shape
    for row in range(rows):
        start = offsets[row] * width
        length = min(offsets[row + 1] * width - start, row_width)
        kept = values[start : start + length]
        for j in range(kept.size):
            out[row, j] = kept[j]
        rest = out[row, length:]
        for j in range(rest.size):
            rest[j] = pad_word


@_compiled
def _unpad(padded: Array, offsets: Array, width: int, out: Array) -> None:
    rows, row_width = padded.shape
    for row in range(rows):
        start = offsets[row] * width
        length = min(offsets[row + 1] * width - start, row_width)
        kept = out[start : start + length]
        for j in range(kept.size):
            kept[j] = padded[row, j]


@_compiled
def _scale(values: Array, scale: Any, shift: Any, out: Array) -> None:
    for i in range(out.size):
        out[i] = out.dtype.type(values[i]) * scale + shift


def densify_rows(
    offsets: Array,
    indices: Array,
    values: Array | None,
    out: Array,
    *,
    assume_unique: bool = False,
    previous: tuple[Array, Array] | None = None,
    fault: Array | None = None,
) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros."""
    rows, dim = out.shape
    one, dtype = word_of(1, out.dtype), indices.dtype
    how = SET_TO_ONE if values is None else PUT if assume_unique else ADD
    if values is not None:
        # One kernel for each dtype of out, instead of one for each pair.
        values = values.astype(out.dtype, copy=False)
    if how != ADD or out.dtype in WORDS_ADD_LIKE:
        values = values if values is None else as_words(values, values.size)
        out = as_words(out, rows, dim)
    rows_per_sweep = SWEEP_NBYTES // max(1, dim * out.itemsize)
    scratch_nbytes = SWEEP_NBYTES if out.nbytes >= STREAM_NBYTES and out.flags.aligned else 0
    old_offsets, old_indices = previous or (offsets[:0], indices[:0])
    outside = _densify(
        offsets.astype(dtype, copy=False),
        indices,
        out.ravel()[:0] if values is None else values,
        out.dtype.type(one),
        how,
        old_offsets.astype(dtype, copy=False),
        old_indices.astype(dtype, copy=False),
        max(1, rows if previous else min(rows, rows_per_sweep)),
        np.zeros(scratch_nbytes // out.itemsize, out.dtype),
        out,
    )
    if fault is not None and outside >= 0:
        fault[0] = max(fault[0], outside + 1)


def pad_rows(values: Array, offsets: Array, pad_value: float, out: Array) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``."""
    width = math.prod(values.shape[1:])
    _pad(
        as_words(values, values.size),
        offsets,
        width,
        word_of(pad_value, out.dtype),
        as_words(out, len(out), out.shape[1] * width),
    )


def unpad_rows(padded: Array, offsets: Array, out: Array) -> None:
    """Pack padded rows end to end: ``out[offsets[i]:offsets[i + 1]] = padded[i, :n]``."""
    width = math.prod(out.shape[1:])
    _unpad(
        as_words(padded, len(padded), padded.shape[1] * width),
        offsets,
        width,
        as_words(out, out.size),
    )


def convert_values(values: Array, scale: float | None, shift: float | None, out: Array) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``."""
    if (scale is None and shift is None) or np.float16 in (values.dtype, out.dtype):
        reference.convert_values(values, scale, shift, out)
        return
    _scale(
        values.reshape(values.size),
        # x * 1 and x + -0.0 are x, to the sign of a zero.
        out.dtype.type(1.0 if scale is None else scale),
        out.dtype.type(-0.0 if shift is None else shift),
        out.reshape(out.size),
    )
