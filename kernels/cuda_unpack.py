"""All the jobs of a batch in one launch on the device (`gpufeed.kernels.jobs` has the table).

Every block looks at every job, and does its share of it: jobs are few, and a block without a share
goes on at once. Which dtype a job has is a question that all threads answer alike, so that asking
it for each element costs little beside the memory that is waited for.

The slab is seen as eight arrays, one a dtype; a job's byte is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels.cuda_launch import (
    Array,
    callable_from_kernels,
    compiled,
    flat_launch,
    prepared,
)
from gpufeed.kernels.jobs import (
    BOOL,
    CONVERT,
    DENSIFY,
    DIM,
    FAULT_BATCH,
    FAULT_DIM,
    FAULT_FIELD,
    FAULT_INDEX,
    FAULT_ROW,
    FIELD,
    FIRST,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INDEX_TYPE,
    INDICES,
    INT8,
    INT16,
    INT32,
    INT64,
    IS_NOTED,
    KIND,
    NONE,
    NUM_CHANNELS,
    NUM_INNER,
    NUM_JOBS,
    NUM_LATE,
    NUM_WORDS,
    NUMBER,
    OFFSETS,
    OLD_INDICES,
    OLD_OFFSETS,
    OLD_TYPE,
    OUT,
    OUT_TYPE,
    SCALE,
    SHIFT,
    SIZE,
    SOURCE,
    SOURCE_TYPE,
    UNPACK_BITS,
)

__all__ = ["prepare_unpack", "unpack_fields"]

Memory = tuple[Array, ...]
# Where in `Memory` each dtype is.
U8, I8, I16, I32, I64, F16, F32, F64 = range(8)


@callable_from_kernels
def _whole(memory: Memory, code: int, start: int, i: int) -> Any:
    """Return element ``i`` of an array of whole numbers or truth values."""
    if code == INT32:
        return np.int64(memory[I32][(start >> 2) + i])
    if code == INT64:
        return np.int64(memory[I64][(start >> 3) + i])
    if code == INT16:
        return np.int64(memory[I16][(start >> 1) + i])
    if code == INT8:
        return np.int64(memory[I8][start + i])
    return np.int64(memory[U8][start + i])


@callable_from_kernels
def _real(memory: Memory, code: int, start: int, i: int) -> Any:
    """Return element ``i`` of an array of floating-point numbers."""
    if code == FLOAT32:
        return np.float64(memory[F32][(start >> 2) + i])
    if code == FLOAT16:
        return np.float64(np.float32(memory[F16][(start >> 1) + i]))
    return np.float64(memory[F64][(start >> 3) + i])


@callable_from_kernels
def _set_whole(memory: Memory, code: int, start: int, i: int, value: Any) -> None:
    if code == INT64:
        memory[I64][(start >> 3) + i] = value
    elif code == INT32:
        memory[I32][(start >> 2) + i] = np.int32(value)
    elif code == INT16:
        memory[I16][(start >> 1) + i] = np.int16(value)
    elif code == INT8:
        memory[I8][start + i] = np.int8(value)
    else:
        memory[U8][start + i] = np.uint8(value)


@callable_from_kernels
def _set_real(memory: Memory, code: int, start: int, i: int, value: Any) -> None:
    if code == FLOAT32:
        memory[F32][(start >> 2) + i] = np.float32(value)
    elif code == FLOAT16:
        memory[F16][(start >> 1) + i] = np.float16(value)
    else:
        memory[F64][(start >> 3) + i] = value


@callable_from_kernels
def _is_real(code: int) -> bool:
    return code in (FLOAT32, FLOAT16, FLOAT64)


@callable_from_kernels
def _double(memory: Memory, code: int, start: int, i: int) -> Any:
    """Return element ``i`` as float64."""
    if _is_real(code):
        return _real(memory, code, start, i)
    return np.float64(_whole(memory, code, start, i))


@callable_from_kernels
def _single(memory: Memory, code: int, start: int, i: int) -> Any:
    """Return element ``i`` as float32, rounded once."""
    if _is_real(code):
        return np.float32(_real(memory, code, start, i))
    return np.float32(_whole(memory, code, start, i))


@callable_from_kernels
def _half(memory: Memory, code: int, start: int, i: int) -> Any:
    """Return element ``i`` as float16, rounded once; whole numbers in its range fit float32."""
    if code == FLOAT64:
        return np.float16(memory[F64][(start >> 3) + i])
    return np.float16(_single(memory, code, start, i))


@callable_from_kernels
def _convert(memory: Memory, job: int, first: int, step: int) -> None:
    table = memory[I64]
    source, code = table[job + SOURCE], table[job + SOURCE_TYPE]
    out, out_type = table[job + OUT], table[job + OUT_TYPE]
    scale, shift = table[job + SCALE], table[job + SHIFT]
    num_channels, num_inner = table[job + NUM_CHANNELS], table[job + NUM_INNER]
    for i in range(first, table[job + SIZE], step):
        c = 0
        if num_channels > 1:
            c = i // num_inner % num_channels
        if not _is_real(out_type):
            _set_whole(memory, out_type, out, i, _whole(memory, code, source, i))
        elif out_type == FLOAT64:
            double = _double(memory, code, source, i)
            if scale != NONE:
                double = double * memory[F64][(scale >> 3) + c] + memory[F64][(shift >> 3) + c]
            memory[F64][(out >> 3) + i] = double
        elif out_type == FLOAT32:
            single = _single(memory, code, source, i)
            if scale != NONE:
                single = single * memory[F32][(scale >> 2) + c] + memory[F32][(shift >> 2) + c]
            memory[F32][(out >> 2) + i] = single
        else:
            half = _half(memory, code, source, i)
            if scale != NONE:
                # Factor and term are rounded to float16 too, but calculated with in float32.
                factor = np.float32(np.float16(memory[F32][(scale >> 2) + c]))
                term = np.float32(np.float16(memory[F32][(shift >> 2) + c]))
                half = np.float16(np.float32(half) * factor)
                half = np.float16(np.float32(half) + term)
            memory[F16][(out >> 1) + i] = half


@callable_from_kernels
def _unpack_bits(memory: Memory, job: int, first: int, step: int) -> None:
    table = memory[I64]
    source, out = table[job + SOURCE], table[job + OUT]
    for i in range(first, table[job + SIZE], step):
        memory[U8][out + i] = (memory[U8][source + (i >> 3)] >> (i & 7)) & 1


@callable_from_kernels
def _note(memory: Memory, fault: Array, job: int, row: int, index: int) -> None:
    """Remember an index outside its row, unless one of this batch or an earlier one is."""
    table = memory[I64]
    # One thread of all gets through. What a launch before this one has written, it sees.
    if cuda.atomic.cas(table, IS_NOTED, 0, 1) == 0 and fault[FAULT_BATCH] <= table[FIRST]:
        fault[FAULT_BATCH] = 1 + table[NUMBER]
        fault[FAULT_FIELD] = table[job + FIELD]
        fault[FAULT_ROW] = row
        fault[FAULT_INDEX] = index
        fault[FAULT_DIM] = table[job + DIM]


@callable_from_kernels
def _check(memory: Memory, fault: Array, job: int, first: int, step: int) -> None:
    table = memory[I64]
    offsets, indices, code = table[job + OFFSETS], table[job + INDICES], table[job + INDEX_TYPE]
    for row in range(first, table[job + SIZE], step):
        for k in range(_whole(memory, code, offsets, row), _whole(memory, code, offsets, row + 1)):
            j = _whole(memory, code, indices, k)
            if j < 0 or j >= table[job + DIM]:
                _note(memory, fault, job, row, j)


@callable_from_kernels
def _zero(memory: Memory, shift: int, begin: int, end: int, x: int, across: int) -> None:
    """Zero elements ``begin:end`` of the slab seen as words of ``1 << shift`` bytes."""
    for i in range(begin + x, end, across):
        if shift == 3:
            memory[I64][i] = 0
        elif shift == 2:
            memory[I32][i] = 0
        elif shift == 1:
            memory[I16][i] = 0
        else:
            memory[U8][i] = 0


@callable_from_kernels
def _set_one(memory: Memory, code: int, start: int, i: int) -> None:
    if _is_real(code):
        _set_real(memory, code, start, i, np.float64(1))
    else:
        _set_whole(memory, code, start, i, np.int64(1))


@callable_from_kernels
def _shift_of(code: int) -> int:
    """Return the binary logarithm of the size of a dtype."""
    if code in (FLOAT64, INT64):
        return 3
    if code in (FLOAT32, INT32):
        return 2
    if code in (FLOAT16, INT16):
        return 1
    return 0


@callable_from_kernels
def _is_atomic(code: int) -> bool:
    """Return whether the hardware adds this dtype atomically; others are added by one thread."""
    return code in (FLOAT32, FLOAT64, INT32, INT64)


@callable_from_kernels
def _add_atomically(memory: Memory, code: int, start: int, i: int, source: int, k: int) -> None:
    if code == FLOAT32:
        cuda.atomic.add(memory[F32], (start >> 2) + i, memory[F32][(source >> 2) + k])
    elif code == FLOAT64:
        cuda.atomic.add(memory[F64], (start >> 3) + i, memory[F64][(source >> 3) + k])
    elif code == INT32:
        cuda.atomic.add(memory[I32], (start >> 2) + i, memory[I32][(source >> 2) + k])
    else:
        cuda.atomic.add(memory[I64], (start >> 3) + i, memory[I64][(source >> 3) + k])


@callable_from_kernels
def _add(memory: Memory, code: int, start: int, i: int, source: int, k: int) -> None:
    """Add where no other thread does."""
    if code == FLOAT16:
        held, value = memory[F16][(start >> 1) + i], memory[F16][(source >> 1) + k]
        memory[F16][(start >> 1) + i] = np.float16(np.float32(held) + np.float32(value))
    elif code == BOOL:
        memory[U8][start + i] |= memory[U8][source + k]
    else:
        held, value = _whole(memory, code, start, i), _whole(memory, code, source, k)
        _set_whole(memory, code, start, i, held + value)


@callable_from_kernels
def _clear(memory: Memory, job: int, row: int, low: int, high: int, x: int, across: int) -> None:
    """Zero a row's columns ``low:high``, or only the old entries in it where these are known."""
    table = memory[I64]
    dim, out, code = table[job + DIM], table[job + OUT], table[job + OUT_TYPE]
    shift = _shift_of(code)
    start = row * dim
    old_offsets = table[job + OLD_OFFSETS]
    if old_offsets == NONE:
        if (dim << shift) & 7 == 0:  # then tiles are whole words of the largest size
            begin = (out >> 3) + ((start + low) << shift >> 3)
            _zero(memory, 3, begin, begin + ((high - low) << shift >> 3), x, across)
        else:
            begin = (out >> shift) + start + low
            _zero(memory, shift, begin, begin + high - low, x, across)
        return
    old_indices, old_type = table[job + OLD_INDICES], table[job + OLD_TYPE]
    end = _whole(memory, old_type, old_offsets, row + 1)
    for k in range(_whole(memory, old_type, old_offsets, row) + x, end, across):
        j = _whole(memory, old_type, old_indices, k)
        if low <= j < high:
            at = (out >> shift) + start + j
            _zero(memory, shift, at, at + 1, 0, 1)


