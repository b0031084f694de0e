"""What goes through the pipes between boxes: records of frames one way, and returns the other.

Each is smaller than what the system writes at once, so that a pipe is a queue of whole ones.
"""

from __future__ import annotations

import os
import select
import struct
from typing import NamedTuple

__all__ = ["OVER", "RECORD_NBYTES", "Record", "Returns", "pack_return"]

# Padded to a power of two: pages of a pipe hold whole records.
_RECORD = struct.Struct("<6q16x")
RECORD_NBYTES = _RECORD.size
_RETURN = struct.Struct("<3q8x")
_MANY_RETURNS_NBYTES = _RETURN.size * 128
# In place of an offset: nothing more comes back.
OVER = -2


class Record(NamedTuple):
    """Says that a frame is ready, and where.

    Attributes:
        sender: Number of the segment that it is in.
        frame: Its number in that segment.
        num_entries: How many entries it holds.
        nbytes: How long they are.
        offset: Of its slot.
        slot_nbytes: Of its slot.
    """

    sender: int
    frame: int
    num_entries: int
    nbytes: int
    offset: int
    slot_nbytes: int

    def pack(self) -> bytes:
        """Return what is written to a pipe, at once."""
        return _RECORD.pack(*self)

    @classmethod
    def end(cls) -> Record:
        """Return the record that stands for no frame: nothing more comes."""
        return cls(0, 0, 0, 0, 0, 0)

    @classmethod
    def unpack(cls, records: bytes) -> list[Record]:
        """Return the records that were read from a pipe."""
        return [cls(*fields) for fields in _RECORD.iter_unpack(records)]


class Returns:
    """What comes back to an outbox: slots that are free, and room for more samples.

    Args:
        fd: The pipe to read.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ready = select.poll()
        self._ready.register(fd, select.POLLIN)
        self.offsets: list[int] = []
        self.num_samples = 0
        self.nbytes = 0
        self.is_over = False

    def read(self, *, wait: bool) -> bool:
        """Take what has come back; False once nothing will."""
        while self._ready.poll(None if wait else 0):
            records = os.read(self._fd, _MANY_RETURNS_NBYTES)
            for offset, num_samples, nbytes in _RETURN.iter_unpack(records):
                if offset >= 0:
                    self.offsets.append(offset)
                self.num_samples += num_samples
                self.nbytes += nbytes
                self.is_over |= offset == OVER
            self.is_over |= not records
            if self.is_over:
                return False
            if len(records) < _MANY_RETURNS_NBYTES:  # so there are no more
                break
            wait = False
        return True


def pack_return(offset: int, num_samples: int = 0, nbytes: int = 0) -> bytes:
    """Return what an outbox is told: that a slot is free, and that samples were taken.

    Args:
        offset: Of the slot; -1 for none, or `OVER`.
        num_samples: How many were.
        nbytes: Their bytes.
    """
    return _RETURN.pack(offset, num_samples, nbytes)
