"""CSR rows made dense on the host: cleared and filled a few rows at a time.

What is larger than the cache is made in a scratch that is not, and stored past the cache from
there. Where the rows' old entries are known, and are few, only these are cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpufeed.kernels.cpu_launch import Array, compiled, in_parts, inlined
from gpufeed.kernels.half import combined
from gpufeed.kernels.streaming import LINE_NBYTES, prefetch, stream_copy
from gpufeed.kernels.words import as_words

__all__ = ["densify_rows"]

# Rows are zeroed and filled in sweeps of this size, so that the values land in lines still in the
# first cache, and so that the set-up of a memset (some 30 ns) is paid once for many short rows.
SWEEP_NBYTES = 32 << 10

# An output beyond this would not stay in the cache until somebody reads it, as a feeder has a few
# of them in turn. It is made in a scratch, in sweeps of the same size, and stored past the cache
# from there. Only rows longer than this scratch are filled in place.
STREAM_NBYTES = 16 << 20
SCRATCH_NBYTES = 256 << 10

# To clear an old entry, and to fetch lines for new ones, costs as much as to zero so much memory in
# order: a tie at 4 and at 39 MiB, two thirds of it at 16.
CLEAR_NBYTES = 128

# So many lines are asked for ahead. Half as many come late; those of a row of 500 entries, asked
# for at once, push each other out of the first cache, and take three times as long as unasked.
NUM_ASKED = 32

# Words of these add like the values: whole numbers wrap, and words of 16 bits are halves.
WORDS_ADD_LIKE = tuple(np.dtype(name) for name in ("int8", "uint8", "int32", "int64", "float16"))


@inlined
def _entries(offsets: Any, row: int) -> Any:
    """Return a row's first entry, and the one after its last."""
    return np.intp(offsets[row]), np.intp(offsets[row + 1])


# Below, entries ``begin:end`` are of one row, which begins at ``start`` of ``flat``. Numbers are
# made unsigned where they index, or numba asks of each whether it counts from the end.


@inlined
def _ask_for(flat: Any, start: int, indices: Any, begin: int, end: int) -> None:
    """Have lines fetched that `_write` or `_clear` will write to: those of the first entries."""
    itemsize = np.uint64(flat.itemsize)
    address = np.uint64(flat.ctypes.data) + np.uint64(start) * itemsize
    for k in range(begin, min(begin + NUM_ASKED, end)):
        prefetch(address + np.uint64(indices[np.uint64(k)]) * itemsize)


@inlined
def _clear(flat: Any, start: int, dim: int, indices: Any, begin: int, end: int) -> None:
    """Set to 0 what `_write` wrote."""
    for k in range(begin, end):
        j = np.uint64(indices[np.uint64(k)])
        if j < np.uint64(dim):
            flat[np.uint64(start) + j] = 0


@inlined
def _scatter(
    flat: Any, start: int, dim: int, indices: Any, begin: int, end: int, values: Any, adds: bool
) -> Any:
    outside = -1
    step = 1 if values.size > 1 else 0  # one value may stand for all
    for k in range(begin, end):
        j = np.uint64(indices[np.uint64(k)])  # one comparison tells both ends
        place = np.uint64(start) + j
        if j >= np.uint64(dim):
            outside = k
        elif adds:
            flat[place] = combined(flat[place], values[np.uint64(k)])
        else:
            flat[place] = values[np.uint64(k * step)]
    return outside


@inlined
def _write(
    flat: Any, start: int, dim: int, indices: Any, begin: int, end: int, values: Any, adds: bool
) -> Any:
    """Write entries, and return the last one that is outside its row, or -1.

    Each way to write is compiled apart, so that no entry is asked for it.
    """
    if adds:
        return _scatter(flat, start, dim, indices, begin, end, values, True)
    return _scatter(flat, start, dim, indices, begin, end, values, False)


@inlined
def _fill(
    offsets: Any, indices: Any, values: Any, adds: bool, first: int, last: int, dim: int, flat: Any
) -> Any:
    """Write rows ``first:last`` into ``flat``, which begins with ``first``.

    Returns the last entry that is outside its row, or -1.
    """
    outside = -1
    for row in range(first, last):
        begin, end = _entries(offsets, row)
        bad = _write(flat, (row - first) * dim, dim, indices, begin, end, values, adds)
        outside = max(outside, bad)
    return outside


@inlined
def _densify_in_cache(
    offsets: Any, indices: Any, values: Any, adds: bool, step: int, out: Any
) -> Any:
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
) -> Any:
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
                _clear(scratch, (row - first) * dim, dim, indices, *_entries(offsets, row))
        else:  # one row, longer than the scratch
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
    """Clear and fill row by row, as the new entries are near the old ones.

    Of each row the first lines are asked for while the row before is written, the others while the
    ones before them are.
    """
    rows, dim = out.shape
    flat = out.reshape(rows * dim)
    outside = -1
    for row in range(rows):
        start = row * dim
        if row + 1 < rows:
            _ask_for(flat, start + dim, old_indices, *_entries(old_offsets, row + 1))
            _ask_for(flat, start + dim, indices, *_entries(offsets, row + 1))
        begin, end = _entries(old_offsets, row)
        for k in range(begin, end, NUM_ASKED):
            stop = min(k + NUM_ASKED, end)
            _ask_for(flat, start, old_indices, stop, end)
            _clear(flat, start, dim, old_indices, k, stop)
        begin, end = _entries(offsets, row)
        for k in range(begin, end, NUM_ASKED):
            stop = min(k + NUM_ASKED, end)
            _ask_for(flat, start, indices, stop, end)
            bad = _write(flat, start, dim, indices, k, stop, values, adds)
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
    if previous is not None and previous[1].size * CLEAR_NBYTES < out.nbytes:
        cuts, indices, *old = _alike(offsets, indices, *previous)
        outside = _make_again(cuts, (indices, given, adds), old, out)
    else:
        cuts, indices = _alike(offsets, indices)
        outside = _make_all(cuts, (indices, given, adds), out)
    if fault is not None and outside >= 0:
        fault[0] = max(fault[0], outside + 1)


def _alike(*csr: Array) -> list[Array]:
    """Return offsets and indices, in turn, in one dtype that can hold them: one kernel for each."""
    dtype = np.result_type(*csr[1::2])
    if max(int(offsets[-1]) for offsets in csr[::2]) > np.iinfo(dtype).max:
        dtype = np.dtype(np.int64)
    return [each.astype(dtype, copy=False) for each in csr]


def _make_all(cuts: Array, entries: tuple[Array, Array, bool], out: Array) -> int:
    is_streamed = out.nbytes >= STREAM_NBYTES and out.flags.aligned
    scratch_nbytes = SCRATCH_NBYTES if is_streamed else 0
    step = max(1, SWEEP_NBYTES // max(1, out.shape[1] * out.itemsize))

    def make(first: int, last: int) -> int:
        scratch = np.zeros(scratch_nbytes // out.itemsize, out.dtype)
        return int(_densify(cuts[first : last + 1], *entries, step, scratch, out[first:last]))

    return max(in_parts(make, len(out), out.nbytes))


def _make_again(
    cuts: Array, entries: tuple[Array, Array, bool], previous: Sequence[Array], out: Array
) -> int:
    indices = entries[0]
    old_cuts, old_indices = previous

    def make(first: int, last: int) -> int:
        old = old_cuts[first : last + 1], old_indices
        return int(_densify_again(cuts[first : last + 1], *entries, *old, out[first:last]))

    return max(in_parts(make, len(out), LINE_NBYTES * (indices.size + old_indices.size)))
