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
    "counted_by_now",
    "counters_of",
    "counts_of",
    "drain",
    "made_by",
    "open_every",
    "open_reader",
    "pass_by",
    "reading",
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


def drain(iterator: Iterator[object], num: int, reader: AnyReader[Any] | None = None) -> int:
    """Drop the next ``num`` samples; return how many there were.

    >>> drain(iter("abc"), 5)
    3

    Args:
        iterator: Of samples.
        num: How many to drop.
        reader: Whose samples they are, so that its stages have made none of them for a consumer.
    """
    num = min(num, sys.maxsize)
    go_back = counted_by_now(made_by(reader)) if num and reader is not None else None
    # `compress` takes one of these for each sample, so that counting costs hardly anything.
    left = repeat(True, num)
    deque(compress(islice(iterator, num), left), maxlen=0)
    if go_back is not None:
        go_back()
    return num - length_hint(left)


def pass_by(reader: AnyReader[Any], epoch: int, num: int) -> None:
    """Let the stages of any reader count what they leave out on the way past ``num`` samples.

    For a pass that goes on behind them and never asks for one more, so that none is looked for.
    Where no stage may leave anything out, nothing is read.
    """
    if num and any(counter.is_of_pass for counter in counters_of(reader)):
        with reading(reader, epoch, num - 1) as samples:
            drain(samples, 1, reader)


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


def made_by(reader: AnyReader[Any]) -> list[Counter]:
    """Return the counters of what the stages of any reader make for its consumer."""
    return [counter for counter in counters_of(reader) if not counter.is_of_pass]


def counted_by_now(counters: Iterable[Counter]) -> Callable[[], None]:
    """Return what takes counters back to what they count now.

    For who reads the same samples again, once nothing reads what was opened before, and for who
    does not pass on what has been made since.
    """
    counted = [(counter, counter.copy()) for counter in counters]

    def go_back() -> None:
        for counter, before in counted:
            counter.go_back_to(before)

    return go_back
