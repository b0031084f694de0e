"""Virtual devices: host threads that behave like CUDA streams, so that no test needs a GPU.

A stream is a thread with a FIFO of real work; what is enqueued runs later and in order, and streams
order themselves only through events. So a forgotten wait gives wrong data here just as it does on
hardware, and with ``jitter`` it does so soon.

The current stream of a virtual device is the host itself, unless ``with virtual_stream(place)`` is
active in the calling thread: waiting on the host blocks.

Lifetime: a stream's thread starts with its first work and ends when the stream object is gone (it
holds the queue only, never the stream), at ``close()``, or at interpreter exit.
"""

from __future__ import annotations

import itertools
import mmap
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from gpufeed.checks import number_in_environment, whole_number
from gpufeed.device.backend import Array, Event, HostBytes, HostWords, Memory, Stream
from gpufeed.device.host import aligned_bytes, root_view, view_at
from gpufeed.device.virtual_locks import Copying, PageLockBooks
from gpufeed.errors import PlaceError
from gpufeed.kernels import prepare_unpack
from gpufeed.places import CUDAPlace, PlaceLike, as_place

__all__ = [
    "VirtualBackend",
    "VirtualEvent",
    "VirtualGraph",
    "VirtualStream",
    "num_virtual_devices",
    "virtual_devices",
    "virtual_stream",
]

_JITTER_S = 0.002  # longest delay before a piece of work
Work = Callable[[], object]


@dataclass(frozen=True)
class _Settings:
    count: int
    seed: int | None = None
    jitter: bool = False
    stream_numbers: Iterator[int] = field(default_factory=itertools.count)


_settings: _Settings | None = None


def num_virtual_devices() -> int:
    """Return how many virtual devices there are; 0 where CUDA devices are real."""
    if _settings is not None:
        return _settings.count
    return number_in_environment("GPUFEED_VIRTUAL_DEVICES", 0)


class virtual_devices:  # noqa: N801 - used like a function
    """Make ``CUDAPlace(0)`` to ``CUDAPlace(n - 1)`` exist, on any machine.

    Takes effect at once and lasts, or until the end of the ``with`` block it opens.

    >>> with virtual_devices(2):
    ...     num_virtual_devices()
    2

    Args:
        n: Number of devices; 0 means that CUDA devices are real ones again.
        seed: Makes the delays of ``jitter`` repeat.
        jitter: Delay every piece of work by up to 2 ms, at random.

    Raises:
        PlaceError: ``n`` is not a whole number >= 0.
    """

    def __init__(self, n: int, *, seed: int | None = None, jitter: bool = False) -> None:
        global _settings
        count = whole_number("virtual_devices.n", n, minimum=0, error=PlaceError)
        self._before = _settings
        _settings = _Settings(count, seed, jitter)

    def __enter__(self) -> virtual_devices:
        return self

    def __exit__(self, *raised: object) -> None:
        global _settings
        _settings = self._before


class VirtualEvent:
    """Passed once the stream's thread reaches it; carries the first error of the work before it."""

    def __init__(self) -> None:
        self._passed = threading.Event()
        self.error: BaseException | None = None

    def query(self) -> bool:
        """Return whether the event has passed."""
        return self._passed.is_set()

    def synchronize(self) -> None:
        """Block until the event has passed; raise what the work before it raised."""
        self._passed.wait()
        if self.error is not None:
            raise self.error

    def set(self, error: BaseException | None) -> None:
        """Let the event pass."""
        self.error = error
        self._passed.set()


