"""The two ends of the way between processes: an outbox fills frames, an inbox opens them.

Visibility: an entry is on its way as soon as its writer does anything but write the next one. A
thread of the outbox sends what has been written, and gets its turn when the writer blocks, in a
slow reader or mapper, or when the interpreter next switches threads. So a busy writer sends many
entries in a frame, and a few frames at once, and a slow one sends each entry, without a clock.
Waking the other side for each frame would take a third as long as copying 1 MiB into it.

Lifetime of a slot: filling (outbox) -> on its way -> open (inbox) -> given back, once no view of it
is left. A finalizer only queues the slot; `Inbox.give_back` sends it, with a few others if it is
small: each message is a system call on both sides, and after a copy of 1 MiB no code is in a cache.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import Any

from gpufeed.errors import ReaderError
from gpufeed.workers.frames import Encoded, Entry, Kind, encode, encode_error, read_entries
from gpufeed.workers.records import OVER, Record, Returns, pack_return
from gpufeed.workers.segment import MAX_SLOTS, MAX_UNSENT, Segment, Slot

__all__ = ["Inbox", "Outbox", "mapping_of"]

# A frame with so many bytes is done, and frames of so many bytes are sent.
FRAME_NBYTES = 1 << 16
_UNSENT_NBYTES = 8 << 20

# Slots given back at once, at most; as one write, they stay in one piece. And bytes of slots that
# wait for others.
_MAX_TOGETHER = 16
_TOGETHER_NBYTES = 16 << 20
_FAILED = (Kind.ERROR, Kind.FAILURE)

# What samples keep, or kept, of slots whose pass goes on or is over: each has a descriptor.
_viewed: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class Outbox:
    """Writes samples into frames, and tells the other side about them.

    Args:
        segment: Where frames go.
        records_fd: The pipe to tell it through.
        returns: What comes back.
        sender: Number of this segment on the other side.
        max_entries: Most samples that are sent at once.
        encode: Pickles samples.
    """

    def __init__(
        self,
        segment: Segment,
        records_fd: int,
        returns: Returns,
        *,
        sender: int,
        max_entries: int,
        encode: Callable[[object], Encoded] = encode,
    ) -> None:
        self.returns = returns
        self.nbytes = 0
        self._segment = segment
        self._records_fd = records_fd
        self._sender = sender
        self._max_entries = max_entries
        self._encode = encode
        self._slots: dict[int, Slot] = {}
        # Of the frame that is being filled; there is none while the view is None.
        self._view: memoryview | None = None
        self._slot = Slot(0, 0)
        self._frame = self._num_entries = self._end = 0
        # What has not been sent: the records of frames that are done, and entries.
        self._records: list[Record] = []
        self._num_unsent = 0
        self._is_closed = False
        # Reentrant: the garbage collector may close this box in the middle of any method.
        self._lock = threading.RLock()
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._send_early, name="gpufeed-send", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # a Ctrl-C, perhaps, while it starts: nobody else can end it
            self._wanted.put(False)
            raise

    def say_ready(self) -> None:
        """Say that the process has started and has what it needs."""
        self._segment.say_ready()

    def begin(self, number: int) -> None:
        """Say that the sample of this number is being made."""
        self._segment.say_begun(number)

    def put(self, number: int, kind: int, value: object, *, is_last: bool = False) -> bool:
        """Write one entry; False once nobody wants it.

        Args:
            number: Of the sample.
            kind: Of the entry, a `Kind`.
            value: The sample, or the exception.
            is_last: Whether the writer will do something else before it writes again.

        Raises:
            Exception: What a `WrittenInPlace` raises; then nothing of it is sent.
        """
        kind, encoded = self._encoded(number, kind, value)
        with self._lock:
            if self._is_closed or not self._has_room(encoded.nbytes):
                return False
            assert self._view is not None
            before, self._end = self._end, encoded.write(self._view, self._end, number, kind)
            self.nbytes += self._end - before
            self._num_entries += 1
            self._segment.say_done(self._frame, self._num_entries)
            if kind == Kind.REPORT:  # goes with the next one
                return not self._is_closed
            self._num_unsent += 1
            if is_last or self._num_unsent >= self._max_entries:
                self._send()
            elif self._end >= FRAME_NBYTES:
                self._finish()
            if self._num_unsent == 1:
                self._wanted.put(True)
            return not self._is_closed

    def send(self) -> None:
        """Send what has been written."""
        with self._lock:
            self._send()

    def refuse(self) -> None:
        """Let `put` return False from now on; from any thread."""
        self._is_closed = True

    def close(self) -> None:
        """Drop what has not been sent, and end the thread; idempotent.

        Afterwards no thread uses the descriptors. Whoever waits for a slot must have been woken.
        """
        self.refuse()
        self._wanted.put(False)
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            self._view = None

    def _encoded(self, number: int, kind: int, value: Any) -> tuple[int, Encoded]:
        try:
            if kind not in _FAILED:
                return kind, self._encode(value)
            failure = value
        except Exception as error:  # noqa: BLE001 - of the user's own __reduce__, perhaps
            kind = Kind.FAILURE
            failure = ReaderError(
                f"sample {number} must be picklable to be sent to another process, got a "
                f"{type(value).__qualname__}: {error}"
            )
        where = f"process {os.getpid()}, at sample {number}"
        return kind, encode_error(failure, where, self._encode)

    def _has_room(self, nbytes: int) -> bool:
        """Make sure that there is an open frame with so much room; False if there can be none."""
        if self._view is not None:
            if self._end + nbytes <= self._slot.nbytes:
                return True
            self._finish()
        slot = self._free_slot(nbytes)
        if slot is None:
            return False
        self._slot, self._view = slot, self._segment.view(slot)
        self._frame += 1
        self._num_entries = self._end = 0
        self._segment.say_filling(self._frame, slot)
        return True

    def _free_slot(self, nbytes: int) -> Slot | None:
        """Return a slot that holds ``nbytes``; None once the other side is gone."""
        offsets, num_seen = self.returns.offsets, -1
        # Between two frames that are sent together, a system call would let the thread send one.
        is_there = self._num_unsent > 0 or self.returns.read(wait=False)
        while is_there and not self._is_closed:
            # The last one first: what was used a moment ago is still in the caches.
            for index in range(len(offsets) - 1, -1, -1):
                slot = self._slots[offsets[index]]
                if slot.nbytes >= nbytes:
                    del offsets[index]
                    return slot
            if len(offsets) != num_seen:
                num_seen = len(offsets)
                is_there = self.returns.read(wait=False)
            elif offsets or len(self._slots) < MAX_SLOTS:
                if offsets:  # all too small: one of them makes room
                    smallest = min(offsets, key=lambda offset: self._slots[offset].nbytes)
                    offsets.remove(smallest)
                    self._segment.give_up(self._slots.pop(smallest))
                slot = self._segment.grow(nbytes)
                self._slots[slot.offset] = slot
                return slot
            else:
                self._send()
                is_there = self.returns.read(wait=True)
        return None

    def _finish(self) -> None:
        """Begin no more entries in the frame, and send it if enough have been done."""
        if self._view is None:
            return
        self._view = None
        if not self._num_entries:  # because the first one failed while it was written
            self.returns.offsets.append(self._slot.offset)
            return
        told = self._sender, self._frame, self._num_entries, self._end, *self._slot
        self._records.append(Record(*told))
        nbytes = sum(record.nbytes for record in self._records)
        # More frames would not be found in the segment of a process that was killed.
        if nbytes >= _UNSENT_NBYTES or len(self._records) == MAX_UNSENT:
            self._send()

    def _send(self) -> None:
        self._finish()
        records, self._records = b"".join(record.pack() for record in self._records), []
        self._num_unsent = 0
        if self._is_closed or not records:
            return
        try:
            os.write(self._records_fd, records)
        except BrokenPipeError:
            self._is_closed = True

    def _send_early(self) -> None:
        while self._wanted.get():
            # Looked at before the lock is: a writer that has sent the frame meanwhile may hold it,
            # and the two would change places several times over nothing.
            if self._num_unsent:
                self.send()


class Inbox:
    """Opens frames that arrive, and gives their slots back.

    Args:
        segments: Those that frames may be in, by the number of their sender.
        returns_fds: The pipes to give slots back through, in the same order.
        max_views: Most slots of a sender that samples may keep.
        max_together: Most slots that are given back at once; they wait for each other.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        returns_fds: Sequence[int],
        *,
        max_views: int = MAX_SLOTS // 2,
        max_together: int = 1,
    ) -> None:
        self._segments = segments
        self._returns_fds = returns_fds
        self._max_views = max_views
        self._max_together = min(max_together, _MAX_TOGETHER)
        self._num_together = 1
        self._views: list[dict[int, weakref.ref[Any]]] = [{} for _ in segments]
        self._dead: deque[tuple[int, int]] = deque()

    def open(self, record: Record) -> list[Entry]:
        """Return the entries of a frame, whose slot is free when nothing views it."""
        slot = Slot(record.offset, record.slot_nbytes)
        key, dead = (record.sender, slot.offset), self._dead
        segment, views = self._segments[record.sender], self._views[record.sender]
        self._num_together = max(1, min(self._max_together, _TOGETHER_NBYTES // slot.nbytes))
        owner: Any = None
        owned = memoryview(b"")

        def take(begin: int, end: int) -> memoryview | bytearray:
            nonlocal owner, owned
            if owner is None:
                if len(views) >= self._max_views or not _may_view(segment.map(slot)):
                    # A copy: whoever keeps all samples must not keep all slots.
                    return bytearray(frame[begin:end])
                owner = _owner(segment, slot)
                owned = memoryview(owner).cast("B")
            return owned[begin:end]

        with segment.view(slot) as frame:
            entries = read_entries(frame, record.num_entries, take)
        if owner is None:
            dead.append(key)
        else:
            views[slot.offset] = weakref.ref(owner, lambda _: dead.append(key))
        return entries

    def give_back(self) -> None:
        """Give back the slots whose views are dead, if there are enough of them."""
        while len(self._dead) >= self._num_together:
            returns: dict[int, bytes] = {}
            for _ in range(min(len(self._dead), _MAX_TOGETHER)):
                sender, offset = self._dead.popleft()
                self._views[sender].pop(offset, None)
                returns[sender] = returns.get(sender, b"") + pack_return(offset)
            for sender, records in returns.items():
                self._write(sender, records)

    def say(self, sender: int, offset: int = -1, num_samples: int = 0, nbytes: int = 0) -> None:
        """Tell a sender that samples were taken, or what an ``offset`` below 0 stands for."""
        self._write(sender, pack_return(offset, num_samples, nbytes))

    def say_over(self) -> None:
        """Wake every sender that waits for something to come back: nothing will."""
        for sender in range(len(self._segments)):
            self.say(sender, OVER)

    def _write(self, sender: int, returns: bytes) -> None:
        with suppress(BrokenPipeError):  # it has ended, and needs no slots
            os.write(self._returns_fds[sender], returns)


@cache
def _bytes_of(nbytes: int) -> Any:
    import ctypes  # by whom arrays arrive, who has NumPy, which has imported it

    return ctypes.c_char * nbytes


def _owner(segment: Segment, slot: Slot) -> Any:
    """Return an object of which all views of a slot are made, and which dies after the last.

    A memoryview would not do: one that is made from another keeps only what both of them view.
    """
    owner = _bytes_of(slot.nbytes).from_buffer(mapping := segment.map(slot))
    owner.mapping = mapping
    _viewed.add(mapping)
    return owner


def _may_view(mapping: mmap.mmap) -> bool:
    """Return whether a slot may be kept: its descriptor is one of those, or some are left."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = limit == resource.RLIM_INFINITY
    return is_unlimited or len(_viewed) < limit // 4 or mapping in _viewed


def mapping_of(buffer: memoryview | bytearray) -> mmap.mmap | None:
    """Return the mapping of the slot that a buffer which arrived is part of; None for a copy."""
    mapping: mmap.mmap | None = getattr(getattr(buffer, "obj", None), "mapping", None)
    return mapping
