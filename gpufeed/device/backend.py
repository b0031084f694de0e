"""What a device has to offer: memory, streams, events and asynchronous copies.

Two implementations of one protocol, `gpufeed.device.virtual` (host threads that behave like CUDA
streams) and `gpufeed.device.cuda` (CuPy). Everything above this layer is written against the
protocol and cannot tell them apart.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from gpufeed.places import Place

__all__ = ["Array", "Backend", "Event", "HostBytes", "HostWords", "Memory", "Stream"]

Array = Any  # numpy.ndarray, or cupy.ndarray on a GPU
HostBytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
HostWords = np.ndarray[tuple[int], np.dtype[np.int64]]


class Event(Protocol):
    """A point in a stream. It has passed once all work enqueued before it is done."""

    def synchronize(self) -> None:
        """Block the calling thread until the event has passed."""

    def query(self) -> bool:
        """Return whether the event has passed, without blocking."""


class Stream(Protocol):
    """A queue of device work, done in order; streams wait for each other through events."""

    def wait(self, event: Event) -> None:
        """Hold all work enqueued from now on until ``event`` has passed. The host goes on."""

    def record(self) -> Event:
        """Return an event that passes once everything enqueued so far is done."""

    def synchronize(self) -> None:
        """Block the calling thread until everything enqueued so far is done."""

    def call(self, work: Callable[[], object]) -> None:
        """Do ``work`` in stream order: on the host's thread of a virtual stream, else at once."""

    def is_capturing(self) -> bool:
        """Return whether work goes into a graph now, where no event may be recorded or awaited."""


class Memory(Protocol):
    """An owned block of device memory, 256-byte aligned; freed with its last reference."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""


class Backend(Protocol):
    """One device."""

    @property
    def place(self) -> Place:
        """Which device."""

    def host_memory(self, nbytes: int) -> HostBytes:
        """Allocate host memory that this device reads at full speed (page-locked on CUDA)."""

    def page_lock(self, mapping: mmap.mmap) -> bool:
        """Page-lock memory that is there already, for all devices; False where that is refused.

        It must be unlocked before it is unmapped.
        """

    def page_unlock(self, mapping: mmap.mmap) -> None:
        """Undo `page_lock`, once no copy reads the memory any more."""

    def device_memory(self, nbytes: int) -> Memory:
        """Allocate device memory.

        Raises:
            PlaceError: The device has not that much left.
        """

    def stream(self) -> Stream:
        """Make a stream that does not synchronize with any other by itself."""

    def consumer_streams(self) -> list[Stream]:
        """Return the streams the caller works on now; none where that is the host itself.

        That is the current stream of each library that has one: CuPy's, and torch's.
        """

    def as_stream(self, stream: object) -> Stream:
        """Return a stream the caller names: ours, or one with ``__cuda_stream__``, or a handle.

        Raises:
            PlaceError: It is no stream of this device.
        """

    def attach_thread(self) -> None:
        """Let the calling thread, which is one of ours, work beside a capture in another."""

    def copy_to_device(self, source: HostBytes, target: Memory, nbytes: int, to: Stream) -> None:
        """Enqueue the copy of the first ``nbytes`` of ``source`` to ``target`` on stream ``to``."""

    def view(self, memory: Memory, owner: object) -> Array:
        """Return ``memory`` as a one-dimensional uint8 array whose views keep ``owner`` alive."""

    def array(self, root: Array, offset: int, shape: tuple[int, ...], dtype: object) -> Array:
        """Return the array of ``shape`` and ``dtype`` at byte ``offset`` of ``root``."""

    def unpacker(self, memory: Memory, fault: HostWords, on: Stream) -> Callable[[bool], None]:
        """Return a function of ``has_late`` that enqueues `gpufeed.kernels.unpack_fields`.

        Args:
            memory: The slab.
            fault: Of `host_memory`; faults are noted there.
            on: The stream.
        """

    def fill(self, memory: Memory, value: int, on: Stream) -> None:
        """Enqueue the setting of every byte of ``memory`` to ``value``."""

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Copy an array to this device and wait for it."""

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy an array of this device to the host and wait for it."""
