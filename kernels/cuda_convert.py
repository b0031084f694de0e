"""The conversions of a batch on the device: cast, scale, shift; floats do not become whole numbers.

A run is loaded, converted and stored by one loop for each kind of result, whose code is for one
dtype of it or for a few: so there are no more numbers than a thread has registers for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels import cuda_launch
from gpufeed.kernels.cuda_launch import Array, callable_from_kernels, inlined
from gpufeed.kernels.cuda_runs import LOADS, count_channels, store_run
from gpufeed.kernels.cuda_slab import (
    F16,
    F32,
    F64,
    I64,
    Memory,
    is_real,
    read_any,
    read_whole,
    shift_of,
    word,
    write_whole,
)
from gpufeed.kernels.jobs import (
    FLOAT16,
    FLOAT64,
    NONE,
    NUM_CHANNELS,
    NUM_INNER,
    OUT,
    OUT_TYPE,
    SCALE,
    SHIFT,
    SIZE,
    SOURCE,
    SOURCE_TYPE,
)

__all__ = ["convert"]


@callable_from_kernels
def convert(memory: Memory, job: int, first: int, step: int) -> None:
    """Do a thread's part of a job of conversion: its runs from ``first`` on, by ``step``."""
    code = word(memory[I64], job, OUT_TYPE)
    if code == FLOAT64:
        _to_double(memory, job, first, step)
    elif is_real(code):
        _to_single(memory, job, first, step, code == FLOAT16)
    else:
        _to_whole(memory, job, first, step)


@callable_from_kernels
def _to_whole(memory: Memory, job: int, first: int, step: int) -> None:
    table = memory[I64]
    code, out_type, size = (
        word(table, job, SOURCE_TYPE),
        word(table, job, OUT_TYPE),
        word(table, job, SIZE),
    )
    source, out = (
        word(table, job, SOURCE) >> shift_of(code),
        word(table, job, OUT) >> shift_of(out_type),
    )
    held = cuda.local.array(LOADS, np.int64)
    while first < size:
        left = min(size - first, LOADS * cuda_launch.WARP)
        read_whole(memory, code, source + first, left, held)
        write_whole(memory, out_type, out + first, left, held)
        first += step


@callable_from_kernels
def _to_double(memory: Memory, job: int, first: int, step: int) -> None:
    table, factors = memory[I64], memory[F64]
    code, size = word(table, job, SOURCE_TYPE), word(table, job, SIZE)
    source, out = word(table, job, SOURCE) >> shift_of(code), word(table, job, OUT) >> 3
    is_scaled, scale, shift = _factors(table, job, 3)
    num_channels, num_inner = word(table, job, NUM_CHANNELS), word(table, job, NUM_INNER)
    held, channels = cuda.local.array(LOADS, np.float64), cuda.local.array(LOADS, np.int64)
    while first < size:
        left = min(size - first, LOADS * cuda_launch.WARP)
        read_any(memory, code, source + first, left, held)
        if is_scaled:
            count_channels(first, num_inner, num_channels, channels)
            for k in range(LOADS):
                factor = factors[np.uint64(scale + channels[k])]
                held[k] = held[k] * factor + factors[np.uint64(shift + channels[k])]
        store_run(held, memory[F64], out + first, left)
        first += step


@callable_from_kernels
def _to_single(memory: Memory, job: int, first: int, step: int, is_half: bool) -> None:
    """Convert to float32, or to float16 with every step rounded to it."""
    table, factors = memory[I64], memory[F32]
    code, size = word(table, job, SOURCE_TYPE), word(table, job, SIZE)
    source, out = (
        word(table, job, SOURCE) >> shift_of(code),
        word(table, job, OUT) >> (1 if is_half else 2),
    )
    is_scaled, scale, shift = _factors(table, job, 2)
    num_channels, num_inner = word(table, job, NUM_CHANNELS), word(table, job, NUM_INNER)
    held, channels = cuda.local.array(LOADS, np.float32), cuda.local.array(LOADS, np.int64)
    while first < size:
        left = min(size - first, LOADS * cuda_launch.WARP)
        if is_half and code == FLOAT64:
            _read_halves(memory[F64], source + first, left, held)
        else:
            read_any(memory, code, source + first, left, held)
        if is_scaled:
            count_channels(first, num_inner, num_channels, channels)
            for k in range(LOADS):
                factor = factors[np.uint64(scale + channels[k])]
                term = factors[np.uint64(shift + channels[k])]
                if is_half:
                    held[k] = _rounded(_rounded(held[k]) * _rounded(factor)) + _rounded(term)
                else:
                    held[k] = held[k] * factor + term
        if is_half:
            store_run(held, memory[F16], out + first, left)
        else:
            store_run(held, memory[F32], out + first, left)
        first += step


@inlined
def _factors(table: Array, job: int, log_size: int) -> tuple[bool, int, int]:
    """Return whether there are factors and terms, and where these begin."""
    scale, shift = word(table, job, SCALE), word(table, job, SHIFT)
    return scale != NONE, scale >> log_size, shift >> log_size


@inlined
def _rounded(number: Any) -> Any:
    """Return the float16 nearest to a number, as float32."""
    return np.float32(np.float16(number))


@inlined
def _read_halves(source: Array, start: int, left: int, held: Array) -> None:
    """Load a thread's part of a run of float64, rounded once to float16, which float32 can hold."""
    at, last = np.uint64(start), np.uint32(left - 1)
    for k in range(LOADS):
        i = min(np.uint32(k * cuda_launch.WARP), last)
        held[k] = _rounded(source[at + np.uint64(i)])
