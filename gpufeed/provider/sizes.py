"""Batches by what `calc_batch_size` says of each sample.

`gpufeed.reader.batch` cuts those that must not exceed their size; here are those that may, which
are complete once they reach it, with what the last sample brought.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import drain, reading
from gpufeed.reader.padding import Filling
from gpufeed.reader.stage import AnyReader
from gpufeed.reader.tokens import Measured, cut, measured

__all__ = ["batch_reaching", "checked_size"]

T = TypeVar("T")


def checked_size(
    calc_batch_size: Callable[[Sequence[Any]], int], limit: int | None = None
) -> Callable[[Sequence[Any]], int]:
    """Return ``calc_batch_size``, made to refuse what is no size or exceeds ``limit``.

    >>> checked_size(lambda row: len(row[0]), limit=4)(("abcde",))  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    gpufeed.errors.FieldError: provider.calc_batch_size must be at most the batch size 4 with
    can_over_batch_size=False, got 5 for ('abcde',)
    """

    @wraps(calc_batch_size)
    def size_of(row: Sequence[Any]) -> int:
        size = whole_number("provider.calc_batch_size", calc_batch_size(row), minimum=0)
        if limit is not None and size > limit:
            raise FieldError(
                f"provider.calc_batch_size must be at most the batch size {limit} with "
                f"can_over_batch_size=False, got {size} for {row!s:.80}"
            )
        return size

    return size_of


def batch_reaching(
    reader: AnyReader[T], batch_size: int, size_of: Callable[[T], int], *, drop_last: bool = False
) -> Reader[list[T]]:
    """Group samples into batches whose sizes add up to ``batch_size`` or just above it.

    >>> words = ["a", "be", "sea", "d"]
    >>> list(batch_reaching(lambda: words, 4, len))
    [['a', 'be', 'sea'], ['d']]

    Args:
        reader: Of samples.
        batch_size: What the sizes of a batch reach.
        size_of: The size of a sample, a whole number >= 0; called once for each.
        drop_last: Whether a last batch that does not reach it is left out.
    """
    return _BatchReaching(reader, batch_size, size_of, drop_last)


class _BatchReaching(Reader[list[T]]):
    def __init__(
        self, reader: AnyReader[T], batch_size: int, size_of: Callable[[T], int], drop_last: bool
    ) -> None:
        super().__init__(
            "batch_reaching",
            reader,
            functions=(size_of,),
            batch_size=batch_size,
            drop_last=drop_last,
        )
        self._reader, self._size_of = reader, size_of
        self._batch_size, self._drop_last = batch_size, drop_last

    def open(self, epoch: int, skip: int) -> Iterator[list[T]]:
        """Read what is skipped, to know where batches end."""
        with reading(self._reader, epoch, 0) as source:
            samples = measured(source, self._size_of, max_tokens=None)
            done = cut(_Reaching(self._batch_size), samples, drop_last=self._drop_last)
            drain(done, skip, self)
            for filling in done:
                yield filling.samples


class _Reaching:
    """Makes one batch after the other for `cut`."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._filling = Filling(sys.maxsize)

    def done(self, samples: Iterator[Measured]) -> Iterator[Filling]:
        for size, sample in samples:
            self._filling.add(size, sample)
            if self._filling.num_tokens >= self._batch_size:
                filling, self._filling = self._filling, Filling(sys.maxsize)
                yield filling
                del filling

    def leftovers(self, *, drop_last: bool) -> Iterator[Filling]:
        if self._filling.samples and not drop_last:
            yield self._filling
