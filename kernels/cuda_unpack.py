"""All the jobs of a batch in one launch on the device (`gpufeed.kernels.jobs` has the table).

Every block looks at every job, and does its share of it: jobs are few, and a block without a share
goes on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels.cuda_convert import convert
from gpufeed.kernels.cuda_densify import LARGEST_TILE_NBYTES, row_of, tile_size
from gpufeed.kernels.cuda_launch import (
    Array,
    callable_from_kernels,
    compiled,
    flat_launch,
    inlined,
    prepared,
)
from gpufeed.kernels.cuda_runs import (
    LOADS,
    divided,
    expand_bits,
    fill_words,
    run_of,
)
from gpufeed.kernels.cuda_slab import (
    I32,
    I64,
    U8,
    Memory,
    add_alone,
    add_atomically,
    is_atomic,
    one_of,
    seen_as_all,
    set_word,
    shift_of,
    word,
)
from gpufeed.kernels.jobs import (
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
    INDEX_TYPE,
    INT32,
    IS_NOTED,
    KIND,
    NONE,
    NUM_JOBS,
    NUM_LATE,
    NUM_WORDS,
    NUMBER,
    OFFSETS,
    OLD_OFFSETS,
    OLD_TYPE,
    OUT,
    OUT_TYPE,
    SIZE,
    SOURCE,
    UNPACK_BITS,
)

__all__ = ["prepare_unpack", "unpack_fields"]

_tile_size = callable_from_kernels(tile_size)


@callable_from_kernels
def _note(memory: Memory, fault: Array, job: int, row: int, index: int) -> None:
    """Remember an index outside its row, unless one of this batch or an earlier one is."""
    table = memory[I64]
    # One thread of all gets through. What a launch before this one has written, it sees.
    if cuda.atomic.cas(table, IS_NOTED, 0, 1) == 0 and fault[FAULT_BATCH] <= table[FIRST]:
        fault[FAULT_BATCH] = 1 + table[NUMBER]
        fault[FAULT_FIELD] = word(table, job, FIELD)
        fault[FAULT_ROW] = row
        fault[FAULT_INDEX] = index
        fault[FAULT_DIM] = word(table, job, DIM)


@inlined
def _csr(memory: Memory, job: int, at: int, log_size: int) -> tuple[int, int]:
    """Return where the offsets and the indices begin that words of a job name."""
    table = memory[I64]
    return word(table, job, at) >> log_size, word(table, job, at + 1) >> log_size


@callable_from_kernels
def _check(
    memory: Memory, fault: Array, job: int, thread: int, numbers: Array, log_size: int
) -> None:
    rows, dim = word(memory[I64], job, SIZE), word(memory[I64], job, DIM)
    offsets, indices = _csr(memory, job, OFFSETS, log_size)
    k, stop = numbers[np.uint64(offsets)] + thread, numbers[np.uint64(offsets + rows)]
    while k < stop:
        j = numbers[np.uint64(indices + k)]
        if j < 0 or j >= dim:
            _note(memory, fault, job, row_of(numbers, offsets, k, 0, rows), j)
        k += cuda.gridsize(1)


@callable_from_kernels
def _zero(memory: Memory, job: int, begin: int, end: int) -> None:
    """Zero the cells ``begin:end``."""
    table = memory[I64]
    shift = shift_of(word(table, job, OUT_TYPE))
    start, stop = word(table, job, OUT) + (begin << shift), word(table, job, OUT) + (end << shift)
    # Tiles begin where words of 8 bytes do, as the array does; the last one may end in one.
    x, words = cuda.threadIdx.x, (stop - start) >> 3
    fill_words(memory[I64], start >> 3, words, 0, run_of(x), cuda.blockDim.x * LOADS)
    byte = start + (words << 3) + (x << shift)
    if byte < stop:
        set_word(memory, shift, byte, 0)


@callable_from_kernels
def _clear(
    memory: Memory,
    job: int,
    begin: int,
    end: int,
    numbers: Array,
    log_size: int,
) -> None:
    """Zero those of the cells ``begin:end`` that old entries are in."""
    table = memory[I64]
    dim, out, shift = (
        word(table, job, DIM),
        word(table, job, OUT),
        shift_of(word(table, job, OUT_TYPE)),
    )
    offsets, indices = _csr(memory, job, OLD_OFFSETS, log_size)
    first, last = divided(begin, dim), divided(end + dim - 1, dim)
    k = numbers[np.uint64(offsets + first)] + cuda.threadIdx.x
    stop = numbers[np.uint64(offsets + last)]
    while k < stop:
        cell = row_of(numbers, offsets, k, first, last) * dim + numbers[np.uint64(indices + k)]
        if begin <= cell < end:
            set_word(memory, shift, out + (cell << shift), 0)
        k += cuda.blockDim.x


@callable_from_kernels
def _fill(
    memory: Memory,
    fault: Array,
    job: int,
    begin: int,
    end: int,
    numbers: Array,
    log_size: int,
) -> None:
    """Write the entries whose cells are in ``begin:end``."""
    table = memory[I64]
    dim, out_type = word(table, job, DIM), word(table, job, OUT_TYPE)
    shift, one = shift_of(out_type), one_of(out_type)
    source, out, is_binary = (
        word(table, job, SOURCE),
        word(table, job, OUT),
        word(table, job, SOURCE) == NONE,
    )
    offsets, indices = _csr(memory, job, OFFSETS, log_size)
    first, last = divided(begin, dim), divided(end + dim - 1, dim)
    x, across = cuda.threadIdx.x, cuda.blockDim.x
    is_owned = not is_binary and not is_atomic(out_type)
    # What is added by owners is read by all threads, each of which adds to its cells.
    k = numbers[np.uint64(offsets + first)] + (0 if is_owned else x)
    stop = numbers[np.uint64(offsets + last)]
    while k < stop:
        j = numbers[np.uint64(indices + k)]
        row = row_of(numbers, offsets, k, first, last)
        cell = row * dim + j
        if j < 0 or j >= dim:
            _note(memory, fault, job, row, j)
        elif begin <= cell < end:
            byte = out + (cell << shift)
            if is_binary:
                set_word(memory, shift, byte, one)
            elif not is_owned:
                add_atomically(memory, out_type, byte, source + (k << shift))
            elif (cell - begin) & (across - 1) == x:
                add_alone(memory, out_type, byte, source + (k << shift))
        k += 1 if is_owned else across


@callable_from_kernels
def _densify(memory: Memory, fault: Array, job: int, block: int) -> None:
    """Make dense rows, tile by tile, as `gpufeed.kernels.cuda_densify` does."""
    table = memory[I64]
    dim, out_type, code = (
        word(table, job, DIM),
        word(table, job, OUT_TYPE),
        word(table, job, INDEX_TYPE),
    )
    old_type, is_fresh = word(table, job, OLD_TYPE), word(table, job, OLD_OFFSETS) == NONE
    size = word(table, job, SIZE) * dim
    largest = LARGEST_TILE_NBYTES >> shift_of(out_type)
    if word(table, job, SOURCE) != NONE and not is_atomic(out_type):
        largest = min(largest, dim)
    tile = _tile_size(size, cuda.gridDim.x, largest)
    begin = block * tile
    while begin < size:
        end = min(begin + tile, size)
        if is_fresh:
            _zero(memory, job, begin, end)
        elif old_type == INT32:
            _clear(memory, job, begin, end, memory[I32], 2)
        else:
            _clear(memory, job, begin, end, memory[I64], 3)
        # Every block clears what it fills itself, so a barrier within the block is enough.
        cuda.syncthreads()
        if code == INT32:
            _fill(memory, fault, job, begin, end, memory[I32], 2)
        else:
            _fill(memory, fault, job, begin, end, memory[I64], 3)
        begin += cuda.gridDim.x * tile


@compiled
def _unpack(slab: Array, does_late: int, fault: Array) -> None:
    memory = seen_as_all(slab)
    table = memory[I64]
    num_jobs, num_early = table[NUM_JOBS], table[NUM_JOBS] - table[NUM_LATE]
    begin, end = (num_early, num_jobs) if does_late else (0, num_early)
    number = begin
    while number < end:
        # Jobs too small for all blocks are for others each, which do them at the same time.
        block = cuda.blockIdx.x + (number - begin) * (cuda.gridDim.x // (end - begin))
        if block >= cuda.gridDim.x:
            block -= cuda.gridDim.x
        thread = block * cuda.blockDim.x + cuda.threadIdx.x
        first, step = run_of(thread), cuda.gridsize(1) * LOADS
        job = (1 + number) * NUM_WORDS
        kind = word(table, job, KIND)
        if kind == CONVERT:
            convert(memory, job, first, step)
        elif kind == UNPACK_BITS:
            source, out, size = (
                word(table, job, SOURCE),
                word(table, job, OUT),
                word(table, job, SIZE),
            )
            expand_bits(memory[U8], source, memory[U8], out, size, first, step)
        elif kind == DENSIFY:
            _densify(memory, fault, job, block)
        elif word(table, job, INDEX_TYPE) == INT32:
            _check(memory, fault, job, thread, memory[I32], 2)
        else:
            _check(memory, fault, job, thread, memory[I64], 3)
        number += 1


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
