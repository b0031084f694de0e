"""Shared memory that one process writes and another reads: a file without a name, cut into slots.

The file is passed on by its descriptor and has no name (a memfd, or a temporary file that is
deleted already), so it is gone with the last process that holds it, however these end.

Lifetime: a slot is one mapping of its own, which every view of it keeps alive. So a view may
outlive the segment, the pass and the reader.

Only the writer makes slots, at the end of the file. They are never returned to the system before
the file is; they are used again, the last one first, while it is still in the caches.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

from gpufeed.errors import ReaderError

__all__ = ["MAX_SLOTS", "Segment", "Slot", "Status", "free_nbytes", "require_free"]

# Of a segment. No box ever holds more frames than this, so no pipe between boxes can be full of
# records about them, and giving back a slot never blocks.
MAX_SLOTS = 512

# Pages are only taken from the system when they are written, so slots may be roomy.
MIN_SLOT_NBYTES = 1 << 18
# In front of the slots: what a process that is killed has to leave behind (`Segment.status`).
_STATUS_NBYTES = mmap.ALLOCATIONGRANULARITY
_STATUS = struct.Struct("<6q")
_BEGUN = struct.Struct("<2q")  # the first of them


class Slot(NamedTuple):
    """A piece of a segment, as one process tells it another: both map it for themselves."""

    offset: int
    nbytes: int


class Status(NamedTuple):
    """What its writer is doing, for whoever finds it dead.

    Attributes:
        number: Of the last sample that it began to make; -1 before the first, -2 while it starts.
        is_making: 1 while it makes it, 0 once that is written.
        frame: Number of the frame that it is filling, from 1; 0 before the first.
        num_entries: How many entries of that frame are complete.
        slot: Of that frame.
    """

    number: int
    is_making: int
    frame: int
    num_entries: int
    slot: Slot


class Segment:
    """Shared memory, as one process sees it.

    >>> segment = Segment.create("example")
    >>> slot = segment.grow(100)
    >>> segment.view(slot)[:5] = b"hello"
    >>> other = Segment(os.dup(segment.fileno()))
    >>> bytes(other.view(slot)[:5])
    b'hello'
    >>> segment.close(), other.close()
    (None, None)

    Args:
        fd: Of the file; it belongs to this object from now on.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._status = mmap.mmap(fd, _STATUS_NBYTES)
        self._maps: dict[int, mmap.mmap] = {}
        self._end = _STATUS_NBYTES

    @classmethod
    def create(cls, name: str) -> Segment:
        """Return a new, empty segment; ``name`` is what process listings show of it."""
        fd = _nameless_file(name)
        os.ftruncate(fd, _STATUS_NBYTES)
        segment = cls(fd)
        segment.say(-2, 0, 0, 0, Slot(0, 0))
        return segment

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._fd

    @property
    def num_slots(self) -> int:
        """How many slots were made or seen."""
        return len(self._maps)

    def grow(self, nbytes: int) -> Slot:
        """Return a new slot for at least ``nbytes``; for the writer only."""
        size = max(MIN_SLOT_NBYTES, 1 << (nbytes - 1).bit_length())
        slot = Slot(self._end, size)
        os.ftruncate(self._fd, self._end + size)
        self._end += size
        return slot

    def map(self, slot: Slot) -> mmap.mmap:
        """Return the mapping of a slot, always the same one."""
        found = self._maps.get(slot.offset)
        if found is None:
            found = self._maps[slot.offset] = mmap.mmap(self._fd, slot.nbytes, offset=slot.offset)
        return found

    def view(self, slot: Slot) -> memoryview:
        """Return the bytes of a slot."""
        return memoryview(self.map(slot))

    def status(self) -> Status:
        """Return what the writer was doing when it last said."""
        number, is_making, frame, num_entries, *slot = _STATUS.unpack_from(self._status)
        return Status(number, is_making, frame, num_entries, Slot(*slot))

    def say(self, number: int, is_making: int, frame: int, num_entries: int, slot: Slot) -> None:
        """Say what the writer is doing, as a `Status`."""
        _STATUS.pack_into(self._status, 0, number, is_making, frame, num_entries, *slot)

    def say_begun(self, number: int) -> None:
        """Say that the writer makes a sample, and nothing else that is new."""
        _BEGUN.pack_into(self._status, 0, number, 1)

    def close(self) -> None:
        """Give up this process's share of the memory, but for slots that something still views."""
        self._maps.clear()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._status.close()
            os.close(fd)


def _nameless_file(name: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"gpufeed-{name}", os.MFD_CLOEXEC)
    import tempfile  # a sixth of what a worker imports, if it did so above

    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryFile(prefix="gpufeed-", dir=folder) as file:
        return os.dup(file.fileno())


def free_nbytes() -> int | None:
    """Return how much shared memory this process can still take; None where nobody says.

    A memfd counts as memory, of the machine and of the container (cgroup version 2).
    """
    if not hasattr(os, "memfd_create"):
        import tempfile

        folder = os.statvfs("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
        return folder.f_bavail * folder.f_frsize
    limits = [_available_memory(), _left_to_container()]
    return min((limit for limit in limits if limit is not None), default=None)


def require_free(stage: str, nbytes: int) -> None:
    """Check, before any worker starts, that there is shared memory for it.

    Raises:
        ReaderError: There are fewer than ``nbytes``.
    """
    free = free_nbytes()
    if free is not None and free < nbytes:
        raise ReaderError(
            f"{stage}: its workers need {nbytes / 2**20:.0f} MiB of shared memory to start, and "
            f"{free / 2**20:.0f} MiB are free; use fewer processes, or give the container more"
        )


def _available_memory() -> int | None:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left_to_container() -> int | None:
    limit, used = _text("/sys/fs/cgroup/memory.max"), _text("/sys/fs/cgroup/memory.current")
    if not (limit.strip().isdecimal() and used.strip().isdecimal()):
        return None
    cache = [
        int(line.split()[1])
        for line in _text("/sys/fs/cgroup/memory.stat").splitlines()
        if line.startswith("inactive_file ")
    ]
    return max(0, int(limit) - int(used) + sum(cache))


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
