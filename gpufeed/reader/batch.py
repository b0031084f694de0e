"""Samples into lists: the mini-batch, and the blocks that `shuffle` works on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from gpufeed.checks import whole_number
from gpufeed.reader.base import AnyReader, Reader, reading

__all__ = ["Batch", "batch", "blocks"]

T = TypeVar("T")


def batch(reader: AnyReader[T], batch_size: int | None = None, drop_last: bool = False) -> Batch[T]:
    """Group samples into mini-batches, lists of ``batch_size``.

    >>> reader = batch(lambda: range(5), batch_size=2)
    >>> list(reader())
    [[0, 1], [2, 3], [4]]

    Every batch is a new list; samples are passed on as they are.

    Args:
        reader: Of samples.
        batch_size: Samples a batch.
        drop_last: Whether a last batch of fewer samples is left out. That includes the samples in
            front of an error of ``reader``: without ``drop_last`` they come before it, as a
            shorter batch.

    Raises:
        FieldError: (a ValueError) ``batch_size`` is not a whole number >= 1.
        TypeError: ``batch_size`` is not given, or ``reader`` is not callable.

    Source: ``paddle.batch``, whose check of ``batch_size`` also comes with the call; there
    ``drop_last`` had to be False itself to keep the last batch, here any false value does.
    """
    return Batch(reader, batch_size, drop_last)


class Batch(Reader[list[T]]):
    """A reader of mini-batches; made by `batch`."""

    def __init__(self, reader: AnyReader[T], batch_size: int | None, drop_last: bool) -> None:
        if batch_size is None:
            raise TypeError("batch.batch_size must be given, got None")
        self.batch_size = whole_number("batch.batch_size", batch_size, minimum=1)
        self.drop_last = bool(drop_last)
        super().__init__("batch", reader, batch_size=self.batch_size, drop_last=self.drop_last)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[list[T]]:
        """Skip whole batches as samples."""
        with reading(self._reader, epoch, skip * self.batch_size) as source:
            yield from blocks(source, self.batch_size, drop_last=self.drop_last)


def blocks(source: Iterator[T], size: int, *, drop_last: bool = False) -> Iterator[list[T]]:
    """Yield lists of ``size`` samples, the last one perhaps shorter.

    If the source fails, the samples before the failure come first, as a shorter last list.

    >>> list(blocks(iter("abc"), 2))
    [['a', 'b'], ['c']]
    """
    while True:
        block: list[T] = []
        try:
            # At a failure `extend` leaves what it got until then in the list.
            block.extend(islice(source, min(size, sys.maxsize)))
        except Exception:
            if block and not drop_last:
                yield block
            raise
        is_full = len(block) == size
        if is_full or (block and not drop_last):
            yield block
        if not is_full:
            return