@callable_from_kernels
def _fill(
    memory: Memory, fault: Array, job: int, row: int, low: int, high: int, x: int, across: int
) -> None:
    """Write a row's entries with columns in ``low:high``; of all blocks of a row one notes."""
    table = memory[I64]
    dim, out, code = table[job + DIM], table[job + OUT], table[job + OUT_TYPE]
    offsets, indices, index_type = (
        table[job + OFFSETS],
        table[job + INDICES],
        table[job + INDEX_TYPE],
    )
    source = table[job + SOURCE]
    begin = _whole(memory, index_type, offsets, row)
    end = _whole(memory, index_type, offsets, row + 1)
    is_owned = source != NONE and not _is_atomic(code)
    # What is added by owners is read by all threads of a row, each of which adds to its columns.
    first, step = (begin, 1) if is_owned else (begin + x, across)
    for k in range(first, end, step):
        j = _whole(memory, index_type, indices, k)
        if low <= j < high:
            if source == NONE:
                _set_one(memory, code, out, row * dim + j)
            elif not is_owned:
                _add_atomically(memory, code, out, row * dim + j, source, k)
            elif (j - low) % across == x:
                _add(memory, code, out, row * dim + j, source, k)
        elif low == 0 and (j < 0 or j >= dim):
            _note(memory, fault, job, row, j)


