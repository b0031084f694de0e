"""Staging: where a planned batch is written, and how it gets to its place.

A batch is written once: into a slab, or by another process into shared memory. On `CPUPlace` the
user receives views of that. For a device it is page-locked, sent by one asynchronous copy into a
device slab, and unpacked there (widened, densified) on a second stream, so that the copy stream
only ever copies:

    copy stream    wait(slab's last readers)  copy ── record(copied)
    unpack stream                             wait(copied)  kernels ── record(ready)
    consumer's                                              wait(ready)  compute ...

The host never waits for a stream here, except for page-locked memory that is still being read.

Faults: a kernel cannot raise. An index outside its row is left out, and noted in page-locked memory
of the staging's own, where a later step, or the end of the pass, finds it and raises.

A feeder has one copy stream and one unpack stream a device for its whole life, whatever runs on
that device: passes one after the other or at once, and places that repeat. Their copies would
share the one copy engine anyway. Nothing can wait in a circle, since every event is recorded before
anything waits for it, so that all waits point back in time; but a copy may stand behind one that
waits for the consumer of another pass on that device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from gpufeed.device import backend_for
from gpufeed.device.backend import Array, Backend, Event, HostBytes, Memory, Stream
from gpufeed.device.faults import Checked, Faults
from gpufeed.device.host import view_at
from gpufeed.device.slabs import POISON, Lease, Slab, SlabRing, poisoning
from gpufeed.device.sources import InFlight, Source
from gpufeed.errors import FieldError, PlaceError
from gpufeed.kernels.jobs import FAULT_WORDS
from gpufeed.places import Place

__all__ = [
    "DeviceStaging",
    "DeviceStreams",
    "MakeArray",
    "Plan",
    "Staged",
    "Staging",
]

MakeArray = Callable[[int, tuple[int, ...], object], Array]
FeedT = TypeVar("FeedT")
FeedT_co = TypeVar("FeedT_co", covariant=True)


class Plan(Protocol[FeedT_co]):
    """A batch whose sizes are known, still to be written; `gpufeed.collate` makes them.

    A slab is a wire prefix, filled by the transfer, and an unpacked region, filled by kernels.
    """

    @property
    def wire_nbytes(self) -> int:
        """Bytes that travel."""

    @property
    def nbytes(self) -> int:
        """Bytes of the whole slab; more than `wire_nbytes` if something is unpacked."""

    @property
    def source(self) -> Source | None:
        """What travels, where another process has written it; else `write` does."""

    @property
    def num_launches(self) -> int:
        """Launches of the kernel that does what the table in the wire prefix says; 0 to 2."""

    @property
    def checked(self) -> Checked:
        """Where that kernel may find a fault, an index outside its row; empty if nowhere."""

    def write(self, make: MakeArray) -> None:
        """Write every value, once, into arrays of host memory.

        Args:
            make: Makes an array of the wire prefix there, given its first byte, shape and dtype.
        """

    def settle(self, slab_nbytes: int, remains: object | None) -> object | None:
        """Learn how large the slab is and what the last plan left there; return what this leaves.

        Comes before the table and the feed. What is left is there once this plan is unpacked.
        """

    def write_table(self, make: MakeArray, number: int = 0, first: int = 0) -> None:
        """Write what that kernel is told (`gpufeed.kernels.jobs`), if there is anything to do.

        Args:
            make: As for `write`.
            number: Of the batch.
            first: Number of the first batch whose faults count.
        """

    def feed(self, make: MakeArray, lease: Lease) -> FeedT_co:
        """Return what the user gets: tensors over arrays that ``make`` makes of the slab."""


@dataclass(slots=True)
class Staged(Generic[FeedT]):
    """A feed on its way: complete once ``ready`` has passed (None: already).

    Attributes:
        number: Of the batch, among all of its staging.
    """

    feed: FeedT
    lease: Lease
    ready: Event | None
    nbytes: int
    number: int = 0


class Staging(Protocol):
    """One place's rings and streams, used by one producer and one consumer at a time."""

    @property
    def place(self) -> Place:
        """Where the feeds live."""

    @property
    def rings(self) -> list[SlabRing[Any]]:
        """Its slabs; the first ring's are what the user holds."""

    @property
    def blocked_s(self) -> float:
        """Seconds `stage` has waited for the consumer to drop a feed, or for a stream."""

    @property
    def is_waiting_for_stream(self) -> bool:
        """Whether `stage` does the latter right now, which nothing can cut short."""

    def attach_thread(self) -> None:
        """Prepare the calling thread, which is the producer's own, for `stage`."""

    def require_no_capture(self, stream: object | None) -> None:
        """Refuse to feed a consumer whose work goes into a graph now.

        Raises:
            PlaceError: It does: the stream that is named, or a current one.
        """

    def stage(self, plan: Plan[FeedT]) -> Staged[FeedT]:
        """Write a batch and start its transfer; runs on the producer's thread."""

    def deliver(self, staged: Staged[FeedT], stream: object | None = None) -> FeedT:
        """Return the feed, ordered before whatever the consumer enqueues next.

        Raises:
            FieldError: This feed or an earlier one of the pass is known to have a fault.
        """

    def finish(self) -> None:
        """Wait until it is known of all feeds of the pass whether they have a fault.

        Raises:
            FieldError: One has.
        """

    def untold(self) -> FieldError | None:
        """Return the fault that is known of the feeds of the pass, if it was not raised."""

    def consumers(self, stream: object | None = None) -> list[Stream]:
        """Return the streams that read the feed delivered to ``stream``; none for the host."""

    def recycle(self) -> None:
        """Take back what the consumer has dropped; runs on the consumer's thread."""

    def open(self, first_step: int = 0) -> None:
        """Serve a new pass, which begins with this step."""

    def drain(self) -> None:
        """Wait until nothing reads the memory of others any more; on the producer's thread."""

    def close(self) -> None:
        """End the pass: wake a waiting producer and refuse it."""


