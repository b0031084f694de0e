"""What becomes of mapped samples: outcomes, the window they pass through, and their order.

An outcome is delivered, left out, or raised where its sample would have come. The window moves on
with every outcome that the consumer has dealt with, those that are left out among them.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any

from gpufeed.device.channel import Channel
from gpufeed.reader.skipping import SkipLog
from gpufeed.workers.frames import Kind

__all__ = ["Outcome", "Outcomes", "Window", "as_done", "in_order"]

# What became of one sample: its number in the pass, a `Kind`, and its value or error.
# Plain tuples, because one is made for every sample and every stage.
Outcome = tuple[int, int, Any]
Outcomes = Generator[Outcome, None, None]

# Most samples sent to a worker at once where ``buffer_size`` sets no bound.
_MAX_CHUNK = 64


class Window:
    """Samples that may be read and not yet be delivered; moves on as they are received.

    Grants come in steps of half the buffer, so that the reading thread is woken once a step; at
    the other end of a step there is still one sample a mapper, and half a buffer.
    """

    def __init__(self, process_num: int, buffer_size: int) -> None:
        self.grants: Channel[int] = Channel()
        self._size = process_num + buffer_size if buffer_size > 0 else sys.maxsize
        self._step = max(1, buffer_size // 2) if buffer_size > 0 else sys.maxsize
        self._num_received = 0

    def open(self) -> None:
        """Grant all that fits."""
        self.grants.put(self._size)

    def move(self) -> None:
        """Count a sample that was received."""
        self._num_received += 1
        if self._num_received == self._step:
            self.grants.put(self._step)
            self._num_received = 0

    def chunk(self, process_num: int) -> int:
        """Return how many samples may go to a worker at once, so that all have some."""
        return min(_MAX_CHUNK, max(1, self._size // (2 * process_num)))


def in_order(
    outcomes: Iterator[Outcome], window: Window, wanted: int, log: SkipLog | None
) -> Iterator[Any]:
    """Yield values by their numbers, from ``wanted`` on."""
    early: dict[int, tuple[int, Any]] = {}
    for number, kind, value in outcomes:
        early[number] = kind, value
        del value
        while wanted in early:
            kind, value = early.pop(wanted)
            window.move()
            try:
                if kind == Kind.VALUE:
                    yield value
                else:
                    _skip(log, wanted, kind, value)
            finally:
                del value  # as in `Channel`: an error's traceback holds this frame
            wanted += 1


def as_done(outcomes: Iterator[Outcome], window: Window, log: SkipLog | None) -> Iterator[Any]:
    """Yield values as they come, and raise the earliest failure after all that come before it."""
    failed_at, failure = sys.maxsize, None
    for number, kind, value in outcomes:
        window.move()
        if number > failed_at:
            del value
            continue
        try:
            if kind == Kind.VALUE:
                yield value
            elif kind == Kind.ERROR and log is not None:
                _skip(log, number, kind, value)
            else:
                failed_at, failure = number, value
        finally:
            del value
    if failure is not None:
        try:
            raise failure
        finally:
            del failure


def _skip(log: SkipLog | None, number: int, kind: int, error: BaseException) -> None:
    """Leave a sample out if its mapper failed and the policy allows it, else raise its error."""
    try:
        if log is None or kind != Kind.ERROR or not isinstance(error, Exception):
            raise error
        log.skip(number, error)
    finally:
        del error
