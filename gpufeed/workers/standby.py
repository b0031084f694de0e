"""Processes between two passes of a reader.

A process takes tens of milliseconds to start, and seconds where what it runs imports much. So one
that has come to the end of its pass waits for the next. All it keeps is what it has imported: with
each pass it is told anew what to do, and given other memory.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from weakref import WeakSet

from gpufeed.workers.interrupts import uninterrupted
from gpufeed.workers.process import Process, end_all
from gpufeed.workers.surroundings import surroundings

__all__ = ["Standby"]

# Of all readers, also of those that are garbage which nobody has collected yet: a process keeps the
# memory that its imports take.
MAX_WAITING = max(64, 2 * (os.cpu_count() or 1))
# And two descriptors here. For so many that this process may open, one may wait.
_DESCRIPTORS_EACH = 16


class Standby:
    """Processes that have come to the end of a pass, and wait for the next one of their reader.

    They end when the reader is closed or collected, and at interpreter exit; and where there are
    too many, those of the reader that has not been used for longest. A copy of a reader has none of
    them, and nor has a fork.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._since_s = 0.0
        self._processes: deque[Process] = deque()
        with _standbys_lock:
            _standbys.add(self)

    def take(self, num: int, taken: list[Process]) -> None:
        """Append ``num`` processes to ``taken``: those that wait, and for the rest new ones.

        Raises:
            OSError: The system refuses to start one more.
        """
        now, found = surroundings(), list(iter(self._pop, None))
        usable = [each for each in found if each.is_usable(now)]
        taken += usable[:num]
        self._processes.extend(usable[num:])
        _end([each for each in found if each not in usable])
        for _ in range(num - len(usable)):
            taken.append(_start())

    def put(self, processes: list[Process]) -> None:
        """Let processes wait that have nothing to do, and take them from who has them."""
        self._processes.extend(processes)
        processes.clear()
        self._since_s = time.monotonic()
        others = [each for each in _all() if each is not self]
        num_over = len(self._processes) + sum(map(Standby.num_waiting, others)) - _most()
        for longest in sorted(others, key=lambda each: each._since_s):
            if num_over <= 0:
                return
            num_over -= longest.num_waiting()
            longest.close()

    def close(self) -> None:
        """End those that wait; idempotent, from any thread."""
        with uninterrupted():
            _end(list(iter(self._pop, None)))

    def num_waiting(self) -> int:
        """Return how many there are."""
        return len(self._processes)

    def _pop(self) -> Process | None:
        if os.getpid() != self._owner:
            self._owner = os.getpid()
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


def _most() -> int:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_WAITING
    return min(MAX_WAITING, limit // _DESCRIPTORS_EACH)


def _start() -> Process:
    try:
        return Process()
    except OSError:
        if not any(map(Standby.num_waiting, _all())):
            raise
    _close_all()  # what others wait with may be what is missing
    return Process()


def _end(processes: Sequence[Process]) -> None:
    with ExitStack() as rest:
        for process in processes:
            rest.callback(process.release)
        end_all(processes)


_standbys: WeakSet[Standby] = WeakSet()
# Reentrant: the garbage collector may run a finalizer that makes a reader while it is held.
_standbys_lock = threading.RLock()


def _all() -> list[Standby]:
    with _standbys_lock:
        return list(_standbys)


@atexit.register
def _close_all() -> None:
    for standby in _all():
        standby.close()
