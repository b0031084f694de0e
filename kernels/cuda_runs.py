"""How the threads of a device share out what lies side by side: by runs, a warp each.

A run is `LOADS` elements for each thread of a warp, consecutive threads on consecutive elements.
All of a run is loaded before its first element is stored. A device moves memory at its full rate
only while some 20 KiB for each of its processors are under way; of a thread that stores each
element before it loads the next, which the compiler cannot change, these are 4 bytes.

Here and in the kernels, for what the compiler makes of it:
- loops over threads are ``while`` loops, as numba counts the passes of a ``range`` with a step by a
  division of 64 bits before the first one;
- an index is made unsigned at the last moment, as numba lets negative ones count from the end, for
  more instructions than the access itself takes; before that all are signed, as an unsigned number
  plus a signed one of 64 bits is a float.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels import cuda_launch
from gpufeed.kernels.cuda_launch import Array, callable_from_kernels

__all__ = [
    "LOADS",
    "copy_words",
    "count_channels",
    "divided",
    "expand_bits",
    "fill_words",
    "load_run",
    "run_of",
    "store_run",
]

LOADS = 8  # of a thread, under way at once


@callable_from_kernels
def run_of(thread: int) -> int:
    """Return the first element of a thread, of all threads that run over an array.

    Its others of that run are `WARP` apart. Its next run is `LOADS` elements a thread further.
    """
    warp = cuda_launch.WARP
    return thread // warp * (warp * LOADS) + thread % warp


@callable_from_kernels
def divided(number: int, by: int) -> Any:
    """Return the quotient of numbers that are not negative, which is quicker known so."""
    return np.int64(np.uint64(number) // np.uint64(by))


@callable_from_kernels
def load_run(source: Array, start: int, left: int, held: Array) -> None:
    """Load and cast a thread's part of a run that has ``left`` elements from its first one on.

    Behind the end is the last element again: a load that is not always done would take a register
    from the kernel's begin on, as what that held before might be needed.
    """
    at, last = np.uint64(start), np.uint32(left - 1)
    for k in range(LOADS):
        i = min(np.uint32(k * cuda_launch.WARP), last)
        held[k] = held.dtype.type(source[at + np.uint64(i)])


@callable_from_kernels
def store_run(held: Array, target: Array, start: int, left: int) -> None:
    """Cast and store a thread's part of a run that has ``left`` elements from its first one on."""
    at = np.uint64(start)
    for k in range(LOADS):
        if k * cuda_launch.WARP < left:
            target[at + np.uint64(k * cuda_launch.WARP)] = target.dtype.type(held[k])


@callable_from_kernels
def copy_words(
    source: Array, start: int, target: Array, begin: int, size: int, first: int, step: int
) -> None:
    """Copy ``source[start:][:size]`` to ``target[begin:]``, of which the thread has its runs."""
    held = cuda.local.array(LOADS, target.dtype)
    while first < size:
        left = min(size - first, LOADS * cuda_launch.WARP)
        load_run(source, start + first, left, held)
        store_run(held, target, begin + first, left)
        first += step


@callable_from_kernels
def fill_words(target: Array, begin: int, size: int, word: Any, first: int, step: int) -> None:
    """Set ``target[begin:][:size]`` to one word, of which the thread has its runs."""
    while first < size:
        left = min(size - first, LOADS * cuda_launch.WARP)
        at = np.uint64(begin + first)
        for k in range(LOADS):
            if k * cuda_launch.WARP < left:
                target[at + np.uint64(k * cuda_launch.WARP)] = word
        first += step


@callable_from_kernels
def expand_bits(
    packed: Array, start: int, target: Array, begin: int, size: int, first: int, step: int
) -> None:
    """Set ``target[begin:][:size]`` to the bits of ``packed[start:]``, each byte's lowest first."""
    held = cuda.local.array(LOADS, packed.dtype)
    while first < size:
        left = min(size - first, LOADS * cuda_launch.WARP)
        for k in range(LOADS):
            i = first + min(k * cuda_launch.WARP, left - 1)
            held[k] = packed[np.uint64(start + (i >> 3))]
        for k in range(LOADS):
            if k * cuda_launch.WARP < left:
                i = first + k * cuda_launch.WARP
                target[np.uint64(begin + i)] = (held[k] >> (i & 7)) & 1
        first += step


@callable_from_kernels
def count_channels(first: int, num_inner: int, num_channels: int, channels: Array) -> None:
    """Set the channel of each element of a thread's part of a run, by one division for all."""
    down, on = cuda_launch.WARP % num_inner, cuda_launch.WARP // num_inner % num_channels
    whole = divided(first, num_inner)
    inner, channel = first - whole * num_inner, whole - divided(whole, num_channels) * num_channels
    for k in range(LOADS):
        channels[k] = channel
        inner += down
        channel += on
        if inner >= num_inner:
            inner -= num_inner
            channel += 1
        if channel >= num_channels:
            channel -= num_channels
