"""Whether a reader yields samples one by one, or many as a `ColumnarBatch`.

Positions count samples, which are the rows of record batches. But only the first thing that a
reader yields tells which of the two it is, and it may have been asked to skip by then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from gpufeed.reader.base import AnyReader, Reader, drain, reading

__all__ = ["reading_samples"]


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
    # A plain function drains what it skips: then what it yields can as well be seen before.
    skipped = skip if isinstance(reader, Reader) else 0
    with reading(reader, epoch, skipped) as source:
        first = list(islice(source, 1))
        if first and not _is_columnar(first[0]):
            source = chain(iter(first), source)
            del first
            drain(source, skip - skipped)
            yield source, False
            return
        if not skipped:
            yield (_rows(chain(first, source), skip), True) if first else (source, False)
            return
    # Record batches were skipped as if each were one sample; or there is nothing behind so many,
    # of which kind ever. At the beginning stands what tells.
    with reading(reader, epoch, 0) as source:
        first = list(islice(source, 1))
        if first and _is_columnar(first[0]):
            yield _rows(chain(first, source), skip), True
        else:
            yield iter(()), False


def _is_columnar(sample: object) -> bool:
    # There is none as long as nobody has imported its module, which takes longer than a worker
    # process may take to start.
    columnar = sys.modules.get("gpufeed.columnar")
    return columnar is not None and isinstance(sample, columnar.ColumnarBatch)


def _rows(source: Iterator[Any], skip: int) -> Iterator[Any]:
    from gpufeed.reader.rows import without_rows

    return without_rows(source, skip)
