"""Readers one after the other: several, or the passes of one.

Where one ends matters to what follows. So skipping leaves sources unread that know their number of
samples, and reads the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count as count_from
from itertools import islice
from typing import TypeVar

from gpufeed.checks import require_readers, whole_number
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import count_of, counts_of, drain, reading
from gpufeed.reader.stage import AnyReader

__all__ = ["chain", "repeat"]

T = TypeVar("T")


def chain(*readers: AnyReader[T]) -> Reader[T]:
    """Yield the samples of the first reader, then those of the second, and so on.

    >>> list(chain(lambda: "ab", lambda: "c"))
    ['a', 'b', 'c']

    A reader is opened when the one before it has ended.

    Raises:
        TypeError: There is no reader, or one is not callable.
    """
    require_readers("chain", readers)
    return _Chain("chain", *readers)


class _Chain(Reader[T]):
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        for reader in self.sources:
            count = count_of(reader) if skip else None
            if count is not None and count <= skip:
                skip -= count
                continue
            with _reading_beyond(reader, epoch, skip, count) as (source, skipped):
                skip -= skipped
                yield from source

    def count(self) -> int | None:
        counts = counts_of(self.sources)
        return None if counts is None else sum(counts)


def repeat(reader: AnyReader[T], num_passes: int | None = None) -> Reader[T]:
    """Yield ``num_passes`` passes of a reader as one.

    >>> list(repeat(lambda: "ab", 2))
    ['a', 'b', 'a', 'b']

    Pass ``p`` of what comes back is passes ``p * num_passes`` and following of the source, so that
    a shuffled source never repeats an order.

    Args:
        reader: Of samples.
        num_passes: None repeats without end, or until a pass is empty.

    Raises:
        FieldError: ``num_passes`` is not a whole number >= 0.
    """
    return _Repeat(reader, num_passes)


class _Repeat(Reader[T]):
    def __init__(self, reader: AnyReader[T], num_passes: int | None) -> None:
        self._num_passes = (
            None if num_passes is None else whole_number("repeat.num_passes", num_passes, minimum=0)
        )
        super().__init__("repeat", reader, num_passes=self._num_passes)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        count = count_of(self._reader) if skip else None
        num_whole, skip = divmod(skip, count) if count else (0, skip)
        for number in self._epochs(epoch, num_whole):
            with _reading_beyond(self._reader, number, skip, count) as (source, skipped):
                skip -= skipped
                is_empty = not skipped
                for first in islice(source, 1):
                    is_empty = False
                    yield first
                yield from source
            if is_empty and self._num_passes is None:
                return

    def count(self) -> int | None:
        count = count_of(self._reader)
        return None if count is None or self._num_passes is None else count * self._num_passes

    def _epochs(self, epoch: int, skip: int) -> Iterable[int]:
        if self._num_passes is None:
            return count_from(epoch + skip)
        return range(epoch * self._num_passes, (epoch + 1) * self._num_passes)[skip:]


@contextmanager
def _reading_beyond(
    reader: AnyReader[T], epoch: int, skip: int, count: int | None
) -> Iterator[tuple[Iterator[T], int]]:
    """Open a reader without its first ``skip`` samples; tell how many there were."""
    if count is not None:
        with reading(reader, epoch, skip) as source:
            yield source, min(skip, count)
    else:
        with reading(reader, epoch, 0) as source:
            yield source, drain(source, skip, reader)
