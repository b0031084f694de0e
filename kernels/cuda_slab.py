"""A slab on the device, read and written as any dtype: which one is known only when a kernel runs.

The slab is seen as eight arrays, one a dtype, and what an array in it holds is told by a code. An
element's place ``at`` counts elements of its own size from the slab's start. Which code it is, is a
question that all threads answer alike; it is asked once for all that a thread has under way
(`gpufeed.kernels.cuda_runs`), and for single elements only of what is few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels.checks import VALUE_DTYPES
from gpufeed.kernels.cuda_densify import ATOMIC_DTYPES
from gpufeed.kernels.cuda_launch import Array, callable_from_kernels, inlined
from gpufeed.kernels.cuda_runs import load_run, store_run
from gpufeed.kernels.jobs import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
)

__all__ = [
    "F16",
    "F32",
    "F64",
    "I32",
    "I64",
    "U8",
    "Memory",
    "add_alone",
    "add_atomically",
    "is_atomic",
    "is_real",
    "one_of",
    "read_any",
    "read_whole",
    "seen_as_all",
    "set_word",
    "shift_of",
    "word",
    "write_whole",
]

Memory = tuple[Array, ...]
# Where in `Memory` each dtype is.
U8, I8, I16, I32, I64, F16, F32, F64 = range(8)
# Bits by code: numba makes a loop of a question whether a code is in a tuple.
REAL = sum(1 << code for code, dtype in enumerate(VALUE_DTYPES) if dtype.kind == "f")
ATOMIC = sum(1 << code for code, dtype in enumerate(VALUE_DTYPES) if dtype in ATOMIC_DTYPES)
LOG_SIZES = sum(
    (dtype.itemsize.bit_length() - 1) << 2 * code for code, dtype in enumerate(VALUE_DTYPES)
)


@inlined
def seen_as_all(slab: Array) -> Memory:
    """Return the views of a slab of bytes."""
    return (
        slab,
        slab.view(np.int8),
        slab.view(np.int16),
        slab.view(np.int32),
        slab.view(np.int64),
        slab.view(np.float16),
        slab.view(np.float32),
        slab.view(np.float64),
    )


@inlined
def word(table: Array, job: int, at: int) -> Any:
    """Return a word of the job that begins at word ``job`` of the table."""
    return table[np.uint64(job + at)]


@inlined
def is_real(code: int) -> bool:
    """Return whether a dtype is a floating-point one."""
    return (REAL >> code) & 1 != 0


@inlined
def is_atomic(code: int) -> bool:
    """Return whether the hardware adds this dtype atomically; others are added by one thread."""
    return (ATOMIC >> code) & 1 != 0


@inlined
def shift_of(code: int) -> int:
    """Return the binary logarithm of the size of a dtype."""
    return (LOG_SIZES >> (2 * code)) & 3


@callable_from_kernels
def read_whole(memory: Memory, code: int, at: int, left: int, held: Array) -> None:
    """Load a thread's part of a run of whole numbers or truth values, cast to what is held."""
    if code == INT32:
        load_run(memory[I32], at, left, held)
    elif code == INT64:
        load_run(memory[I64], at, left, held)
    elif code == INT16:
        load_run(memory[I16], at, left, held)
    elif code == INT8:
        load_run(memory[I8], at, left, held)
    else:
        load_run(memory[U8], at, left, held)


@callable_from_kernels
def read_any(memory: Memory, code: int, at: int, left: int, held: Array) -> None:
    """Load a thread's part of a run of any dtype, cast to floating-point numbers."""
    if code == FLOAT32:
        load_run(memory[F32], at, left, held)
    elif code == FLOAT64:
        load_run(memory[F64], at, left, held)
    elif code == FLOAT16:
        load_run(memory[F16], at, left, held)
    else:
        read_whole(memory, code, at, left, held)


@callable_from_kernels
def write_whole(memory: Memory, code: int, at: int, left: int, held: Array) -> None:
    """Store a thread's part of a run of whole numbers or truth values."""
    if code == INT64:
        store_run(held, memory[I64], at, left)
    elif code == INT32:
        store_run(held, memory[I32], at, left)
    elif code == INT16:
        store_run(held, memory[I16], at, left)
    elif code == INT8:
        store_run(held, memory[I8], at, left)
    else:
        store_run(held, memory[U8], at, left)


@callable_from_kernels
def one_of(code: int) -> int:
    """Return the bits of a dtype's 1."""
    if code == FLOAT32:
        return 0x3F800000
    if code == FLOAT64:
        return 0x3FF0000000000000
    if code == FLOAT16:
        return 0x3C00
    return 1


@callable_from_kernels
def set_word(memory: Memory, shift: int, byte: int, bits: int) -> None:
    """Set the element of ``1 << shift`` bytes that starts at a byte of the slab."""
    at = np.uint64(byte >> shift)
    if shift == 2:
        memory[I32][at] = np.int32(bits)
    elif shift == 3:
        memory[I64][at] = bits
    elif shift == 1:
        memory[I16][at] = np.int16(bits)
    else:
        memory[U8][at] = np.uint8(bits)


@callable_from_kernels
def add_atomically(memory: Memory, code: int, byte: int, value_byte: int) -> None:
    """Add an element to another one of the same dtype; both are told by the byte they start at."""
    shift = shift_of(code)
    i, k = np.uint64(byte >> shift), np.uint64(value_byte >> shift)
    if code == FLOAT32:
        cuda.atomic.add(memory[F32], i, memory[F32][k])
    elif code == FLOAT64:
        cuda.atomic.add(memory[F64], i, memory[F64][k])
    elif code == INT32:
        cuda.atomic.add(memory[I32], i, memory[I32][k])
    else:
        cuda.atomic.add(memory[I64], i, memory[I64][k])


@callable_from_kernels
def add_alone(memory: Memory, code: int, byte: int, value_byte: int) -> None:
    """Add an element to another one of the same dtype, which no other thread adds to."""
    shift = shift_of(code)
    i, k = np.uint64(byte >> shift), np.uint64(value_byte >> shift)
    if code == FLOAT16:
        halves = memory[F16]
        halves[i] = np.float16(np.float32(halves[i]) + np.float32(halves[k]))
    elif code == INT16:
        memory[I16][i] = np.int16(np.int64(memory[I16][i]) + memory[I16][k])
    elif code == BOOL:
        memory[U8][i] |= memory[U8][k]
    else:  # of 8 bits, where the signed and the unsigned sum are the same
        memory[U8][i] = np.uint8(np.int64(memory[U8][i]) + memory[U8][k])