class DeviceStreams:
    """The streams that batches reach one device by: copies on one, kernels on the other."""

    def __init__(self, place: Place) -> None:
        self.backend: Backend = backend_for(place)
        self.copy: Stream = self.backend.stream()
        self.unpack: Stream = self.backend.stream()


class DeviceStaging:
    """Batches sent to one device by one copy each, on streams that are not the consumer's."""

    def __init__(
        self, place: Place, depth: int | None = None, streams: DeviceStreams | None = None
    ) -> None:
        streams = streams or DeviceStreams(place)
        self.place = place
        self.backend = streams.backend
        self.copy_stream, self.unpack_stream = streams.copy, streams.unpack
        self.host_ring = SlabRing(self.backend.host_memory, depth)
        self.device_ring = SlabRing(self.backend.device_memory, depth, self.backend.as_stream)
        self._in_flight = InFlight((2 if depth is None else depth) + 2)
        words = self.backend.host_memory(FAULT_WORDS * 8)
        words.fill(0)
        self._faults = Faults(words.view(np.int64))
        self._unpackers: WeakKeyDictionary[Slab[Memory], Callable[[bool], None]]
        self._unpackers = WeakKeyDictionary()
        self._is_poisoning = poisoning()

    @property
    def rings(self) -> list[SlabRing[Any]]:
        """Device slabs, and the page-locked ones they are filled from."""
        return [self.device_ring, self.host_ring]

    @property
    def blocked_s(self) -> float:
        """Seconds `stage` has waited for the consumer to drop a feed, or for a stream."""
        return sum(ring.blocked_s for ring in self.rings) + self._in_flight.blocked_s

    @property
    def is_waiting_for_stream(self) -> bool:
        """Whether `stage` waits for a stream right now."""
        is_draining = self._in_flight.is_waiting_for_stream
        return is_draining or any(ring.is_waiting_for_stream for ring in self.rings)

    def attach_thread(self) -> None:
        """Prepare the calling thread, which is the producer's own, for `stage`."""
        self.backend.attach_thread()

    def require_no_capture(self, stream: object | None) -> None:
        """Refuse to feed a consumer whose work goes into a graph now."""
        if any(found.is_capturing() for found in self.consumers(stream)):
            raise PlaceError(
                f"{self.place}: a feed must be taken outside of graph capture, got one in capture; "
                "take it before, and use static=True for a graph that is replayed on every feed"
            )

    def stage(self, plan: Plan[FeedT]) -> Staged[FeedT]:
        """Enqueue the copy of a batch out of page-locked memory, and its kernels."""
        host, let_go = self._page_locked(plan)
        copied: list[Event] = []
        try:
            device = self.device_ring.acquire(plan.nbytes)
            remains, device.remains = device.remains, None
            lease = self.device_ring.lease(device)
            for event in device.busy:
                self.copy_stream.wait(event)
            if self._is_poisoning:
                self.backend.fill(device.memory, POISON, self.copy_stream)
                remains = None
            remains = plan.settle(device.nbytes, remains)
            number = self._faults.begin()
            plan.write_table(partial(view_at, host), number, self._faults.first)
            self.backend.copy_to_device(host, device.memory, plan.wire_nbytes, self.copy_stream)
            copied.append(self.copy_stream.record())
        finally:
            let_go(*copied)
        ready = copied[0]
        lease.ready_at(ready)
        if plan.num_launches:
            self.unpack_stream.wait(ready)
            self._unpack(device, has_late=plan.num_launches > 1)
            ready = self.unpack_stream.record()
            lease.ready_at(ready)
            device.remains = remains
            if plan.checked:
                self._faults.follow(number, plan.checked, ready)
        make = partial(self.backend.array, self.backend.view(device.memory, lease))
        return Staged(plan.feed(make, lease), lease, ready, plan.nbytes, number)

    def _unpack(self, slab: Slab[Memory], *, has_late: bool) -> None:
        """Enqueue what the slab's table says; the same call for all batches in this slab."""
        unpack = self._unpackers.get(slab)
        if unpack is None:
            unpack = self._unpackers[slab] = self.backend.unpacker(
                slab.memory, self._faults.words, self.unpack_stream
            )
        unpack(has_late)

    def _page_locked(self, plan: Plan[Any]) -> tuple[HostBytes, Callable[..., None]]:
        """Return the batch in page-locked memory, and what takes that back, after given events."""
        self._in_flight.make_room()
        source = plan.source
        if source is not None and source.lock(self.backend):
            return source.memory, partial(self._in_flight.add, source)
        host = self.host_ring.acquire_idle(plan.wire_nbytes)
        try:
            if self._is_poisoning:
                host.memory.fill(POISON)
            if source is None:
                plan.write(partial(view_at, host.memory))
            else:
                source.copy_to(host.memory)
        except BaseException:
            self.host_ring.release(host)
            raise
        return host.memory, partial(self.host_ring.release, host)

    def deliver(self, staged: Staged[FeedT], stream: object | None = None) -> FeedT:
        """Make the consumer's stream wait for the feed, or the host where that is the consumer."""
        assert staged.ready is not None
        consumers = self.consumers(stream)
        # Comes first: the traceback of what is raised below keeps the slab as a feed does.
        self.device_ring.deliver(staged.lease, *consumers)
        if not consumers:
            staged.ready.synchronize()
        self._faults.deliver(staged.number)
        for consumer in consumers:
            consumer.wait(staged.ready)
        return staged.feed

    def finish(self) -> None:
        """Wait for the last feed whose indices are checked on the device."""
        self._faults.finish()

    def untold(self) -> FieldError | None:
        """Return the fault that is known of the feeds of the pass, if it was not raised."""
        return self._faults.untold()

    def consumers(self, stream: object | None = None) -> list[Stream]:
        """Return the streams that read the feed delivered to ``stream``; none for the host."""
        if stream is None:
            return self.backend.consumer_streams()
        return [self.backend.as_stream(stream)]

    def recycle(self) -> None:
        """Take back what the consumer has dropped, behind the streams that read it."""
        self.device_ring.recycle()

    def open(self, first_step: int = 0) -> None:
        """Serve a new pass."""
        self._faults.open(first_step)
        self.device_ring.open()
        self.host_ring.open()

    def drain(self) -> None:
        """Wait for the copies that read what other processes have written."""
        self._in_flight.drain()

    def close(self) -> None:
        """End the pass."""
        self.device_ring.close()
        self.host_ring.close()
