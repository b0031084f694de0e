"""The kernels on host arrays, compiled by numba.

Compiled code is cached on disk, releases the GIL, allocates nothing and touches no Python object.
Like their twins these functions check nothing; `gpufeed.kernels` does.

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
from gpufeed.kernels.words import as_words, word_of

__all__ = ["convert_values", "densify_rows", "pad_rows", "unpad_rows"]

Array = npt.NDArray[Any]

# Rows are zeroed and filled in sweeps of this size, so that the values land in lines still in
# cache, and so that the set-up of a memset (some 30 ns) is paid once for many short rows.
SWEEP_NBYTES = 64 << 10

# An output beyond any last-level cache is zeroed in one sweep: libc's memset then stores past the
# cache, at twice the speed, which outweighs fetching the filled lines back.
STREAM_NBYTES = 32 << 20


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Compile ``function`` at its first call, from the disk cache where there is one."""
    try:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


@_compiled
def _set_rows(offsets: Array, indices: Array, one: Any, rows_per_sweep: int, out: Array) -> None:
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    for first in range(0, rows, rows_per_sweep):
        last = min(first + rows_per_sweep, rows)
        flat[first * dim : last * dim] = 0
        for row in range(first, last):
            for k in range(offsets[row], offsets[row + 1]):
                # Unsigned, or numba would ask of each index whether it counts from the end.
                flat[np.uint64(row * dim + indices[k])] = one


@_compiled
def _add_rows(
    offsets: Array, indices: Array, values: Array, rows_per_sweep: int, out: Array
) -> None:
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    for first in range(0, rows, rows_per_sweep):
        last = min(first + rows_per_sweep, rows)
        flat[first * dim : last * dim] = 0
        for row in range(first, last):
            for k in range(offsets[row], offsets[row + 1]):
                flat[np.uint64(row * dim + indices[k])] += flat.dtype.type(values[k])


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


def densify_rows(offsets: Array, indices: Array, values: Array | None, out: Array) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros."""
    rows_per_sweep = len(out)
    if out.nbytes < STREAM_NBYTES:
        rows_per_sweep = max(1, SWEEP_NBYTES // max(1, out[:1].nbytes))
    if values is None:
        one = word_of(1, out.dtype)
        _set_rows(offsets, indices, one, rows_per_sweep, as_words(out, *out.shape))
    elif np.float16 in (values.dtype, out.dtype):
        reference.densify_rows(offsets, indices, values, out)
    else:
        _add_rows(offsets, indices, values, rows_per_sweep, out)


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
