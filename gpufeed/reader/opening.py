"""Opening any reader at any sample: a stage does it its own way, a plain function is drained.

Whoever opens an iterator closes it, in a ``finally``. So leaving a loop ends every stage below at
once, threads included, and nothing waits for the garbage collector.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import compress, islice, repeat
from operator import length_hint
from typing import Any, TypeVar

from gpufeed.checks import samples_of
from gpufeed.device.threads import close_iterator
from gpufeed.reader.counters import Counter
from gpufeed.reader.stage import AnyReader, Stage

__all__ = [
    "count_of",
    "counters_of",
    "counts_of",
    "drain",
    "open_every",
    "open_reader",
    "reading",
    "skipped_by_now",
    "stages_of",
]

T = TypeVar("T")


def open_reader(reader: AnyReader[T], epoch: int, skip: int) -> Iterator[T]:
    """Return a fresh iterator over pass ``epoch`` of any reader, without ``skip`` samples.

    >>> list(open_reader(lambda: "abcd", epoch=0, skip=2))
    ['c', 'd']
    """
    if isinstance(reader, Stage):
        return reader.open(epoch, skip)
    iterator = samples_of(reader)
    try:
        # Not `drain`: nobody asks how many there were, and counting takes a tenth longer.
        deque(islice(iterator, min(skip, sys.maxsize)), maxlen=0)
    except BaseException:
        close_iterator(iterator)
        raise
    return iterator


def open_every(reader: AnyReader[T], epoch: int, skip: int, step: int) -> Iterator[T]:
    """Return an iterator over every ``step``-th sample of any reader, from number ``skip`` on.

    >>> list(open_every(lambda: "abcdefg", epoch=0, skip=1, step=3))
    ['b', 'e']
    """
    if step == 1:
        return open_reader(reader, epoch, skip)
    if isinstance(reader, Stage):
        return reader.open_every(epoch, skip, step)
    return _every(reader, skip, step)


def _every(reader: AnyReader[T], skip: int, step: int) -> Iterator[T]:
    with reading(reader, 0, skip) as samples:
        yield from islice(samples, 0, None, step)


@contextmanager
def reading(reader: AnyReader[T], epoch: int, skip: int) -> Iterator[Iterator[T]]:
    """Open ``reader`` for the length of a ``with``, and close its iterator after it."""
    iterator = open_reader(reader, epoch, skip)
    try:
        yield iterator
    finally:
        close_iterator(iterator)


def drain(iterator: Iterator[object], num: int) -> int:
    """Drop the next ``num`` samples; return how many there were.

    >>> drain(iter("abc"), 5)
    3
    """
    num = min(num, sys.maxsize)
    # `compress` takes one of these for each sample, so that counting costs hardly anything.
    left = repeat(True, num)
    deque(compress(islice(iterator, num), left), maxlen=0)
    return num - length_hint(left)


def count_of(reader: AnyReader[Any]) -> int | None:
    """Return `Stage.count` of any reader; of a plain function nothing is known."""
    return reader.count() if isinstance(reader, Stage) else None


def counts_of(readers: Iterable[AnyReader[Any]]) -> list[int] | None:
    """Return the count of each reader; None if that of any is not known."""
    counts = []
    for reader in readers:
        count = count_of(reader)
        if count is None:
            return None
        counts.append(count)
    return counts


def stages_of(reader: AnyReader[Any]) -> Iterator[Stage[Any]]:
    """Return `Stage.stages` of any reader: a plain function has none."""
    return reader.stages() if isinstance(reader, Stage) else iter(())


def counters_of(reader: AnyReader[Any]) -> list[Counter]:
    """Return what the stages of any reader count, in an order that is the same for its copies."""
    return [counter for stage in stages_of(reader) for counter in stage.counters()]


def skipped_by_now(reader: AnyReader[Any]) -> Callable[[], None]:
    """Return what takes the counts of skipped samples of any reader back to what they are now.

    For who opens it again in the same pass, once nothing reads what was opened before.
    """
    counts = [(stage.left_out, stage.left_out.copy()) for stage in stages_of(reader)]

    def go_back() -> None:
        for skipped, before in counts:
            skipped.go_back_to(before)

    return go_back
