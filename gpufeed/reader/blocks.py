"""Samples into lists of given sizes, and out of them: mini-batches, blocks that are reordered."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import TypeVar

__all__ = ["blocks", "emptied"]

T = TypeVar("T")


def blocks(
    source: Iterator[T], size: int | Iterable[int], *, drop_last: bool = False
) -> Iterator[list[T]]:
    """Yield lists of ``size`` samples, or of one size each; the last one is perhaps shorter.

    If the source fails, the samples before the failure come first, as a shorter last list.

    >>> list(blocks(iter("abc"), 2))
    [['a', 'b'], ['c']]
    """
    sizes = repeat(size) if isinstance(size, int) else size
    for size in sizes:
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


def emptied(block: list[T]) -> Iterator[T]:
    """Yield the samples of a list, and keep none that the consumer has dropped.

    >>> block = ["a", "b"]
    >>> list(emptied(block)), block
    (['a', 'b'], [])
    """
    block.reverse()
    while block:
        yield block.pop()