class _Outcome:
    """The first error of a stream's work.

    The stream has it and so has each piece of work, but not the thread: the traceback of an error
    that was raised may hold the stream, and a thread that held the error would keep both for ever.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def run(self, work: Work) -> None:
        """Do ``work``, unless some failed before: like a device, which does nothing more then."""
        if self.error is None:
            try:
                work()
            except BaseException as caught:  # noqa: BLE001 - handed to whoever synchronizes
                self.error = caught

    def reach(self, event: VirtualEvent) -> None:
        """Let ``event`` pass."""
        event.set(self.error)


class VirtualGraph:
    """Work that `VirtualStream.capture` took down, to be done as often as wanted."""

    def __init__(self) -> None:
        self._work: list[Work] = []

    def add(self, work: Work) -> None:
        """Put ``work`` at the end."""
        self._work.append(work)

    def launch(self, stream: VirtualStream) -> None:
        """Enqueue all of it on ``stream``."""
        for work in self._work:
            stream.call(work)


class VirtualStream:
    """A thread that does work in the order in which it was enqueued.

    >>> done = []
    >>> stream = VirtualStream()
    >>> stream.call(lambda: done.append("copy"))
    >>> stream.synchronize()
    >>> done
    ['copy']
    """

    def __init__(self) -> None:
        settings = _settings or _Settings(0)
        delays = None
        if settings.jitter:
            number = next(settings.stream_numbers)
            delays = random.Random(None if settings.seed is None else settings.seed * 1009 + number)
        self._outcome = _Outcome()
        self._graph: VirtualGraph | None = None
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_work_through,
            args=(self._queue, delays),
            name="gpufeed-virtual-stream",
            daemon=True,
        )
        self._start = threading.Lock()
        self._stop = weakref.finalize(self, self._queue.put, None)
        # Leases may hold a stream that is closed: what they wait for then is its end.
        self._last = VirtualEvent()
        self._last.set(None)

    def call(self, work: Work) -> None:
        """Do ``work`` on the stream's thread, after everything enqueued before it.

        What it raises is raised again by the next `synchronize` of this stream or of a later event.
        """
        if self._graph is not None:
            self._graph.add(work)
        else:
            self._put(partial(self._outcome.run, work))

    def wait(self, event: Event) -> None:
        """Hold all work enqueued from now on until ``event`` has passed."""
        self._require_no_capture("wait for an event from outside")
        self.call(event.synchronize)

    def record(self) -> VirtualEvent:
        """Return an event that passes once everything enqueued so far is done."""
        self._require_no_capture("record an event for others")
        if not self._stop.alive:
            return self._last
        event = VirtualEvent()
        self._put(partial(self._outcome.reach, event))
        return event

    def synchronize(self) -> None:
        """Block until everything enqueued so far is done, and raise what it raised."""
        self.record().synchronize()

    def is_capturing(self) -> bool:
        """Return whether `capture` is active."""
        return self._graph is not None

    @contextmanager
    def capture(self) -> Iterator[VirtualGraph]:
        """Put the work that is enqueued inside into a graph, instead of doing it.

        As on CUDA, nothing inside may wait for an event from outside, or record one for others.

        >>> stream, done = VirtualStream(), []
        >>> with stream.capture() as graph:
        ...     stream.call(lambda: done.append("step"))
        >>> for _ in range(2):
        ...     graph.launch(stream)
        >>> stream.close()
        >>> done
        ['step', 'step']
        """
        self._graph = graph = VirtualGraph()
        try:
            yield graph
        finally:
            self._graph = None

    def close(self) -> None:
        """Finish what is enqueued and end the thread; idempotent."""
        self._last = self.record()
        self._stop()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _require_no_capture(self, action: str) -> None:
        if self._graph is not None:
            raise PlaceError(f"VirtualStream: a stream that is captured cannot {action}")

    def _put(self, work: Work) -> None:
        if not self._stop.alive:
            raise PlaceError("VirtualStream: the stream is closed")
        if self._thread.ident is None:
            with self._start:
                if self._thread.ident is None:
                    self._thread.start()
        self._queue.put(work)


def _work_through(queue: SimpleQueue[Work | None], delays: random.Random | None) -> None:
    never = threading.Event()
    while (work := queue.get()) is not None:
        if delays is not None:
            never.wait(delays.uniform(0, _JITTER_S))
        work()
        del work  # or this thread would keep the last batch alive until the next one


_current = threading.local()


@contextmanager
def virtual_stream(place: PlaceLike) -> Iterator[VirtualStream]:
    """Make a new stream of a virtual device the current one of this thread.

    Inside, a feed's ``next()`` makes this stream wait and returns at once, as on a GPU; whatever
    reads the feed has to go through ``stream.call``. The end of the block waits for the stream and
    raises what its work raised.

    >>> with virtual_devices(1), virtual_stream("cuda:0") as stream:
    ...     stream.call(lambda: None)
    ...     stream.synchronize()
    """
    device = as_place(place)
    if not isinstance(device, CUDAPlace) or device.device_id >= num_virtual_devices():
        raise PlaceError(f"virtual_stream.place must be a virtual device, got {device}")
    streams: dict[int, list[VirtualStream]] = _current.__dict__.setdefault("streams", {})
    stack = streams.setdefault(device.device_id, [])
    stream = VirtualStream()
    stack.append(stream)
    try:
        yield stream
        stream.synchronize()
    finally:
        stack.remove(stream)
        stream.close()


class VirtualBackend:
    """One virtual device: NumPy arrays for memory, threads for streams.

    Attributes:
        page_locks: What is page-locked, for all virtual devices.
    """

    page_locks = PageLockBooks()

    def __init__(self, place: CUDAPlace) -> None:
        self.place = place

    def host_memory(self, nbytes: int) -> HostBytes:
        """Allocate host memory."""
        return aligned_bytes(nbytes)

    def page_lock(self, mapping: mmap.mmap) -> bool:
        """Note that memory is page-locked, which changes nothing."""
        self.page_locks.lock(mapping)
        return True

    def page_unlock(self, mapping: mmap.mmap) -> None:
        """Undo `page_lock`."""
        self.page_locks.unlock(mapping)

    def device_memory(self, nbytes: int) -> HostBytes:
        """Allocate "device" memory: a NumPy array."""
        return aligned_bytes(nbytes)

    def stream(self) -> VirtualStream:
        """Make a stream."""
        return VirtualStream()

    def consumer_streams(self) -> list[Stream]:
        """Return the innermost active `virtual_stream` of this thread; none for the host."""
        stack = _current.__dict__.get("streams", {}).get(self.place.device_id)
        return stack[-1:] if stack else []

    def as_stream(self, stream: object) -> Stream:
        """Return the stream, if it is a virtual one."""
        if not isinstance(stream, VirtualStream):
            raise PlaceError(f"{self.place}: stream must be a VirtualStream, got {stream!r}")
        return stream

    def attach_thread(self) -> None:
        """Nothing to prepare: captures of virtual streams know their own stream only."""

    def copy_to_device(self, source: HostBytes, target: Memory, nbytes: int, to: Stream) -> None:
        """Enqueue the copy."""
        assert isinstance(target, np.ndarray)
        to.call(partial(_copy, target[:nbytes], self.page_locks.begin_copy(source[:nbytes])))

    def view(self, memory: Memory, owner: object) -> Array:
        """Return the memory as uint8; its views keep ``owner`` alive."""
        return root_view(owner)

    def array(self, root: Array, offset: int, shape: tuple[int, ...], dtype: object) -> Array:
        """Return a typed view."""
        return view_at(root, offset, shape, dtype)

    def unpacker(self, memory: Memory, fault: HostWords, on: Stream) -> Callable[[bool], None]:
        """Return what runs the kernel on the stream's thread."""
        unpack = prepare_unpack(memory, fault)
        return lambda has_late: on.call(partial(unpack, has_late))

    def fill(self, memory: Memory, value: int, on: Stream) -> None:
        """Enqueue the fill."""
        assert isinstance(memory, np.ndarray)
        on.call(lambda: memory.fill(value))

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Copy the array."""
        return array.copy()

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Copy the array, behind what the current stream has still to do, as CuPy does."""
        self.wait()
        return np.array(array)

    def wait(self) -> None:
        """Block until the current stream has done its work, unless it is the host anyway."""
        for stream in self.consumer_streams():
            stream.synchronize()


def _copy(target: HostBytes, copying: Copying) -> None:
    np.copyto(target, copying.source)
