"""CUDA devices through CuPy. CuPy is imported here and nowhere else.

Memory comes from the driver directly: CuPy's pinned pool keeps its free blocks by exact size and
never returns them, so batches of ever new sizes would make it grow without bound. The rings above
(`gpufeed.device.slabs`) reuse what they get here.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from gpufeed.device.backend import Array, Event, HostBytes, HostWords, Memory, Stream
from gpufeed.errors import PlaceError
from gpufeed.kernels import prepare_unpack
from gpufeed.places import CUDAPlace

__all__ = [
    "CudaBackend",
    "CudaEvent",
    "CudaStream",
    "array_module",
    "make_current",
    "num_devices",
]


# Numbers of CUDA's own that CuPy has no names for.
_ERROR_MEMORY_ALLOCATION = 2
# The legacy stream was asked while another one is captured, whose capture any work on it would end.
_ERROR_STREAM_CAPTURE_IMPLICIT = 906
_HOST_REGISTER_PORTABLE = 1  # page-locked for every device, not for the current one alone


def num_devices() -> int:
    """Return how many devices CuPy can use; 0 without a driver."""
    # getDeviceCount raises where there is no driver; is_available does not.
    return int(runtime.getDeviceCount()) if cupy.cuda.is_available() else 0


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

    def is_capturing(self) -> bool:
        """Return whether work goes into a graph now."""
        try:
            return bool(self.raw.is_capturing())
        except runtime.CUDARuntimeError as error:
            if error.status != _ERROR_STREAM_CAPTURE_IMPLICIT:
                raise
            return True


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
        block = self._allocate(cupy.cuda.PinnedMemory, nbytes, "page-locked host memory")
        return np.frombuffer(cupy.cuda.PinnedMemoryPointer(block, 0), np.uint8, nbytes)

    def page_lock(self, mapping: mmap.mmap) -> bool:
        """Page-lock memory that is there already; False where the driver or the system refuse."""
        memory = np.frombuffer(mapping, np.uint8)
        supported = runtime.cudaDevAttrHostRegisterSupported
        with self._here():
            if not runtime.deviceGetAttribute(supported, self._device_id):
                return False
            try:
                runtime.hostRegister(memory.ctypes.data, memory.nbytes, _HOST_REGISTER_PORTABLE)
            except runtime.CUDARuntimeError:
                return False  # more than the process may lock; a device that fails says so again
        return True

    def page_unlock(self, mapping: mmap.mmap) -> None:
        """Undo `page_lock`."""
        with self._here():
            runtime.hostUnregister(np.frombuffer(mapping, np.uint8).ctypes.data)

    def device_memory(self, nbytes: int) -> Memory:
        """Allocate device memory."""
        block = self._allocate(cupy.cuda.Memory, nbytes, "device memory")
        memory: Memory = _DeviceBytes(block, nbytes)
        return memory

    def _allocate(self, allocate: Callable[[int], Any], nbytes: int, kind: str) -> Any:
        """Allocate from the driver; where it refuses, again without what libraries keep free."""
        nbytes = max(nbytes, 1)
        with self._here():
            block = _allocate_if_there_is_room(allocate, nbytes)
            if block is None:
                _free_cached_memory()
                block = _allocate_if_there_is_room(allocate, nbytes)
            if block is not None:
                return block
            free, total = runtime.memGetInfo()
        raise PlaceError(
            f"{self.place}: no room for a slab of {nbytes:,} bytes of {kind}; "
            f"the device has {free:,} of {total:,} bytes left"
        )

    def stream(self) -> CudaStream:
        """Make a non-blocking stream."""
        with self._here():
            return CudaStream(self._device_id, cupy.cuda.Stream(non_blocking=True))

    def consumer_streams(self) -> list[Stream]:
        """Return CuPy's current stream of this device, and torch's if that is another."""
        streams: list[Stream] = [
            CudaStream(self._device_id, cupy.cuda.get_current_stream(self._device_id))
        ]
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            current = self.as_stream(torch.cuda.current_stream(self._device_id))
            if current not in streams:
                streams.append(current)
        return streams

    def as_stream(self, stream: object) -> Stream:
        """Return a stream of CuPy, torch or any library, or a bare handle, as one of ours."""
        if isinstance(stream, CudaStream):
            return stream
        if isinstance(stream, int):
            stream = _Handle(stream)
        elif isinstance(handle := getattr(stream, "cuda_stream", None), int):
            stream = _Handle(handle, stream)  # torch's, which has no protocol in older versions
        elif not hasattr(stream, "__cuda_stream__"):
            raise PlaceError(
                f"{self.place}: stream must have __cuda_stream__ or be a handle, got {stream!r}"
            )
        with self._here():
            return CudaStream(self._device_id, cupy.cuda.Stream.from_external(stream))

    def attach_thread(self) -> None:
        """Let the calling thread allocate and ask events while another one captures a graph.

        A capture in CUDA's strictest mode, which is torch's default, fails if any thread of the
        process does so that has not said that it takes no part.
        """
        try:
            from cuda.bindings import driver
        except ImportError:  # numba-cuda, which runs the kernels, brings it from 0.20 on
            return
        with self._here():
            runtime.free(0)  # gives the thread its context
            driver.cuThreadExchangeStreamCaptureMode(
                driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            )

    def copy_to_device(self, source: HostBytes, target: Memory, nbytes: int, to: Stream) -> None:
        """Enqueue the copy."""
        assert isinstance(target, _DeviceBytes)
        assert isinstance(to, CudaStream)
        with self._here():
            runtime.memcpyAsync(
                target.memory.ptr,
                source.ctypes.data,
                nbytes,
                runtime.memcpyHostToDevice,
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

    def unpacker(self, memory: Memory, fault: HostWords, on: Stream) -> Callable[[bool], None]:
        """Return what launches the kernel.

        Page-locked memory is at the same address for the device, so the note needs no copy.
        """
        assert isinstance(on, CudaStream)
        with self._here():
            address = fault.ctypes.data
            block = cupy.cuda.UnownedMemory(address, fault.nbytes, fault, self._device_id)
            words = cupy.ndarray(fault.shape, fault.dtype, cupy.cuda.MemoryPointer(block, 0))
            unpack = prepare_unpack(self.view(memory, memory), words, stream=on.raw)

        def launch(has_late: bool) -> None:
            with self._here():
                unpack(has_late)

        return launch

    def fill(self, memory: Memory, value: int, on: Stream) -> None:
        """Enqueue the fill."""
        assert isinstance(memory, _DeviceBytes)
        assert isinstance(on, CudaStream)
        with self._here():
            runtime.memsetAsync(memory.memory.ptr, value, memory.nbytes, on.raw.ptr)

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
    """A bare ``cudaStream_t``, as DLPack hands it over (1 and 2 are CUDA's own), and its owner."""

    handle: int
    owner: object = field(default=None, compare=False)  # kept alive as long as the stream is used

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _allocate_if_there_is_room(allocate: Callable[[int], Any], nbytes: int) -> Any:
    try:
        return allocate(nbytes)
    except runtime.CUDARuntimeError as error:
        if error.status != _ERROR_MEMORY_ALLOCATION:
            raise
        return None


def _free_cached_memory() -> None:
    """Give back to the driver what CuPy and torch keep for later."""
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class _DeviceBytes:
    def __init__(self, memory: cupy.cuda.Memory, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = nbytes
