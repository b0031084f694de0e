"""CSR rows made dense on the device: each block clears what it then fills.

A tile is consecutive cells of the dense rows, many short rows or a part of a long one, small enough
to be in the cache still when it is filled. So what a block writes starts at an aligned address and
is as much as what every other block writes, however long rows are.

Four kernels of one shape. What differs is how an entry is written: as a one, as a value that is
alone in its place, by an atomic sum, or by the one thread that owns its cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels import cuda_launch
from gpufeed.kernels.cuda_launch import (
    Array,
    as_numba_stream,
    callable_from_kernels,
    compiled,
)
from gpufeed.kernels.cuda_runs import LOADS, divided, fill_words, run_of
from gpufeed.kernels.words import arithmetic_dtype, as_words, word_of

__all__ = ["densify_rows", "row_of", "tile_size"]

# What the hardware adds atomically; other dtypes are added by one owner a cell.
ATOMIC_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int32", "int64"))
# Those that are under way at once fit the cache of a device twice.
LARGEST_TILE_NBYTES = 32_768


def tile_size(size: int, num_blocks: int, largest: int) -> int:
    """Return how many of ``size`` cells a tile has: a block's share, or ``largest`` if less."""
    run = cuda_launch.WARP * LOADS
    share = (size + num_blocks - 1) // num_blocks
    return (min(share, largest) + run - 1) // run * run


@callable_from_kernels
def row_of(offsets: Array, start: int, k: int, first: int, last: int) -> int:
    """Return which of the rows ``first:last`` has entry ``k``; offsets begin at ``start``."""
    while last - first > 1:
        middle = (first + last) >> 1
        if offsets[np.uint64(start + middle)] <= k:
            first = middle
        else:
            last = middle
    return first


@callable_from_kernels
def _cell_of(offsets: Array, indices: Array, k: int, first: int, last: int, dim: int) -> Any:
    """Return the cell of entry ``k``, or -1 if it is outside its row."""
    j = indices[np.uint64(k)]
    if j < 0 or j >= dim:
        return -1
    return row_of(offsets, 0, k, first, last) * dim + j


@callable_from_kernels
def _note(fault: Array, k: int, cell: int) -> None:
    """Remember entry ``k`` if it is outside its row."""
    if cell < 0 and fault.size:
        cuda.atomic.max(fault, 0, k + 1)


@callable_from_kernels
def _clear(
    offsets: Array,
    indices: Array,
    begin: int,
    end: int,
    first: int,
    last: int,
    dim: int,
    out: Array,
) -> None:
    """Zero the cells ``begin:end``, or only the old entries in it where these are known."""
    x, across = cuda.threadIdx.x, cuda.blockDim.x
    if offsets.size == 0:
        fill_words(out, begin, end - begin, 0, run_of(x), across * LOADS)
    else:
        k, stop = offsets[first] + x, offsets[last]
        while k < stop:
            cell = _cell_of(offsets, indices, k, first, last, dim)
            if begin <= cell < end:
                out[np.uint64(cell)] = 0
            k += across
    # Every block clears what it fills itself, so a barrier within the block is enough.
    cuda.syncthreads()


@compiled
def _set_rows(
    offsets: Array,
    indices: Array,
    one: Any,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    dim: int,
    tile: int,
    out: Array,
) -> None:
    begin = cuda.blockIdx.x * tile
    while begin < out.size:
        end = min(begin + tile, out.size)
        first, last = divided(begin, dim), divided(end + dim - 1, dim)
        _clear(old_offsets, old_indices, begin, end, first, last, dim, out)
        k, stop = offsets[first] + cuda.threadIdx.x, offsets[last]
        while k < stop:
            cell = _cell_of(offsets, indices, k, first, last, dim)
            if begin <= cell < end:
                out[np.uint64(cell)] = one
            _note(fault, k, cell)
            k += cuda.blockDim.x
        begin += cuda.gridDim.x * tile


