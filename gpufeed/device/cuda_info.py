"""What a CUDA device is and how fast copies reach it; for ``gpufeed info``."""

from __future__ import annotations

import mmap

import cupy
import numpy as np
from cupy.cuda import runtime

from gpufeed.device.backend import HostBytes
from gpufeed.device.cuda import CudaBackend, num_devices
from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace

__all__ = ["describe"]

_NBYTES = 64 << 20  # a copy that takes milliseconds
_TIMES = 5


def describe() -> list[str]:
    """Return a line on the driver, and one on every device, its copies measured now."""
    versions = f"CUDA driver {_said(runtime.driverGetVersion())}"
    versions += f", runtime {_said(runtime.runtimeGetVersion())}"
    return [versions, *(_describe(CUDAPlace(number)) for number in range(num_devices()))]


def _describe(place: CUDAPlace) -> str:
    try:
        properties = runtime.getDeviceProperties(place.device_id)
        backend = CudaBackend(place)
        locks = _locks(backend)
        pinned = _gb_per_s(backend, backend.host_memory(_NBYTES))
        pageable = _gb_per_s(backend, np.ones(_NBYTES, np.uint8))
    except (runtime.CUDARuntimeError, PlaceError) as error:
        return f"{place}: cannot be used ({error})"
    return (
        f"{place}: {properties['name'].decode()}, compute capability "
        f"{properties['major']}.{properties['minor']}, "
        f"{properties['totalGlobalMem'] / 2**30:.1f} GiB; copies from page-locked memory "
        f"{pinned:.1f} GB/s, from pageable {pageable:.1f} GB/s; isolated feeds are "
        f"{'sent from shared memory' if locks else 'copied, as shared memory is not page-locked'}"
    )


def _locks(backend: CudaBackend) -> bool:
    """Return whether memory that is there already can be page-locked, by doing it."""
    mapping = mmap.mmap(-1, mmap.ALLOCATIONGRANULARITY)
    is_locked = backend.page_lock(mapping)
    if is_locked:
        backend.page_unlock(mapping)
    return is_locked


def _gb_per_s(backend: CudaBackend, source: HostBytes) -> float:
    """Return the best of a few copies to the device."""
    stream, target = backend.stream(), backend.device_memory(source.nbytes)
    times_ms = []
    with cupy.cuda.Device(backend.place.device_id):
        for _ in range(_TIMES):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream.raw)
            backend.copy_to_device(source, target, source.nbytes, stream)
            end.record(stream.raw)
            end.synchronize()
            times_ms.append(cupy.cuda.get_elapsed_time(begin, end))
    return float(source.nbytes / min(times_ms) / 1e6)


def _said(version: int) -> str:
    """Return CUDA's 13020 as 13.2."""
    return f"{version // 1000}.{version % 1000 // 10}"
