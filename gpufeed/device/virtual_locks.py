"""What virtual devices have page-locked, in books that tell a wrong use as no driver would.

Real memory that is unlocked during a copy, or unmapped while it is locked, is read by the device
where something else may be by then; nothing says so.
"""

from __future__ import annotations

import mmap
import weakref
from queue import SimpleQueue

import numpy as np

from gpufeed.device.backend import HostBytes
from gpufeed.errors import PlaceError

__all__ = ["Copying", "PageLockBooks"]


class Copying:
    """A copy that is under way, for as long as the work that does it holds this.

    Attributes:
        source: What is copied. Of locked memory it keeps the mapping alive and nothing else: a
            device knows no owners, so whoever lets others write there too early is found out.
    """

    __slots__ = ("__weakref__", "source")

    def __init__(self, source: HostBytes) -> None:
        self.source = source


class _Lock:
    """One mapping that is locked."""

    def __init__(self, mapping: mmap.mmap, unmapped: SimpleQueue[int]) -> None:
        # Its address, as that is how a copy names its source.
        self.begin = begin = np.frombuffer(mapping, np.uint8).ctypes.data
        self.copies: weakref.WeakSet[Copying] = weakref.WeakSet()
        # A finalizer may run anywhere, and does no more than this.
        self._mapping = weakref.ref(mapping, lambda _: unmapped.put(begin))

    def begin_copy(self, address: int, nbytes: int) -> Copying | None:
        """Note a copy of ``nbytes`` at ``address``; None if they are not of this mapping."""
        mapping, offset = self._mapping(), address - self.begin
        if mapping is None or not 0 <= offset < len(mapping):
            return None
        copying = Copying(np.frombuffer(mapping, np.uint8)[offset : offset + nbytes])
        self.copies.add(copying)
        return copying


class PageLockBooks:
    """The memory that is page-locked, by address; one for all virtual devices, as by CUDA's driver.

    >>> books, mapping = PageLockBooks(), mmap.mmap(-1, 4096)
    >>> books.lock(mapping)
    >>> len(books.locked)
    1
    >>> books.unlock(mapping)
    >>> books.locked
    []
    """

    def __init__(self) -> None:
        self._locks: dict[int, _Lock] = {}
        self._unmapped: SimpleQueue[int] = SimpleQueue()

    @property
    def locked(self) -> list[int]:
        """The addresses of all that is locked."""
        return list(self._locks)

    def lock(self, mapping: mmap.mmap) -> None:
        """Note that a mapping is locked.

        Raises:
            PlaceError: It is already, or one was unmapped while it was.
        """
        self._require_mapped()
        lock = _Lock(mapping, self._unmapped)
        if lock.begin in self._locks:
            raise PlaceError(f"page_lock.mapping must not be locked already, got {mapping!r}")
        self._locks[lock.begin] = lock

    def unlock(self, mapping: mmap.mmap) -> None:
        """Note that a mapping is no longer locked.

        Raises:
            PlaceError: It was not, or a copy still reads it, or one was unmapped while it was.
        """
        self._require_mapped()
        lock = self._locks.pop(np.frombuffer(mapping, np.uint8).ctypes.data, None)
        if lock is None:
            raise PlaceError(f"page_unlock.mapping must be locked, got {mapping!r}")
        if lock.copies:
            raise PlaceError(
                f"page_unlock.mapping must not be read by a copy, got {len(lock.copies)} under way"
            )

    def begin_copy(self, source: HostBytes) -> Copying:
        """Note that a copy of ``source`` is under way, and return what to hold until it is done."""
        for lock in list(self._locks.values()):  # other threads may lock more
            copying = lock.begin_copy(source.ctypes.data, source.nbytes)
            if copying is not None:
                return copying
        return Copying(source)

    def _require_mapped(self) -> None:
        """Raise once if memory was unmapped while it was locked."""
        if not self._unmapped.empty():
            self._locks.pop(begin := self._unmapped.get(), None)
            raise PlaceError(
                f"page-locked memory must be unlocked before it is unmapped, got {begin:#x}"
            )
