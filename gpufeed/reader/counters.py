"""What the stages of a reader count as they run, carried to where it is asked for.

A reader that runs in another process counts there, and is asked here. So that process tells, in
front of each sample, what its stages have counted since the sample before, and the stages here
count it when that sample is taken: a state is exact for what was delivered, whatever was read
ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Protocol, Self

__all__ = ["Changes", "Counter", "Telling", "count_changes"]

# For each counter that has changed: its number, and what it tells.
Changes = list[tuple[int, tuple[int, ...]]]


class Counter(Protocol):
    """Counts that only grow, but where something is read again."""

    @property
    def is_of_pass(self) -> bool:
        """Whether it counts all that a pass comes by, also on the way past what it skips.

        So a resumed pass ends with the same counts. Else it is what was made for a consumer.
        """

    def totals(self) -> tuple[int, ...]:
        """Return what has been counted."""

    def since(self, totals: tuple[int, ...]) -> tuple[int, ...]:
        """Return how much each total has grown since, then what else there is; empty if none."""

    def count_also(self, change: tuple[int, ...]) -> None:
        """Count what `since` of another such counter has returned."""

    def copy(self) -> Self:
        """Return what is counted by now; threads that read ahead may be adding to it."""

    def go_back_to(self, before: Self) -> None:
        """Forget what was counted since `before` was copied."""


class Telling:
    """Tells what has changed since it last told.

    >>> from gpufeed.reader.skipping import Skipped
    >>> here, there = Skipped(), Skipped(count=7)
    >>> telling = Telling([there])
    >>> telling(), there.add(40), telling(), telling()
    ([], None, [(0, (1, 40))], [])
    >>> count_changes([here], [(0, (1, 40))])
    >>> here.count, list(here.ordinals)
    (1, [40])

    Args:
        counters: In an order that is the same on both sides.
    """

    def __init__(self, counters: Iterable[Counter]) -> None:
        self._counters = [(counter, counter.totals()) for counter in counters]

    def __call__(self) -> Changes:
        """Return the changes."""
        changes: Changes = []
        for index, (counter, before) in enumerate(self._counters):
            if change := counter.since(before):
                changes.append((index, change))
                self._counters[index] = counter, tuple(map(add, before, change))
        return changes


def count_changes(counters: Sequence[Counter], changes: Changes) -> None:
    """Count what a `Telling` of such counters has told."""
    for index, change in changes:
        counters[index].count_also(change)
