"""A latch that holds a CUDA stream: a kernel that spins until the host lets it go."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["KernelLatch"]

_CODE = r"""
extern "C" __global__ void hold(volatile int* is_open) {
    while (!*is_open) { __nanosleep(1000); }
}
"""


class KernelLatch:
    """Holds streams until `set`, from the moment at which the kernel is launched on them.

    While it does, nothing may be called that waits for the whole device: freeing memory, or the
    first launch of a kernel, which loads it. So whatever runs meanwhile has to have run before.
    """

    def __init__(self) -> None:
        import cupy

        self._memory = cupy.cuda.PinnedMemory(64)
        pointer = cupy.cuda.PinnedMemoryPointer(self._memory, 0)
        self._is_open = np.frombuffer(pointer, np.int32, 1)
        self._kernel = cupy.RawKernel(_CODE, "hold")
        self.set()
        self._launch()  # which loads it
        cupy.cuda.get_current_stream().synchronize()
        self._is_open[0] = 0

    def hold(self, stream: Any) -> None:
        """Hold what is enqueued on ``stream`` from now on."""
        stream.call(self._launch)

    def set(self) -> None:
        """Let all streams go."""
        self._is_open[0] = 1

    def _launch(self) -> None:
        self._kernel((1,), (1,), (np.uint64(self._memory.ptr),))
