"""CUDA devices through CuPy. CuPy is imported here and nowhere else.

Memory comes from the driver directly: CuPy's pinned pool keeps its free blocks by exact size and
never returns them, so batches of ever new sizes would make it grow without bound. The rings above
(`gpufeed.device.slabs`) reuse what they get here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import cupy
import numpy as np

from gpufeed.device.backend import Array, Event, HostBytes, Memory, Stream
from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace

__all__ = [
    "CudaBackend",
    "CudaEvent",
    "CudaStream",
    "array_module",
    "make_current",
    "num_devices",
]


def num_devices() -> int:
    """Return how many devices CuPy can use; 0 without a driver."""
    # getDeviceCount raises where there is no driver; is_available does not.
    return int(cupy.cuda.runtime.getDeviceCount()) if cupy.cuda.is_available() else 0


def array_module() -> ModuleType:
    """Return CuPy."""
    module: ModuleType = cupy
    return module


@contextmanager
def make_current(device_id: int) -> Iterator[None]:
    """Make a device the current one of CuPy, and of torch where that is imported."""
    torch = sys.modules.get("torch")
    with cupy.cuda.Device(device_id):
        if torch is not None and torch.cuda.is_available():
            with torch.cuda.device(device_id):
                yield
        else:
            yield


class CudaEvent:
    """A CuPy event without timing whose ``synchronize`` sleeps instead of spinning."""

    def __init__(self, stream: cupy.cuda.Stream) -> None:
        self.raw = cupy.cuda.Event(block=True, disable_timing=True)
        self.raw.record(stream)

    def synchronize(self) -> None:
        """Block until the event has passed."""
        self.raw.synchronize()

    def query(self) -> bool:
        """Return whether the event has passed."""
        return bool(self.raw.done)


@dataclass(frozen=True)
class CudaStream:
    """A CuPy stream on its device, ours or the caller's; equal if it is the same CUDA stream."""

    device_id: int
    raw: cupy.cuda.Stream

    def wait(self, event: Event) -> None:
        """Hold all work enqueued from now on until ``event`` has passed."""
        assert isinstance(event, CudaEvent)
        self.raw.wait_event(event.raw)

    def record(self) -> CudaEvent:
        """Return an event that passes once everything enqueued so far is done."""
        with cupy.cuda.Device(self.device_id):
            return CudaEvent(self.raw)

    def synchronize(self) -> None:
        """Block until everything enqueued so far is done."""
        self.raw.synchronize()

    def call(self, work: Callable[[], object]) -> None:
        """Launch the kernels of ``work`` on this stream."""
        with cupy.cuda.Device(self.device_id), self.raw:
            work()


class CudaBackend:
    """One CUDA device."""

    def __init__(self, place: CUDAPlace) -> None:
        self.place = place
        self._device_id = place.device_id

    def _here(self) -> AbstractContextManager[object]:
        device: AbstractContextManager[object] = cupy.cuda.Device(self._device_id)
        return device

    def host_memory(self, nbytes: int) -> HostBytes:
        """Allocate page-locked host memory."""
        with self._here():
            pinned = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(max(nbytes, 1)), 0)
        return np.frombuffer(pinned, np.uint8, nbytes)

    def device_memory(self, nbytes: int) -> Memory:
        """Allocate device memory."""
        try:
            with self._here():
                memory: Memory = _DeviceBytes(cupy.cuda.Memory(max(nbytes, 1)), nbytes)
                return memory
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise PlaceError(f"{self.place}: no room for a slab of {nbytes} bytes") from error

    def stream(self) -> CudaStream:
        """Make a non-blocking stream."""
        with self._here():
            return CudaStream(self._device_id, cupy.cuda.Stream(non_blocking=True))

    def current_stream(self, stream: object | None = None) -> Stream:
        """Return CuPy's current stream of this device, or the one the caller names."""
        with self._here():
            if stream is None:
                return CudaStream(self._device_id, cupy.cuda.get_current_stream())
            if isinstance(stream, CudaStream):
                return stream
            if isinstance(stream, int):
                stream = _Handle(stream)
            return CudaStream(self._device_id, cupy.cuda.Stream.from_external(stream))

    def copy_to_device(self, source: HostBytes, target: Memory, nbytes: int, to: Stream) -> None:
        """Enqueue the copy."""
        assert isinstance(target, _DeviceBytes)
        assert isinstance(to, CudaStream)
        cupy.cuda.runtime.memcpyAsync(
            target.memory.ptr,
            source.ctypes.data,
            nbytes,
            cupy.cuda.runtime.memcpyHostToDevice,
            to.raw.ptr,
        )

    def view(self, memory: Memory, owner: object) -> Array:
        """Return the memory as uint8; its views keep ``owner`` alive."""
        assert isinstance(memory, _DeviceBytes)
        unowned = cupy.cuda.UnownedMemory(memory.memory.ptr, memory.nbytes, owner, self._device_id)
        return cupy.ndarray(memory.nbytes, cupy.uint8, cupy.cuda.MemoryPointer(unowned, 0))

    def array(self, root: Array, offset: int, shape: tuple[int, ...], dtype: object) -> Array:
        """Return a typed view."""
        return cupy.ndarray(shape, dtype, root.data + offset)

    def launch(self, work: Callable[[Any], object], on: Stream) -> None:
        """Launch the kernels on the stream."""
        assert isinstance(on, CudaStream)
        on.call(lambda: work(on.raw))

    def fill(self, memory: Memory, value: int, on: Stream) -> None:
        """Enqueue the fill."""
        assert isinstance(memory, _DeviceBytes)
        assert isinstance(on, CudaStream)
        cupy.cuda.runtime.memsetAsync(memory.memory.ptr, value, memory.nbytes, on.raw.ptr)

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Copy the array."""
        with self._here():
            return cupy.asarray(array, blocking=True)

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy the array."""
        with self._here():
            host: np.ndarray[Any, Any] = cupy.asnumpy(array)
            return host


@dataclass(frozen=True)
class _Handle:
    """A stream as DLPack hands it over, a bare ``cudaStream_t``; 1 and 2 are CUDA's own."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class _DeviceBytes:
    def __init__(self, memory: cupy.cuda.Memory, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = nbytes
