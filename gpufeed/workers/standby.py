"""Processes between two passes of a reader.

A process takes tens of milliseconds to start, and seconds where what it runs imports much. So one
that has come to the end of its pass waits for the next. All it keeps is what it has imported: with
each pass it is told anew what to do, and given other memory.
"""

from __future__ import annotations

import atexit
import os
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from weakref import WeakSet

from gpufeed.workers.process import Process, end_all

__all__ = ["Standby"]


class Standby:
    """Processes that have come to the end of a pass, and wait for the next one of their reader.

    They end when the reader is closed or collected, and at interpreter exit. A copy of a reader
    has none of them, and nor has a fork.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._processes: deque[Process] = deque()
        _standbys.add(self)

    def take(self) -> Process:
        """Return a process that waits, or a new one.

        Raises:
            OSError: The system refuses to start one more.
        """
        while (process := self._pop()) is not None:
            if process.is_usable():
                return process
            _end([process])
        return Process()

    def put(self, processes: list[Process]) -> None:
        """Let processes wait that have nothing to do, and take them from who has them."""
        self._processes.extend(processes)
        processes.clear()

    def close(self) -> None:
        """End those that wait; idempotent, from any thread."""
        _end(list(iter(self._pop, None)))

    def _pop(self) -> Process | None:
        if os.getpid() != self._owner:
            self._owner = os.getpid()
            for process in self._processes:
                process.release()
            self._processes.clear()
        try:
            return self._processes.pop()
        except IndexError:
            return None

    def __del__(self) -> None:
        if self._processes:
            self.close()

    def __reduce__(self) -> tuple[type[Standby], tuple[()]]:
        return Standby, ()


def _end(processes: Sequence[Process]) -> None:
    with ExitStack() as rest:
        for process in processes:
            rest.callback(process.release)
        end_all(processes)


_standbys: WeakSet[Standby] = WeakSet()


@atexit.register
def _close_standbys() -> None:
    for standby in list(_standbys):
        standby.close()