@compiled
def _put_rows(
    offsets: Array,
    indices: Array,
    values: Array,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    dim: int,
    tile: int,
    out: Array,
) -> None:
    """Set values of which no two have the same place."""
    begin = cuda.blockIdx.x * tile
    while begin < out.size:
        end = min(begin + tile, out.size)
        first, last = divided(begin, dim), divided(end + dim - 1, dim)
        _clear(old_offsets, old_indices, begin, end, first, last, dim, out)
        k, stop = offsets[first] + cuda.threadIdx.x, offsets[last]
        while k < stop:
            cell = _cell_of(offsets, indices, k, first, last, dim)
            if begin <= cell < end:
                out[np.uint64(cell)] = out.dtype.type(values[np.uint64(k)])
            _note(fault, k, cell)
            k += cuda.blockDim.x
        begin += cuda.gridDim.x * tile


@compiled
def _add_rows(
    offsets: Array,
    indices: Array,
    values: Array,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    dim: int,
    tile: int,
    out: Array,
) -> None:
    begin = cuda.blockIdx.x * tile
    while begin < out.size:
        end = min(begin + tile, out.size)
        first, last = divided(begin, dim), divided(end + dim - 1, dim)
        _clear(old_offsets, old_indices, begin, end, first, last, dim, out)
        k, stop = offsets[first] + cuda.threadIdx.x, offsets[last]
        while k < stop:
            cell = _cell_of(offsets, indices, k, first, last, dim)
            if begin <= cell < end:
                cuda.atomic.add(out, np.uint64(cell), out.dtype.type(values[np.uint64(k)]))
            _note(fault, k, cell)
            k += cuda.blockDim.x
        begin += cuda.gridDim.x * tile


@compiled
def _add_rows_by_owner(
    offsets: Array,
    indices: Array,
    values: Array,
    zero: Any,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    dim: int,
    tile: int,
    out: Array,
) -> None:
    """Add without atomics: each thread reads all entries, and adds those in the cells it owns."""
    x, across = cuda.threadIdx.x, cuda.blockDim.x
    cast = out.dtype.type
    begin = cuda.blockIdx.x * tile
    while begin < out.size:
        end = min(begin + tile, out.size)
        first, last = divided(begin, dim), divided(end + dim - 1, dim)
        _clear(old_offsets, old_indices, begin, end, first, last, dim, out)
        k, stop = np.int64(offsets[first]), offsets[last]
        while k < stop:
            cell = _cell_of(offsets, indices, k, first, last, dim)
            # The number of threads is a power of two.
            if begin <= cell < end and (cell - begin) & (across - 1) == x:
                at = np.uint64(cell)
                out[at] = cast(out[at] + (zero + cast(values[np.uint64(k)])))
            if x == 0:
                _note(fault, k, cell)
            k += 1
        begin += cuda.gridDim.x * tile


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
    size, dim = out.size, out.shape[1]
    is_owned = values is not None and not assume_unique and out.dtype not in ATOMIC_DTYPES
    # Every thread of a block reads the entries of all rows of an owned tile: hence of few rows.
    largest = min(LARGEST_TILE_NBYTES // out.dtype.itemsize, dim if is_owned else size)
    tile = tile_size(size, cuda_launch.MIN_BLOCKS, largest)
    # Blocks without a tile end at once; of launches of fewer than 128 numba warns.
    num_blocks = max(cuda_launch.MIN_BLOCKS, min(-(-size // tile), cuda_launch.MAX_BLOCKS))
    launch = (num_blocks, cuda_launch.THREADS_PER_BLOCK, as_numba_stream(stream))
    # An empty array stands for none, which has no type that a kernel takes.
    # No old offsets say that nothing is known; numba cannot cut indices that are empty themselves.
    old_offsets, old_indices = previous or (offsets[:0], indices)
    rest = (old_offsets, old_indices, offsets[:0] if fault is None else fault, dim, tile)
    flat = out.reshape(size)
    if values is None:
        _set_rows[launch](offsets, indices, word_of(1, out.dtype), *rest, as_words(out, size))
    elif assume_unique:
        _put_rows[launch](offsets, indices, values, *rest, flat)
    elif is_owned:
        zero = arithmetic_dtype(out.dtype).type(0)
        _add_rows_by_owner[launch](offsets, indices, values, zero, *rest, flat)
    else:
        _add_rows[launch](offsets, indices, values, *rest, flat)
