"""What `batch` does with record batches: their samples are rows, cut and joined as columns.

Imported when a reader yields its first `ColumnarBatch`: tensors take a while to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FieldError
from gpufeed.ragged import Ragged
from gpufeed.reader.tokens import Measured, check_length

__all__ = ["gather_rows", "measured_rows", "row_blocks", "without_rows"]

Row = tuple[ColumnarBatch, int]  # a record batch, and the number of a row in it
Lengths = Callable[[ColumnarBatch], Any]


def without_rows(source: Iterator[ColumnarBatch], num_rows: int) -> Iterator[ColumnarBatch]:
    """Yield record batches without the first ``num_rows`` rows of them all."""
    for rows in _record_batches(source):
        skipped = min(num_rows, len(rows))
        num_rows -= skipped
        if skipped < len(rows):
            yield rows[skipped:] if skipped else rows


def _record_batches(source: Iterator[Any]) -> Iterator[ColumnarBatch]:
    for number, rows in enumerate(source):
        if not isinstance(rows, ColumnarBatch):
            raise FieldError(
                f"record batch {number}: batch.reader must yield ColumnarBatch only, as it began, "
                f"got {type(rows).__name__}"
            )
        yield rows


def row_blocks(
    source: Iterator[ColumnarBatch], sizes: Iterator[int], *, drop_last: bool
) -> Iterator[ColumnarBatch]:
    """Yield ``sizes`` rows each: views, and copies only where record batches meet.

    >>> from itertools import repeat
    >>> record_batches = [ColumnarBatch({"x": np.arange(n)}) for n in (3, 2)]
    >>> [rows.columns["x"].tolist() for rows in row_blocks(
    ...     iter(record_batches), repeat(2), drop_last=False)]
    [[0, 1], [2, 0], [1]]
    """
    parts: list[ColumnarBatch] = []
    missing = next(sizes)
    try:
        for rows in source:
            start = 0
            while len(rows) - start >= missing:
                parts.append(rows[start : start + missing])
                start += missing
                block, parts = _joined(parts), []
                yield block
                missing = next(sizes)
            if start < len(rows):
                parts.append(rows[start:])
                missing -= len(rows) - start
    except Exception:
        if parts and not drop_last:
            yield _joined(parts)
        raise
    if parts and not drop_last:
        yield _joined(parts)


def _joined(parts: list[ColumnarBatch]) -> ColumnarBatch:
    return parts[0] if len(parts) == 1 else ColumnarBatch.concat(parts)


def measured_rows(
    source: Iterator[ColumnarBatch], lengths: Lengths | None, max_tokens: int | None, first: int
) -> Iterator[Measured]:
    """Yield ``(length, (record batch, row))`` of every row.

    Args:
        source: Record batches.
        lengths: Returns the length of each row of a record batch. None takes those of the first
            column of sequences.
        max_tokens: Largest legal length.
        first: Number of the first row, for messages.

    Raises:
        FieldError: As for `gpufeed.reader.tokens.measured`.
    """
    for rows in source:
        measured = _lengths(rows) if lengths is None else np.asarray(lengths(rows))
        if measured.shape != (len(rows),):
            raise FieldError(
                f"sample {first}: batch.length must return one length for each of the "
                f"{len(rows)} rows of a ColumnarBatch, got an array of shape {measured.shape}"
            )
        for row, length in enumerate(measured.tolist()):
            # Checked one by one: the rows in front of one that is wrong come before its error.
            if type(length) is not int or length < 0 or (max_tokens and length > max_tokens):
                check_length(length, first + row, max_tokens)
            yield length, (rows, row)
        first += len(rows)


def _lengths(rows: ColumnarBatch) -> npt.NDArray[Any]:
    for column in rows.columns.values():
        if isinstance(column, Ragged) and column.lod_level:
            return np.asarray(column.recursive_sequence_lengths()[0])
    raise FieldError(
        f"batch.length must be given for a ColumnarBatch without a column of sequences, got {rows}"
    )


def gather_rows(samples: list[Row]) -> ColumnarBatch:
    """Return rows of any record batches as one, in the order given; a view if they are a slice.

    >>> rows = ColumnarBatch({"x": np.arange(5)})
    >>> gather_rows([(rows, 3), (rows, 1)]).columns["x"]
    array([3, 1])
    """
    owners, numbers = zip(*samples, strict=True)
    rows = np.array(numbers)
    batches = dict(zip(map(id, owners), owners, strict=True))  # each once, in order
    if len(batches) == 1:
        return _select(owners[0], rows)
    keys = np.fromiter(map(id, owners), np.uint64, len(samples))
    places = [np.flatnonzero(keys == np.uint64(key)) for key in batches]
    parts = zip(batches.values(), places, strict=True)
    gathered = ColumnarBatch.concat([_select(batch, rows[at]) for batch, at in parts])
    order = np.concatenate(places)
    return gathered if _ascend(order) else gathered[np.argsort(order)]


def _select(batch: ColumnarBatch, rows: npt.NDArray[Any]) -> ColumnarBatch:
    begin, end = int(rows[0]), int(rows[-1]) + 1
    is_slice = end - begin == len(rows) and _ascend(rows)
    return batch[begin:end] if is_slice else batch[rows]


def _ascend(numbers: npt.NDArray[Any]) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())