@callable_from_kernels
def _densify(memory: Memory, fault: Array, job: int) -> None:
    """Make dense rows, tile by tile: each block clears what it then fills.

    A tile is some columns of as many rows as the block has threads for, with consecutive threads on
    consecutive columns, so that writes coalesce however the rows are cut. Long rows are cut into so
    many tiles that every block has one.
    """
    table = memory[I64]
    rows, dim = table[job + SIZE], table[job + DIM]
    if rows == 0:
        return
    across = min(32, cuda.blockDim.x)
    while across < min(dim, cuda.blockDim.x):
        across *= 2
    down = cuda.blockDim.x // across
    x, y = cuda.threadIdx.x % across, cuda.threadIdx.x // across
    num_down = (rows + down - 1) // down
    num_across = min((cuda.gridDim.x + num_down - 1) // num_down, (dim + across - 1) // across)
    # Whole multiples of the threads, so that rows are cut at aligned addresses.
    columns = (dim + num_across * across - 1) // (num_across * across) * across
    for tile in range(cuda.blockIdx.x, num_down * num_across, cuda.gridDim.x):
        row = tile // num_across * down + y
        low = tile % num_across * columns
        high = min(low + columns, dim)
        if row < rows:
            _clear(memory, job, row, low, high, x, across)
        cuda.syncthreads()
        if row < rows:
            _fill(memory, fault, job, row, low, high, x, across)


@compiled
def _unpack(slab: Array, does_late: int, fault: Array) -> None:
    table = slab.view(np.int64)
    memory = (
        slab,
        slab.view(np.int8),
        slab.view(np.int16),
        slab.view(np.int32),
        table,
        slab.view(np.float16),
        slab.view(np.float32),
        slab.view(np.float64),
    )
    num_jobs, num_early = table[NUM_JOBS], table[NUM_JOBS] - table[NUM_LATE]
    begin, end = (num_early, num_jobs) if does_late else (0, num_early)
    first, step = cuda.grid(1), cuda.gridsize(1)
    for number in range(begin, end):
        job = (1 + number) * NUM_WORDS
        kind = table[job + KIND]
        if kind == CONVERT:
            _convert(memory, job, first, step)
        elif kind == UNPACK_BITS:
            _unpack_bits(memory, job, first, step)
        elif kind == DENSIFY:
            _densify(memory, fault, job)
        else:
            _check(memory, fault, job, first, step)


def unpack_fields(
    slab: Array, fault: Array, *, has_late: bool = False, stream: Any | None = None
) -> None:
    """Do what the table at the start of ``slab`` says, and note an index outside its row."""
    for does_late in (0, 1)[: 1 + has_late]:
        _unpack[flat_launch(stream)](slab, does_late, fault)


def prepare_unpack(slab: Array, fault: Array, stream: Any | None) -> Callable[[bool], None]:
    """Return `unpack_fields` for these arguments, compiled, with numba's part of a launch done."""
    grid, block, _ = flat_launch(None)
    early, late = (prepared(_unpack, (grid, block), stream, slab, flag, fault) for flag in (0, 1))

    def unpack(has_late: bool) -> None:
        early()
        if has_late:
            late()

    return unpack
