"""Whether a reader yields samples one by one, or many as a `ColumnarBatch`.

Positions count samples, which are the rows of record batches. But only the first thing that a
reader yields tells for certain which of the two it is, and it may have been asked to skip by then:
`Reader.is_columnar` is a guess, since any mapper may make one of the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Protocol, runtime_checkable

from gpufeed.device.threads import close_iterator
from gpufeed.reader.blocks import emptied
from gpufeed.reader.opening import counted_by_now, counters_of, drain, reading
from gpufeed.reader.stage import AnyReader, Stage

__all__ = ["OpensRows", "reading_samples"]


@runtime_checkable
class OpensRows(Protocol):
    """A reader of record batches that finds a row without reading those before it."""

    @property
    def is_columnar(self) -> bool:
        """Whether it yields record batches."""

    def open_rows(self, epoch: int, skip: int) -> Iterator[Any]:
        """Return an iterator over pass ``epoch`` without its first ``skip`` rows."""


@contextmanager
def reading_samples(
    reader: AnyReader[Any], epoch: int, skip: int
) -> Iterator[tuple[Iterator[Any], bool]]:
    """Open ``reader`` without its first ``skip`` samples, however it yields them.

    >>> with reading_samples(lambda: "abcd", epoch=0, skip=2) as (source, is_columnar):
    ...     print(list(source), is_columnar)
    ['c', 'd'] False

    Gives an iterator, of samples or of record batches, and whether it is the latter.
    """
    stage: object = reader
    if isinstance(stage, OpensRows) and stage.is_columnar:
        rows = stage.open_rows(epoch, skip)
        try:
            yield _rows(rows, 0), True
        finally:
            close_iterator(rows)
        return
    # A plain function drains what it skips, so that what it yields can as well be seen before.
    skipped = skip if isinstance(reader, Stage) and not reader.is_columnar else 0
    forget_skipped = counted_by_now(counters_of(reader))
    with reading(reader, epoch, skipped) as source:
        first = list(islice(source, 1))
        if not skipped or (first and not _is_columnar(first[0])):
            yield _without(first, source, skip - skipped, reader)
            return
    # Record batches were skipped as if each were one sample; or there is nothing behind so many,
    # of which kind ever. At the beginning stands what tells.
    forget_peeking = counted_by_now(counters_of(reader))
    forget_skipped()
    with reading(reader, epoch, 0) as source:
        first = list(islice(source, 1))
        if first and _is_columnar(first[0]):
            yield _without(first, source, skip, reader)
            return
    forget_peeking()
    yield iter(()), False


def _without(
    first: list[Any], source: Iterator[Any], skip: int, reader: AnyReader[Any]
) -> tuple[Iterator[Any], bool]:
    """Join the first thing and the others, drop the first ``skip`` samples, tell their kind."""
    is_columnar = bool(first) and _is_columnar(first[0])
    samples = chain(emptied(first), source)
    if is_columnar:
        return _rows(samples, skip), True
    drain(samples, skip, reader)
    return samples, False


def _is_columnar(sample: object) -> bool:
    # There is none as long as nobody has imported its module, which takes longer than a worker
    # process may take to start.
    columnar = sys.modules.get("gpufeed.columnar")
    return columnar is not None and isinstance(sample, columnar.ColumnarBatch)


def _rows(source: Iterator[Any], skip: int) -> Iterator[Any]:
    from gpufeed.reader.rows import without_rows

    return without_rows(source, skip)
