"""What the GPU halves of the kernel benchmarks share: CuPy, and time taken by events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness import Skip, Timed

from gpufeed.device import num_cuda_devices


def require_cupy() -> Any:
    """Return CuPy.

    Raises:
        Skip: There is no CUDA device.
    """
    if not num_cuda_devices():
        raise Skip("no CUDA device, so the same on a GPU was not measured")
    import cupy

    return cupy


def timed_by_events(work: Callable[[], Any]) -> Callable[[], Timed]:
    """Return ``work`` so that it tells the time between two events on the current stream."""
    import cupy

    def run() -> Timed:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        result = work()
        end.record()
        end.synchronize()
        return Timed(us=1e3 * cupy.cuda.get_elapsed_time(begin, end), result=result)

    return run
