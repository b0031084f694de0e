"""CSR rows made dense on the device: each block clears what it then fills.

Four kernels of one shape. What differs is how an entry is written: as a one, as a value that is
alone in its place, by an atomic sum, or by the one thread that owns its column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels.cuda_launch import Array, as_numba_stream, compiled, grid_and_block, inlined
from gpufeed.kernels.words import arithmetic_dtype, as_words, word_of

__all__ = ["densify_rows"]

# What the hardware adds atomically; other dtypes are added by one owner a column.
ATOMIC_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int32", "int64"))


@inlined
def _clear(
    old_offsets: Array, old_indices: Array, row: int, low: int, high: int, out: Array
) -> None:
    """Zero a row's columns ``low:high``, or only the old entries in it where these are known."""
    across = cuda.blockDim.x
    if old_offsets.size == 0:
        for j in range(low + cuda.threadIdx.x, high, across):
            out[row, j] = 0
    else:
        for k in range(old_offsets[row] + cuda.threadIdx.x, old_offsets[row + 1], across):
            j = old_indices[k]
            if low <= j < high:
                out[row, j] = 0


@inlined
def _note(fault: Array, k: int, is_outside: bool) -> None:
    """Remember entry ``k`` if it is outside its row; of all blocks of a row one does so."""
    if is_outside and fault.size and cuda.blockIdx.y == 0:
        cuda.atomic.max(fault, 0, k + 1)


@compiled
def _set_rows(
    offsets: Array,
    indices: Array,
    one: Any,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    rows, dim = out.shape
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        # Every block clears what it fills itself, so a barrier within the block is enough.
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row] + cuda.threadIdx.x, offsets[row + 1], cuda.blockDim.x):
                j = indices[k]
                if low <= j < high:
                    out[row, j] = one
                _note(fault, k, j < 0 or j >= dim)


@compiled
def _put_rows(
    offsets: Array,
    indices: Array,
    values: Array,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    """Set values of which no two have the same place."""
    rows, dim = out.shape
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row] + cuda.threadIdx.x, offsets[row + 1], cuda.blockDim.x):
                j = indices[k]
                if low <= j < high:
                    out[row, j] = out.dtype.type(values[k])
                _note(fault, k, j < 0 or j >= dim)


@compiled
def _add_rows(
    offsets: Array,
    indices: Array,
    values: Array,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    rows, dim = out.shape
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row] + cuda.threadIdx.x, offsets[row + 1], cuda.blockDim.x):
                j = indices[k]
                if low <= j < high:
                    cuda.atomic.add(out, (row, j), out.dtype.type(values[k]))
                _note(fault, k, j < 0 or j >= dim)


@compiled
def _add_rows_by_owner(
    offsets: Array,
    indices: Array,
    values: Array,
    zero: Any,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    """Add without atomics: each thread reads the whole row and adds what falls on its columns."""
    rows, dim = out.shape
    across = cuda.blockDim.x
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    cast = out.dtype.type
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row], offsets[row + 1]):
                j = indices[k]
                if low <= j < high and (j - low) % across == cuda.threadIdx.x:
                    out[row, j] = cast(out[row, j] + (zero + cast(values[k])))
                _note(fault, k, (j < 0 or j >= dim) and cuda.threadIdx.x == 0)


def densify_rows(
    offsets: Array,
    indices: Array,
    values: Array | None,
    out: Array,
    *,
    assume_unique: bool = False,
    previous: tuple[Array, Array] | None = None,
    fault: Array | None = None,
    stream: Any | None = None,
) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros."""
    if not out.size:
        return
    rows, dim = out.shape
    grid, block = grid_and_block(rows, dim)
    launch = (grid, block, as_numba_stream(stream))
    # Of each block, in whole multiples of its width, so that rows are cut at aligned addresses.
    columns = -(-dim // (grid[1] * block[0])) * block[0]
    # An empty array stands for none, which has no type that a kernel takes.
    old_offsets, old_indices = previous or (offsets[:0], indices[:0])
    rest = (old_offsets, old_indices, offsets[:0] if fault is None else fault, columns)
    if values is None:
        one = word_of(1, out.dtype)
        _set_rows[launch](offsets, indices, one, *rest, as_words(out, rows, dim))
    elif assume_unique:
        _put_rows[launch](offsets, indices, values, *rest, out)
    elif out.dtype in ATOMIC_DTYPES:
        _add_rows[launch](offsets, indices, values, *rest, out)
    else:
        zero = arithmetic_dtype(out.dtype).type(0)
        _add_rows_by_owner[launch](offsets, indices, values, zero, *rest, out)
