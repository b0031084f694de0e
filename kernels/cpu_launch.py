"""What every kernel on host arrays is compiled and run with.

Disk cache: numba knows a kernel by the text of its own file. After a change of what it calls from
another one (`gpufeed.kernels.half`, `streaming`), the ``.nbi`` files in ``__pycache__`` have to go.

Threads: a kernel runs in the thread that calls it, which is mostly a feeder's, beside a training
loop that has the cores. Only where the user sets ``NUMBA_NUM_THREADS`` are large outputs shared out
among so many threads, and then by one caller at a time: who comes second finds them at work, and
does without.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy.typing as npt
from numba import config, njit
from numba.core.registry import cpu_target

__all__ = ["Array", "compiled", "in_parts", "inlined"]

Array = npt.NDArray[Any]
T = TypeVar("T")

# Written by one thread. With less, starting a thread costs about what it saves: two made 16 MiB in
# 0.9 to 1.0 of one's time, 39 and 64 MiB in 0.7, on two cores that share one core's bandwidth
# (benchmarks/bench_densify.py). Where others are at work there, they take 1.0 to 1.5 times as long.
PART_NBYTES = 16 << 20

_at_work = threading.Lock()

# At its first compilation numba learns more types, those of installed extensions too (Awkward is
# one), during which another thread's fails. So it learns them now, behind the lock of this import.
cpu_target.target_context.refresh()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` at its first call, from the disk cache where there is one."""
    try:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function a part of the kernels that call it."""
    return njit(forceinline=True)(function)  # type: ignore[no-any-return]


def in_parts(run: Callable[[int, int], T], rows: int, nbytes: int) -> list[T]:
    """Return what ``run(first, last)`` returns for ranges of rows that together are all of them.

    Args:
        run: Writes rows ``first:last`` of the output; called by several threads at once.
        rows: How many there are.
        nbytes: Of what is written: how much work it is.
    """
    num_threads = min(nbytes // PART_NBYTES, rows)
    if num_threads > 1:
        num_threads = min(num_threads, _num_threads())
    if num_threads < 2 or not _at_work.acquire(blocking=False):
        return [run(0, rows)]
    try:
        bounds = [rows * part // num_threads for part in range(num_threads + 1)]
        *others, mine = pairwise(bounds)
        with ThreadPoolExecutor(len(others), "gpufeed-kernel") as pool:
            running = [pool.submit(run, *bounds) for bounds in others]
            done = run(*mine)
            return [done, *(future.result() for future in running)]
    finally:
        _at_work.release()


def _num_threads() -> int:
    return int(config.NUMBA_NUM_THREADS) if "NUMBA_NUM_THREADS" in os.environ else 1
