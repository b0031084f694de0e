"""Shared memory that one process writes and another reads: a file without a name, cut into slots.

The file is passed on by its descriptor and has no name (a memfd, or a temporary file that is
deleted already), so it is gone with the last process that holds it, however these end.

Lifetime: a slot is one mapping of its own, which every view of it keeps alive. So a view may
outlive the segment, the pass and the reader.

Only the writer makes slots, at the end of the file; a large one an eighth too large at most. They
are used again, the last one first, while it is still in the caches. One that is free and too small
makes room for a larger one: its pages are given back at once, so that sizes which vary take no more
memory than the largest would, and who reads unmaps it when the next slot is mapped.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import NamedTuple

from gpufeed.errors import ReaderError

__all__ = [
    "MAX_SLOTS",
    "MAX_UNSENT",
    "FrameStatus",
    "Segment",
    "Slot",
    "Status",
    "free_nbytes",
    "require_free",
]

# Of a segment. No box ever holds more frames than this, so no pipe between boxes can be full of
# records about them, and giving back a slot never blocks.
MAX_SLOTS = 512

# Frames that are done and that nobody was told of yet, besides the one that is being filled.
MAX_UNSENT = 7

# Pages are only taken from the system when they are written, or page-locked, so small slots may be
# roomy.
MIN_SLOT_NBYTES = 1 << 18
# In front of the slots: what a process that is killed has to leave behind (`Segment.status`).
_STATUS_NBYTES = mmap.ALLOCATIONGRANULARITY
# It is made of numbers of 8 bytes, each written at once, since a process may be killed between any
# two: those of `Status`, and for each of the last frames those of `FrameStatus`, the slot's two.
_STATUS_SIZE, _FRAME_SIZE = 2, 4
_NUM_FRAMES = MAX_UNSENT + 1
# Behind them, how many slots were outgrown so far, and the offsets of the last ones.
_OUTGROWN = _STATUS_SIZE + _NUM_FRAMES * _FRAME_SIZE
_NUM_OUTGROWN = _STATUS_NBYTES // 8 - _OUTGROWN - 1


class Slot(NamedTuple):
    """A piece of a segment, as one process tells it another: both map it for themselves."""

    offset: int
    nbytes: int


class Status(NamedTuple):
    """What its writer is doing, for whoever finds it dead.

    Attributes:
        number: Of the last sample that it began to make; -1 before the first, -2 while it starts.
        is_making: 1 while it makes it, 0 once that is written.
    """

    number: int
    is_making: int


class FrameStatus(NamedTuple):
    """What its writer has written into one frame.

    Attributes:
        frame: Its number, from 1.
        num_entries: How many entries are complete.
        slot: Where it is.
    """

    frame: int
    num_entries: int
    slot: Slot


class Mapping(mmap.mmap):
    """A slot, mapped.

    Attributes:
        is_outgrown: Whether nothing will be written here any more, nor is anything read.
    """

    is_outgrown = False


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
        self._status = memoryview(mmap.mmap(fd, _STATUS_NBYTES)).cast("q")
        self._maps: dict[int, Mapping] = {}
        self._end = _STATUS_NBYTES
        self._num_outgrown = 0

    @classmethod
    def create(cls, name: str) -> Segment:
        """Return a new, empty segment; ``name`` is what process listings show of it."""
        fd = _nameless_file(name)
        try:
            os.ftruncate(fd, _STATUS_NBYTES)
            segment = cls(fd)
        except OSError:
            os.close(fd)
            raise
        segment._status[0] = -2
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
        size = _size_class(nbytes)
        slot = Slot(self._end, size)
        os.ftruncate(self._fd, self._end + size)
        self._end += size
        return slot

    def give_up(self, slot: Slot) -> None:
        """Return the memory of a slot to the system; for the writer only, while nobody reads it."""
        if hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError):  # of a system that returns it with the file, as others do
                self.map(slot).madvise(mmap.MADV_REMOVE)
        self._status[_OUTGROWN + 1 + self._num_outgrown % _NUM_OUTGROWN] = slot.offset
        self._num_outgrown += 1
        self._status[_OUTGROWN] = self._num_outgrown
        self._forget(slot.offset)

    def map(self, slot: Slot) -> Mapping:
        """Return the mapping of a slot, always the same one.

        Raises:
            ReaderError: The system refuses.
        """
        found = self._maps.get(slot.offset)
        if found is None:
            self._forget_outgrown()
            try:
                found = Mapping(self._fd, slot.nbytes, offset=slot.offset)
            except OSError as error:  # each mapping of Python's has a descriptor of its own
                raise ReaderError(
                    f"{slot.nbytes} bytes of shared memory cannot be mapped: {error}; let this "
                    "process open more files (ulimit -n), or read fewer samples ahead"
                ) from error
            self._maps[slot.offset] = found
        return found

    def view(self, slot: Slot) -> memoryview:
        """Return the bytes of a slot."""
        return memoryview(self.map(slot))

    def status(self) -> Status:
        """Return what the writer was doing when it last said."""
        return Status(*self._status[:_STATUS_SIZE])

    def frames(self, begin: int) -> list[FrameStatus]:
        """Return the last frames, those from number ``begin`` on that are not empty, in order."""
        numbers = self._status[_STATUS_SIZE:][: _NUM_FRAMES * _FRAME_SIZE].tolist()
        places = (numbers[i : i + _FRAME_SIZE] for i in range(0, len(numbers), _FRAME_SIZE))
        frames = (FrameStatus(frame, num, Slot(*slot)) for num, frame, *slot in places if num)
        return sorted(found for found in frames if found.frame >= begin)

    def say_ready(self) -> None:
        """Say that the writer has started."""
        self._status[0] = -1

    def say_begun(self, number: int) -> None:
        """Say that the writer makes a sample."""
        self._status[0] = number
        self._status[1] = 1

    def say_filling(self, frame: int, slot: Slot) -> None:
        """Say that it fills a frame, of which nothing is complete."""
        place, status = _place(frame), self._status
        status[place] = 0
        status[place + 1] = frame
        status[place + 2], status[place + 3] = slot

    def say_done(self, frame: int, num_entries: int) -> None:
        """Say that it has written what it made, and how many entries of the frame are complete."""
        self._status[_place(frame)] = num_entries
        self._status[1] = 0

    def _forget_outgrown(self) -> None:
        """Unmap what the writer has given up since the last time."""
        num = self._status[_OUTGROWN]
        for number in range(max(self._num_outgrown, num - _NUM_OUTGROWN), num):
            self._forget(self._status[_OUTGROWN + 1 + number % _NUM_OUTGROWN])
        self._num_outgrown = num

    def _forget(self, offset: int) -> None:
        if (mapping := self._maps.pop(offset, None)) is not None:
            mapping.is_outgrown = True

    def close(self) -> None:
        """Give up this process's share of the memory, but for slots that something still views."""
        self._maps.clear()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._status.release()
            os.close(fd)


def _size_class(nbytes: int) -> int:
    """Round up so that sizes grow geometrically: eight classes an octave, 1/8 waste at most.

    >>> [_size_class(mib << 20) / 2**20 for mib in (1, 3, 33, 2150)]
    [1.0, 3.0, 36.0, 2304.0]
    """
    step = max(MIN_SLOT_NBYTES, 1 << max(0, (nbytes - 1).bit_length() - 4))
    return max(1, -(-nbytes // step)) * step


def _place(frame: int) -> int:
    return _STATUS_SIZE + frame % _NUM_FRAMES * _FRAME_SIZE


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
