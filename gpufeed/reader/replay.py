"""`replay`: what training would do if feeding were free."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import TypeVar

from gpufeed.checks import whole_number
from gpufeed.errors import ReaderError
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import reading
from gpufeed.reader.stage import AnyReader

__all__ = ["replay"]

T = TypeVar("T")


def replay(reader: AnyReader[T], n: int, num_samples: int | None = None) -> Reader[T]:
    """Read the first ``n`` samples, keep them, and yield them over and over.

    >>> list(replay(lambda: "abcd", 2, num_samples=5))
    ['a', 'b', 'a', 'b', 'a']

    Put it around the last reader of a training script: if the loop gets much faster, feeding holds
    it back, and by how much is the headspace. Around ``feeder.decorate_reader(...)`` it repeats
    feeds that are on the device, and costs nothing; around batches it leaves collation and
    transfers as they are.

    Args:
        reader: Of anything. The ``n`` samples of its pass 0 are read when a pass begins that has
            none yet, and kept for as long as the reader that comes back.
        n: How many to keep; a shorter reader gives all it has.
        num_samples: Length of a pass; None goes on without end.

    Raises:
        FieldError: ``n`` is not a whole number >= 1, or ``num_samples`` not one >= 0.
        ReaderError: On iteration: ``reader`` is empty.
    """
    return _Replay(reader, n, num_samples)


class _Replay(Reader[T]):
    def __init__(self, reader: AnyReader[T], n: int, num_samples: int | None) -> None:
        self._n = whole_number("replay.n", n, minimum=1)
        self._num_samples = (
            None
            if num_samples is None
            else whole_number("replay.num_samples", num_samples, minimum=0)
        )
        super().__init__("replay", reader, n=self._n, num_samples=self._num_samples)
        self._reader = reader
        self._kept: tuple[T, ...] = ()

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        if self._num_samples is not None and skip >= self._num_samples:
            return
        kept = self._keep()
        begin = skip % len(kept)
        samples: Iterator[T] = cycle(kept[begin:] + kept[:begin])
        if self._num_samples is not None:
            samples = islice(samples, min(self._num_samples - skip, sys.maxsize))
        yield from samples

    def count(self) -> int | None:
        return self._num_samples

    def _keep(self) -> tuple[T, ...]:
        if not self._kept:
            with reading(self._reader, 0, 0) as source:
                self._kept = tuple(islice(source, min(self._n, sys.maxsize)))
            if not self._kept:
                raise ReaderError("replay.reader must yield at least one sample, got none")
        return self._kept
