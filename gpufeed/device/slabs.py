"""Slabs: reused memory that holds a whole batch, and the leases under which users hold them.

Lifetime of a slab:

    free ──acquire──> taken ──lease──> leased ──last view dies──> dead ──recycle──> free
                        └───────────────release───────────────────────────────────────┘

A slab comes back only when *every* view of it is dead, and with the events that must pass before
it may be written again: dropping the last reference is not enough, because streams run later. A
lease's finalizer may run anywhere, in the middle of a held lock too, so it does nothing but put its
slab on a queue; the consumer's next step records the events (`SlabRing.recycle`).

Rings never block a consumer that keeps its feeds: each held feed lets the ring grow by one slab.

Memory of another process may be leased too (`SlabRing.borrow`). It is never free here: the end of
the lease, and nothing later, gives it back.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from gpufeed.device.backend import Event, Memory, Stream

__all__ = ["POISON", "Lease", "RingClosed", "Slab", "SlabRing", "poisoning", "size_class"]

MemoryT = TypeVar("MemoryT", bound=Memory)

POISON = 0xCD
_SMALLEST = 4096


def poisoning() -> bool:
    """Return whether recycled slabs are overwritten with 0xCD (``GPUFEED_POISON=1``)."""
    return os.environ.get("GPUFEED_POISON", "0") not in ("", "0")


def size_class(nbytes: int) -> int:
    """Round up so that sizes grow geometrically: four classes an octave, 25% waste at most.

    >>> size_class(1), size_class(5000), size_class(1 << 20), size_class((1 << 20) + 1)
    (4096, 5120, 1048576, 1310720)
    """
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


class RingClosed(Exception):  # noqa: N818 - an end, not a failure
    """The ring was closed: the pass is over; never reaches the user."""


class Slab(Generic[MemoryT]):
    """One block of memory, who reads it, and what must happen before it may be written again.

    Attributes:
        interface: How NumPy sees memory of the host; None for a device's.
        busy: Events that must pass first.
        streams: That read the slab under its present lease.
        is_delivered: Whether the consumer has the slab, or had it.
        is_borrowed: Whether the memory is somebody else's, who gets it back as the lease ends.
        remains: What the last batch says of what it left there for the next one; None if nothing.
    """

    __slots__ = (
        "__weakref__",
        "busy",
        "interface",
        "is_borrowed",
        "is_delivered",
        "memory",
        "nbytes",
        "remains",
        "streams",
    )

    def __init__(self, memory: MemoryT, *, is_borrowed: bool = False) -> None:
        self.memory = memory
        self.nbytes = memory.nbytes
        self.interface: dict[str, Any] | None = getattr(memory, "__array_interface__", None)
        self.busy: list[Event] = []
        self.streams: list[Stream] = []
        self.is_delivered = False
        self.is_borrowed = is_borrowed
        self.remains: object | None = None

    def is_idle(self) -> bool:
        """Return whether the memory may be written at once."""
        return not self.busy or all(event.query() for event in self.busy)

    def wait(self) -> None:
        """Block the calling thread until the memory may be written."""
        for event in self.busy:
            event.synchronize()
        self.busy = []


def _add_readers(slab: Slab[Any], events: dict[Stream, Event | None]) -> bool:
    """Let ``slab`` be busy until its streams have done what they have; False if one cannot say.

    Args:
        slab: No longer under a lease.
        events: Of each stream, recorded now; None for one that is being captured.
    """
    for stream in slab.streams:
        if stream not in events:
            events[stream] = None if stream.is_capturing() else stream.record()
    read = [event for stream in slab.streams if (event := events[stream]) is not None]
    if len(read) < len(slab.streams):
        return False
    slab.busy += read
    return True


class Lease:
    """Holds one slab for as long as any view of it lives.

    Every array of a feed is based on its lease, so the garbage collector knows when the last one is
    gone. `record_stream` adds a stream that reads the feed to those that are waited for.
    """

    __slots__ = ("__weakref__", "_as_stream", "_dead", "_slab")

    def __init__(
        self,
        slab: Slab[Any],
        dead: SimpleQueue[Slab[Any]],
        as_stream: Callable[[object], Stream | None],
    ) -> None:
        self._slab = slab
        self._dead = dead
        self._as_stream = as_stream

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """How NumPy sees a slab in host memory."""
        if self._slab.interface is None:
            raise AttributeError("the slab is not in host memory")
        return self._slab.interface

    def ready_at(self, event: Event) -> None:
        """Say when the slab's content is complete: not before ``event`` may it be written again."""
        self._slab.busy = [event]

    def record_stream(self, stream: object) -> None:
        """Keep the slab until the work that ``stream`` has at the time of the last view's death.

        Args:
            stream: A stream of the feed's device (ours, CuPy's, torch's, or a DLPack stream).
        """
        found = self._as_stream(stream)
        if found is not None and found not in self._slab.streams:
            self._slab.streams.append(found)

    def __del__(self) -> None:
        if self._slab.is_borrowed:
            del self._slab.memory
        self._dead.put(self._slab)


