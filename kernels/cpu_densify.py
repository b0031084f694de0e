"""CSR rows made dense on the host: cleared and filled a few rows at a time.

What is larger than the cache is made in a scratch that is not, and stored past the cache from
there. Where the rows' old entries are known, and are few, only these are cleared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpufeed.kernels.cpu_launch import Array, compiled, in_parts, inlined
from gpufeed.kernels.half import combined
from gpufeed.kernels.streaming import prefetch, stream_copy
from gpufeed.kernels.words import as_words

__all__ = ["densify_rows"]

# Rows are zeroed and filled in sweeps of this size, so that the values land in lines still in the
# first cache, and so that the set-up of a memset (some 30 ns) is paid once for many short rows.
SWEEP_NBYTES = 32 << 10

# An output beyond this would not stay in the cache until somebody reads it, as a feeder has a few
# of them in turn. It is made in a scratch of this size, and stored past the cache from there.
STREAM_NBYTES = 16 << 20
SCRATCH_NBYTES = 256 << 10

# To clear an old entry costs as much as to zero so much memory in order.
CLEAR_NBYTES = 64

# Words of these add like the values: whole numbers wrap, and words of 16 bits are halves.
WORDS_ADD_LIKE = tuple(np.dtype(name) for name in ("int8", "uint8", "int32", "int64", "float16"))


@inlined
def _scatter(
    offsets: Any,
    indices: Any,
    values: Any,
    adds: bool,
    first: int,
    last: int,
    dim: int,
    flat: Any,
) -> int:
    """Write the entries of rows ``first:last`` into ``flat``, which begins with ``first``.

    Returns the last entry that is outside its row, or -1.
    """
    outside = -1
    step = 1 if values.size > 1 else 0  # one value may stand for all
    for row in range(first, last):
        start = np.uint64((row - first) * dim)
        for k in range(offsets[row], offsets[row + 1]):
            # Unsigned, so that one comparison tells both ends, and numba does not ask of each
            # index whether it counts from the end.
            j = np.uint64(indices[k])
            if j >= np.uint64(dim):
                outside = k
            elif adds:
                flat[start + j] = combined(flat[start + j], values[k])
            else:
                flat[start + j] = values[k * step]
    return outside


@inlined
def _fill(
    offsets: Any, indices: Any, values: Any, adds: bool, first: int, last: int, dim: int, flat: Any
) -> Any:
    """Do as `_scatter` does, which is compiled for each way apart and asks no entry for it."""
    if adds:
        return _scatter(offsets, indices, values, True, first, last, dim, flat)
    return _scatter(offsets, indices, values, False, first, last, dim, flat)


@inlined
def _clear(offsets: Any, indices: Any, row: int, dim: int, flat: Any, start: int) -> None:
    """Set to 0 what `_scatter` wrote."""
    for k in range(offsets[row], offsets[row + 1]):
        j = np.uint64(indices[k])
        if j < np.uint64(dim):
            flat[np.uint64(start) + j] = 0


@inlined
def _ask_for(offsets: Any, indices: Any, row: int, dim: int, flat: Any) -> None:
    """Have the lines fetched that a row's entries are in."""
    address = np.uint64(flat.ctypes.data + row * dim * flat.itemsize)
    for k in range(offsets[row], offsets[row + 1]):
        prefetch(address + np.uint64(indices[k]) * np.uint64(flat.itemsize))


@inlined
def _densify_in_cache(
    offsets: Any, indices: Any, values: Any, adds: bool, step: int, out: Any
) -> int:
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    outside = -1
    for first in range(0, rows, step):
        last = min(first + step, rows)
        sweep = flat[first * dim : last * dim]
        for i in range(sweep.size):  # compiled to a memset, sooner than a slice's assignment
            sweep[i] = 0
        bad = _fill(offsets, indices, values, adds, first, last, dim, sweep)
        outside = max(outside, bad)
    return outside


@inlined
def _densify_past_cache(
    offsets: Any, indices: Any, values: Any, adds: bool, step: int, scratch: Any, out: Any
) -> int:
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    outside = -1
    for first in range(0, rows, step):
        last = min(first + step, rows)
        sweep = flat[first * dim : last * dim]
        if sweep.size <= scratch.size:
            bad = _fill(offsets, indices, values, adds, first, last, dim, scratch)
            stream_copy(scratch[: sweep.size], sweep)
            for row in range(first, last):
                _clear(offsets, indices, row, dim, scratch, (row - first) * dim)
        else:  # one row
            for begin in range(0, dim, scratch.size):
                part = sweep[begin : begin + scratch.size]
                stream_copy(scratch[: part.size], part)
            bad = _fill(offsets, indices, values, adds, first, last, dim, sweep)
        outside = max(outside, bad)
    return outside


@compiled
def _densify(
    offsets: Array,
    indices: Array,
    values: Array,
    adds: bool,
    step: int,
    scratch: Array,
    out: Array,
) -> Any:
    """Make ``step`` rows at a time, in a scratch of zeros or, if that is empty, in place.

    Returns the last entry outside its row, or -1.
    """
    if scratch.size:
        return _densify_past_cache(offsets, indices, values, adds, step, scratch, out)
    return _densify_in_cache(offsets, indices, values, adds, step, out)


@compiled
def _densify_again(
    offsets: Array,
    indices: Array,
    values: Array,
    adds: bool,
    old_offsets: Array,
    old_indices: Array,
    out: Array,
) -> int:
    """Clear and fill row by row, as the new entries are near the old ones."""
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    outside = -1
    for row in range(rows):
        if row + 1 < rows:
            _ask_for(old_offsets, old_indices, row + 1, dim, flat)
            _ask_for(offsets, indices, row + 1, dim, flat)
        start = row * dim
        _clear(old_offsets, old_indices, row, dim, flat, start)
        bad = _fill(offsets, indices, values, adds, row, row + 1, dim, flat[start:])
        outside = max(outside, bad)
    return outside


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
    dtype = out.dtype
    adds = values is not None and not assume_unique
    # One kernel for each dtype of out, instead of one for each pair.
    given = np.ones(1, dtype) if values is None else values.astype(dtype, copy=False)
    if not adds or dtype in WORDS_ADD_LIKE:
        given, out = as_words(given, given.size), as_words(out, *out.shape)
    cuts, old_cuts, old_indices = offsets.astype(indices.dtype, copy=False), None, None
    if previous is not None and previous[1].size * CLEAR_NBYTES < out.nbytes:
        old_cuts, old_indices = (old.astype(indices.dtype, copy=False) for old in previous)
    is_streamed = out.nbytes >= STREAM_NBYTES and out.flags.aligned
    sweep_nbytes = SCRATCH_NBYTES if is_streamed else SWEEP_NBYTES
    step = max(1, sweep_nbytes // max(1, out.shape[1] * out.itemsize))

    def make(first: int, last: int) -> Any:
        rows = cuts[first : last + 1], indices, given, adds
        if old_cuts is not None:
            return _densify_again(*rows, old_cuts[first : last + 1], old_indices, out[first:last])
        scratch = np.zeros(sweep_nbytes // out.itemsize if is_streamed else 0, out.dtype)
        return _densify(*rows, step, scratch, out[first:last])

    outside = max(in_parts(make, len(out), out.nbytes))
    if fault is not None and outside >= 0:
        fault[0] = max(fault[0], outside + 1)
