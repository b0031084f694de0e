"""The stagings of a feeder: which there are, who uses them now, and what they hold."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any
from weakref import WeakSet

from gpufeed.device.host_staging import HostStaging
from gpufeed.device.slabs import SlabRing
from gpufeed.device.sources import PageLocks
from gpufeed.device.staging import DeviceStaging, DeviceStreams, Staging
from gpufeed.places import CUDAPlace, Place

__all__ = ["StagingPool"]


class StagingPool:
    """The stagings of one feeder, kept from pass to pass: slabs and streams live as long as it.

    A staging serves one pass at a time. Two passes that run at once get one each.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[int, Place, int | None], list[Staging]] = {}
        self._all: WeakSet[Staging] = WeakSet()
        self._page_locks: WeakSet[PageLocks] = WeakSet()
        self._streams: dict[Place, DeviceStreams] = {}
        self._lock = threading.RLock()  # a finalizer that ends a pass may run inside it

    def borrow(
        self, places: Sequence[Place], depth: int | None, first_step: int = 0
    ) -> list[Staging]:
        """Take one staging for each place, for a pass; a place may repeat.

        Raises:
            PlaceError: A place is a device that is not there.
        """
        return [self.take(slot, place, depth, first_step) for slot, place in enumerate(places)]

    def take(self, slot: int, place: Place, depth: int | None, first_step: int = 0) -> Staging:
        """Take the staging of one place; ``slot`` tells places that repeat apart."""
        with self._lock:
            for idle in chain.from_iterable(self._idle.values()):
                idle.open()  # feeds that were kept past the end of a pass may be gone by now,
                idle.recycle()  # and their slabs are more than the next pass needs
            mine = self._idle.get((slot, place, depth))
            staging = mine.pop() if mine else None
        if staging is None:
            staging = self._make(place, depth)
            with self._lock:
                self._all.add(staging)
        staging.open(first_step)
        return staging

    def _make(self, place: Place, depth: int | None) -> Staging:
        if not isinstance(place, CUDAPlace):
            return HostStaging(place, depth)
        with self._lock:
            streams = self._streams.get(place)
            if streams is None:
                streams = self._streams[place] = DeviceStreams(place)
        return DeviceStaging(place, depth, streams)

    def give_back(self, stagings: Sequence[Staging], depth: int | None) -> None:
        """Return what `borrow` gave, once nobody produces or consumes with it any more."""
        with self._lock:
            for slot, staging in enumerate(stagings):
                self._idle.setdefault((slot, staging.place, depth), []).append(staging)

    def page_locks(self) -> PageLocks:
        """Return what keeps the page locks of one pass, to be closed at its end."""
        locks = PageLocks()
        with self._lock:
            self._page_locks.add(locks)
        return locks

    @property
    def num_held(self) -> int:
        """Delivered feeds that were not taken back yet, the current ones included."""
        with self._lock:
            return sum(staging.rings[0].num_held for staging in self._all)

    @property
    def num_slabs(self) -> int:
        """Slabs made so far."""
        return sum(ring.num_made for ring in self._rings())

    @property
    def nbytes(self) -> int:
        """Bytes of all slabs, free and leased."""
        return sum(ring.nbytes for ring in self._rings())

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the page-locked slabs, and of shared memory that is page-locked now."""
        with self._lock:
            slabs = sum(ring.nbytes for staging in self._all for ring in staging.rings[1:])
            return slabs + sum(locks.nbytes for locks in self._page_locks)

    @property
    def leased_nbytes(self) -> int:
        """Bytes of the slabs of delivered feeds that were not taken back yet."""
        with self._lock:
            return sum(staging.rings[0].leased_nbytes for staging in self._all)

    def _rings(self) -> list[SlabRing[Any]]:
        with self._lock:
            return [ring for staging in self._all for ring in staging.rings]