class SlabRing(Generic[MemoryT]):
    """Slabs that are used again and again, by one producer and one consumer.

    The ring holds at most ``depth + 2`` slabs: ``depth`` ahead, one being filled and one with the
    consumer, whose loop variable keeps its feed until the next one is there. A consumer that keeps
    more feeds is given that many more slabs, which stay until the next pass: one that keeps feeds
    in groups will want them again. All slabs grow to the largest batch seen, in geometric size
    classes, so the number made is bounded whatever the sizes.

    Args:
        allocate: Makes memory of a number of bytes.
        depth: How far the producer runs ahead; None never makes it wait.
        as_stream: Turns what a user calls a stream into one of the backend's.

    Attributes:
        nbytes: Bytes of all slabs, free, taken and leased.
        leased_nbytes: Bytes of the slabs of delivered feeds that were not taken back yet.
        blocked_s: Seconds the producer has waited for the consumer to drop a feed, or for a stream
            to be done with a slab.
        is_waiting_for_stream: Whether the producer does the latter right now.
        num_made: Slabs made so far.
        num_taken: Slabs that are not free.
        num_held: Delivered feeds that were not taken back yet, the current one included.
    """

    def __init__(
        self,
        allocate: Callable[[int], MemoryT],
        depth: int | None = None,
        as_stream: Callable[[object], Stream | None] = lambda stream: None,
    ) -> None:
        self._allocate = allocate
        self._as_stream = as_stream
        self._depth = depth
        self._limit = None if depth is None else depth + 2
        self._usual_free = self._max_free = (2 if depth is None else depth) + 2
        self._free: deque[Slab[MemoryT]] = deque()
        self._dead: SimpleQueue[Slab[MemoryT]] = SimpleQueue()
        self._lock = threading.RLock()  # a finalizer that closes a pass may run inside it
        self._changed = threading.Condition(self._lock)
        self._is_waited_for = False
        self._closed = False
        self._capacity = 0
        self.nbytes = 0
        self.leased_nbytes = 0
        self.is_waiting_for_stream = False
        self.blocked_s = 0.0
        self.num_made = 0
        self.num_taken = 0
        self.num_held = 0

    def acquire(self, nbytes: int) -> Slab[MemoryT]:
        """Take a slab of at least ``nbytes``; the caller sees to its ``busy`` events.

        An idle slab is taken first, then a new one is made while there is room for it, and only
        then one that some stream still works on.

        Raises:
            RingClosed: The ring was closed, before or during the wait.
        """
        with self._lock:
            if not self._is_ready():
                self._wait()
            if self._closed:
                raise RingClosed("SlabRing: closed")
            slab = self._choose(nbytes)
            outgrown = None
            if slab is None and self._free and not self._may_grow():
                outgrown = self._free.popleft()
                self.nbytes -= outgrown.nbytes
            self.num_taken += 1
        if slab is not None:
            return slab
        try:
            if outgrown is not None:
                self._wait_for(outgrown)
                outgrown = None  # its memory makes room for the new one
            return self._make(nbytes)
        except BaseException:
            with self._lock:
                self.num_taken -= 1
            raise

    def acquire_idle(self, nbytes: int) -> Slab[MemoryT]:
        """Take a slab that the host may write at once, waiting for the stream that still reads it.

        Raises:
            RingClosed: The ring was closed, before or during the wait.
        """
        slab = self.acquire(nbytes)
        try:
            self._wait_for(slab)
            if self._closed:
                raise RingClosed("SlabRing: closed")
        except BaseException:
            self.release(slab, *slab.busy)
            raise
        return slab

    def _wait_for(self, slab: Slab[MemoryT]) -> None:
        if slab.busy:
            since_s = time.perf_counter()
            self.is_waiting_for_stream = True
            try:
                slab.wait()
            finally:
                self.is_waiting_for_stream = False
                self.blocked_s += time.perf_counter() - since_s

    def _choose(self, nbytes: int) -> Slab[MemoryT] | None:
        """Take the oldest fitting free slab that is idle, or any if no new one may be made."""
        oldest = None
        for slab in self._free:
            if slab.nbytes >= nbytes:
                if slab.is_idle():
                    self._free.remove(slab)
                    return slab
                oldest = oldest or slab
        if oldest is not None and self._may_grow():
            return None
        if oldest is not None:
            self._free.remove(oldest)
        return oldest

    def _wait(self) -> None:
        since_s = time.perf_counter()
        self._is_waited_for = True
        self._changed.wait_for(self._is_ready)
        self._is_waited_for = False
        self.blocked_s += time.perf_counter() - since_s

    def _is_ready(self) -> bool:
        return bool(self._free) or self._closed or self._may_grow()

    def _may_grow(self) -> bool:
        num_slabs = self.num_taken + len(self._free)
        return len(self._free) < self._max_free and (self._limit is None or num_slabs < self._limit)

    def _make(self, nbytes: int) -> Slab[MemoryT]:
        capacity = max(self._capacity, size_class(nbytes))
        slab = Slab(self._allocate(capacity))
        with self._lock:
            self._capacity = capacity  # not sooner: a batch too large must not spoil later ones
            self.num_made += 1
            self.nbytes += slab.nbytes
        return slab

    def lease(self, slab: Slab[MemoryT]) -> Lease:
        """Hand an acquired slab over to the views that will be made of it."""
        return Lease(slab, self._dead, self._as_stream)

    def borrow(self, memory: MemoryT) -> Lease:
        """Return a lease on memory that another process has written and takes back after it."""
        return self.lease(Slab(memory, is_borrowed=True))

    def deliver(self, lease: Lease, *streams: Stream) -> None:
        """Count ``lease`` as held by the consumer, who reads it on ``streams`` (none: the host)."""
        slab = lease._slab
        slab.is_delivered = True
        slab.streams.extend(streams)
        with self._lock:
            self.num_held += 1
            self.leased_nbytes += slab.nbytes

    def release(self, slab: Slab[MemoryT], *busy: Event) -> None:
        """Give back a slab that nobody has a view of, to be written after ``busy``."""
        with self._lock:
            slab.busy = list(busy)
            self.num_taken -= 1
            self._free.append(slab)
            self._trim()
            self._changed.notify_all()

    def recycle(self) -> None:
        """Give back the slabs of all leases that died; call it on the consumer's thread.

        Records one event a stream, however many leases died since the last call. A stream that is
        being captured can record none, so its slabs come back with a later call.
        """
        events: dict[Stream, Event | None] = {}
        captured = []
        with self._lock:
            while not self._dead.empty():
                slab = self._dead.get()
                if slab.streams and not _add_readers(slab, events):
                    captured.append(slab)
                    continue
                self.num_held -= slab.is_delivered
                self.leased_nbytes -= slab.nbytes * slab.is_delivered
                slab.streams, slab.is_delivered = [], False
                if not slab.is_borrowed:
                    self.num_taken -= 1
                    self._free.append(slab)
            for slab in captured:
                self._dead.put(slab)
            if self._depth is not None:
                self._limit = self._depth + 1 + max(1, self.num_held)
                self._max_free = max(self._max_free, self._limit)
            if len(self._free) > self._max_free:
                self._trim()
            if self._is_waited_for:
                self._changed.notify_all()

    def _trim(self) -> None:
        """Free what is too much, unless a stream still reads it: the host would have to wait."""
        surplus = len(self._free) - self._max_free
        if surplus <= 0:
            return
        for slab in [slab for slab in self._free if slab.is_idle()][:surplus]:
            self._free.remove(slab)
            self.nbytes -= slab.nbytes

    def open(self) -> None:
        """Serve a new pass, after `close` too."""
        with self._lock:
            self._closed = False
            self._max_free = self._usual_free

    def close(self) -> None:
        """Wake a waiting producer and refuse it. Slabs stay, free or leased, for the next pass."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
