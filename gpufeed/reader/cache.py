"""Samples kept in memory: the whole reader, or its first sample only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TypeVar

from gpufeed.checks import whole_number
from gpufeed.errors import ReaderError
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import count_of, drain, reading, stages_of
from gpufeed.reader.stage import AnyReader

__all__ = ["Fake", "cache"]

T = TypeVar("T")


def cache(reader: AnyReader[T], *, lazy: bool = False) -> Reader[T]:
    """Read everything once; every pass then yields the same objects.

    >>> passes = iter(["first", "second"])
    >>> reader = cache(lambda: next(passes))
    >>> list(reader()) == list(reader())
    True

    Args:
        reader: Of samples that fit into memory; its pass 0 is what is kept.
        lazy: Read with the first pass and not with this call; an unfinished first pass keeps
            nothing.
    """
    return _Cache(reader, lazy)


class _Cache(Reader[T]):
    def __init__(self, reader: AnyReader[T], lazy: bool) -> None:
        super().__init__("cache", reader)
        self._reader = reader
        self._samples: Sequence[T] | None = None
        if not lazy:
            with reading(reader, 0, 0) as source:
                self._keep(tuple(source))

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        if self._samples is None:
            return self._open_and_keep(skip)
        return map(self._samples.__getitem__, range(skip, len(self._samples)))

    def count(self) -> int | None:
        return count_of(self._reader) if self._samples is None else len(self._samples)

    def _open_and_keep(self, skip: int) -> Iterator[T]:
        samples: list[T] = []

        def keep(source: Iterator[T]) -> Iterator[T]:
            for sample in source:
                samples.append(sample)
                yield sample

        with reading(self._reader, 0, 0) as source:
            kept = keep(source)
            drain(kept, skip, self)
            yield from kept
        self._keep(samples)

    def _keep(self, samples: Sequence[T]) -> None:
        self._samples = samples
        for stage in stages_of(self._reader):  # which is not read again
            stage.let_go()


class Fake:
    """Makes readers that yield one sample again and again, to measure all but the reading.

    >>> list(Fake()(lambda: "abc", 3))
    ['a', 'a', 'a']

    Source: ``paddle.reader.Fake``; here every reader that one `Fake` makes has its own sample.
    """

    def __call__(self, reader: AnyReader[T], data_num: int) -> Reader[T]:
        """Return a reader of ``data_num`` times the first sample of ``reader``, the same object.

        Raises:
            FieldError: ``data_num`` is not a whole number >= 0.
            ReaderError: On iteration: ``reader`` is empty.
        """
        return _Faked(reader, data_num)


class _Faked(Reader[T]):
    def __init__(self, reader: AnyReader[T], data_num: int) -> None:
        self._data_num = whole_number("Fake.data_num", data_num, minimum=0)
        super().__init__("Fake", reader, data_num=self._data_num)
        self._reader = reader
        self._first: list[T] = []

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        num_left = self._data_num - skip
        if num_left > 0:
            yield from repeat(self._first_sample(), min(num_left, sys.maxsize))

    def count(self) -> int:
        return self._data_num

    def _first_sample(self) -> T:
        if not self._first:
            with reading(self._reader, 0, 0) as source:
                for sample in source:
                    self._first.append(sample)
                    break
                else:
                    raise ReaderError("Fake.reader must yield at least one sample, got none")
        return self._first[0]
