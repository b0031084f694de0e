"""How fast do slabs reach a GPU, against the fastest copies that the machine itself can do?

Method: `DeviceStaging` sends slabs of one size, nothing written into them and no feed kept, through
its rings, streams and events. The floor enqueues as many bare ``cudaMemcpyAsync`` of that size on
one stream, from two page-locked buffers into two of the device; another contestant does so from
pageable memory, as NumPy has it. Time is the GPU's own, between two events on the copy stream.
Units are GB (1e9 bytes), so 1e6 / (us/GB) is GB/s.

Not measured: writing the slabs (``collate``), kernels that unpack, and the loop (``prefetch``).

Command: ``python benchmarks transfer``

Last result: none yet; it has not been run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Case, Skip, Timed

from gpufeed.device import num_cuda_devices
from gpufeed.device.staging import DeviceStaging
from gpufeed.places import CUDAPlace

MIB = 1 << 20
PLACE = CUDAPlace(0)
TOTAL = 1 << 30  # bytes a round


class EmptyPlan:
    """A batch of ``nbytes`` that somebody else has written already."""

    source = None
    num_launches = 0

    def __init__(self, nbytes: int) -> None:
        self.wire_nbytes = self.nbytes = nbytes
        self.checked: dict[int, Any] = {}

    def settle(self, slab_nbytes: int, remains: object | None) -> object | None:
        """Leave nothing."""
        return None

    def write(self, make: Any) -> None:
        """Write nothing."""

    def write_table(self, make: Any, number: int = 0, first: int = 0) -> None:
        """Have nothing unpacked."""

    def feed(self, make: Any, lease: object) -> object:
        """Return what keeps the slab."""
        return lease


def cases() -> Iterator[Case]:
    """Yield one comparison a size."""
    if not num_cuda_devices():
        raise Skip("no CUDA device")
    for mib in (1, 4, 16, 64, 256):
        yield _case(mib * MIB)


def _case(nbytes: int) -> Case:
    num = max(8, TOTAL // nbytes)
    staging = DeviceStaging(PLACE, depth=2)
    target = "1 / 0.97 of raw copies" if nbytes >= 16 * MIB else "1 / 0.85 of raw copies at 1 MiB"
    return Case(
        name=f"slabs of {nbytes // MIB} MiB, back to back",
        contestants={
            "cudaMemcpyAsync, page-locked": _raw(staging, nbytes, num, staging.backend.host_memory),
            "slabs": lambda: _timed(staging, nbytes, num, lambda: _stage(staging, nbytes, num)),
            "cudaMemcpyAsync, pageable": _raw(staging, nbytes, num, lambda n: np.ones(n, np.uint8)),
        },
        num_units=1,
        unit="GB",
        checksum=lambda sent: sent,
        target=target,
    )


def _stage(staging: DeviceStaging, nbytes: int, num: int) -> None:
    plan = EmptyPlan(nbytes)
    for _ in range(num):
        staging.recycle()
        staging.deliver(staging.stage(plan))


def _raw(
    staging: DeviceStaging, nbytes: int, num: int, allocate: Callable[[int], Any]
) -> Callable[[], Timed]:
    backend, stream = staging.backend, staging.copy_stream
    sources = [allocate(nbytes) for _ in range(2)]
    targets = [backend.device_memory(nbytes) for _ in range(2)]

    def copy() -> None:
        for number in range(num):
            backend.copy_to_device(sources[number % 2], targets[number % 2], nbytes, stream)

    return lambda: _timed(staging, nbytes, num, copy)


def _timed(staging: DeviceStaging, nbytes: int, num: int, work: Callable[[], None]) -> Timed:
    """Return the GPU's time for ``work`` on the copy stream, per GB."""
    import cupy

    raw: Any = staging.copy_stream
    with cupy.cuda.Device(PLACE.device_id):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(raw.raw)
        work()
        end.record(raw.raw)
        end.synchronize()
        ms = cupy.cuda.get_elapsed_time(begin, end)
    return Timed(ms * 1e3 / (nbytes * num / 1e9), nbytes * num)
