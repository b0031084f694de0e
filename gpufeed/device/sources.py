"""Batches that another process has written: sent from shared memory, which is page-locked for it.

Lifetime of a mapping of shared memory:

    mapped ──first batch──> page-locked ──pass and every copy over──> unlocked ──> unmapped
                                 └──────────outgrown, by then──────────┘

Lifetime of a batch in it: arrived -> in flight -> dropped, by which its part of the mapping goes
back to the process that wrote it. Only the event recorded after its copy moves it out of flight.

Nothing here runs in a finalizer. The producer looks at the events, with each batch that it sends
and at the end of its pass.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from contextlib import ExitStack

import numpy as np

from gpufeed.device.backend import Backend, Event, HostBytes

__all__ = ["InFlight", "PageLocks", "Source"]

_NOTHING: HostBytes = np.empty(0, np.uint8)


class PageLocks:
    """The mappings that one pass has page-locked; what keeps them mapped until they are unlocked.

    Attributes:
        nbytes: How much is locked now.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._locked: dict[int, tuple[mmap.mmap, Backend]] = {}
        self._num_in_flight = 0
        self._is_refused = self._is_closed = False
        self._owner = os.getpid()

    def lock(self, mapping: mmap.mmap, backend: Backend) -> bool:
        """Page-lock a mapping, unless it is already; False once that has been refused."""
        if id(mapping) in self._locked:
            return True
        self._unlock_outgrown()
        if self._is_refused or not backend.page_lock(mapping):
            self._is_refused = True
            return False
        self._locked[id(mapping)] = mapping, backend
        self.nbytes += len(mapping)
        return True

    def begin(self) -> None:
        """Say that a copy reads a locked mapping from now on."""
        self._num_in_flight += 1

    def end(self) -> None:
        """Say that one is done."""
        self._num_in_flight -= 1
        self._unlock_if_over()

    def close(self) -> None:
        """Unlock all mappings, as soon as no copy reads them any more."""
        self._is_closed = True
        self._unlock_if_over()

    def _unlock_if_over(self) -> None:
        if not self._is_closed or self._num_in_flight or os.getpid() != self._owner:
            return  # a fork has no part in what its parent has locked
        while self._locked:
            self._unlock(next(iter(self._locked)))

    def _unlock_outgrown(self) -> None:
        """Unlock what whoever wrote it has given up, which it does where no copy reads it."""
        locked = self._locked.items()
        for key in [key for key, (each, _) in locked if getattr(each, "is_outgrown", False)]:
            self._unlock(key)

    def _unlock(self, key: int) -> None:
        mapping, backend = self._locked.pop(key)
        self.nbytes -= len(mapping)
        backend.page_unlock(mapping)

    def __enter__(self) -> PageLocks:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Source:
    """A batch as another process wrote it: the bytes that travel.

    Args:
        memory: The bytes.
        mapping: Of shared memory, in which they are; None if they are a copy.
        locks: Of the pass.

    Attributes:
        memory: The bytes; none once they were dropped.
    """

    __slots__ = ("_is_in_flight", "_locks", "_mapping", "memory")

    def __init__(self, memory: HostBytes, mapping: mmap.mmap | None, locks: PageLocks) -> None:
        self.memory = memory
        self._mapping = mapping
        self._locks = locks
        self._is_in_flight = False

    def lock(self, backend: Backend) -> bool:
        """Return whether ``backend`` may copy the bytes from where they are: page-locked."""
        return self._mapping is not None and self._locks.lock(self._mapping, backend)

    def copy_to(self, memory: HostBytes) -> None:
        """Copy the bytes to the start of ``memory``, at once, and drop them here."""
        memory[: len(self.memory)] = self.memory
        self.drop()

    def send(self) -> None:
        """Say that a copy reads the bytes where they are, and keeps them locked, until `drop`."""
        self._is_in_flight = True
        self._locks.begin()

    def drop(self) -> None:
        """Let the process that wrote the bytes use their place again."""
        self.memory = _NOTHING
        if self._is_in_flight:
            self._is_in_flight = False
            self._locks.end()


class InFlight:
    """Batches that copies still read where another process wrote them, oldest first.

    Args:
        limit: Most of them; one more has to wait for the oldest.

    Attributes:
        blocked_s: Seconds spent waiting for copies.
        is_waiting_for_stream: Whether that is going on right now.
    """

    def __init__(self, limit: int) -> None:
        self.blocked_s = 0.0
        self.is_waiting_for_stream = False
        self._limit = limit
        self._sources: deque[tuple[Source, Event]] = deque()

    def make_room(self) -> None:
        """Drop what has been copied, and wait until there is room for one more."""
        sources = self._sources
        while sources and (len(sources) >= self._limit or sources[0][1].query()):
            self._drop_oldest()

    def drain(self) -> None:
        """Wait for all copies, and drop what they read even if one of them has failed."""
        with ExitStack() as dropping:
            for _ in self._sources:
                dropping.callback(self._drop_oldest)

    def add(self, source: Source, *copied: Event) -> None:
        """Keep a batch until the event after its copy; without one, nothing reads it."""
        if not copied:
            source.drop()
        for event in copied:
            source.send()
            self._sources.append((source, event))

    def _drop_oldest(self) -> None:
        source, copied = self._sources.popleft()
        try:
            self._wait(copied)
        finally:
            source.drop()

    def _wait(self, copied: Event) -> None:
        since_s = time.perf_counter()
        self.is_waiting_for_stream = True
        try:
            copied.synchronize()
        finally:
            self.is_waiting_for_stream = False
            self.blocked_s += time.perf_counter() - since_s
