"""Both ends of the way between processes, in one."""

from __future__ import annotations

import os

from gpufeed.workers.boxes import Inbox, Outbox
from gpufeed.workers.frames import Kind
from gpufeed.workers.records import RECORD_NBYTES, Record, Returns
from gpufeed.workers.segment import Segment

__all__ = ["Way"]


class Way:
    """An outbox and the inbox that it leads to."""

    def __init__(self, max_entries: int = 100) -> None:
        records, self.tell = os.pipe()
        returns, back = os.pipe()
        self.fds = [records, self.tell, returns, back]
        self.segment = Segment.create("test")
        self.records = records
        self.outbox = Outbox(
            self.segment, self.tell, Returns(returns), sender=0, max_entries=max_entries
        )
        self.inbox = Inbox([self.segment], [back])

    def take(self) -> list:
        """Open the next frame."""
        self.inbox.give_back()
        (record,) = Record.unpack(os.read(self.records, RECORD_NBYTES))
        return self.inbox.open(record)

    def send(self, *values: object) -> list:
        for number, value in enumerate(values):
            self.outbox.put(number, Kind.VALUE, value, is_last=number == len(values) - 1)
        entries: list = []
        while len(entries) < len(values):
            entries += self.take()
        return [entry.value for entry in entries]

    def close(self) -> None:
        self.outbox.close()
        self.segment.close()
        for fd in self.fds:
            os.close(fd)
