"""Host memory: aligned blocks, and arrays over them that know who owns them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpufeed.device.backend import HostBytes

__all__ = ["ALIGNMENT", "aligned_bytes", "root_view", "view_at"]

ALIGNMENT = 256  # what cudaMalloc gives and vector loads want; also a multiple of a cache line


def aligned_bytes(nbytes: int) -> HostBytes:
    """Allocate ``nbytes`` uninitialised bytes that start at a multiple of 256."""
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + nbytes]


def root_view(owner: object) -> HostBytes:
    """Return the memory that ``owner`` shows through ``__array_interface__``.

    Every view of the result, and every view of those, keeps ``owner`` alive: NumPy shortens a chain
    of bases only as far as the first array that is based on something else than an array.
    """
    return np.asarray(owner)


def view_at(root: HostBytes, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the array of ``shape`` and ``dtype`` at byte ``offset`` of ``root``, not a copy."""
    return np.ndarray(shape, dtype, root, offset)
