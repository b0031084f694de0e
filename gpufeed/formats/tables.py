"""Tables: files of Arrow record batches, read as columns or row by row.

A record batch becomes a `ColumnarBatch` over its own memory: list columns are tensors, and nothing
is made a sample until somebody asks for rows, which are views too.

Trust: record batches are validated before their memory is looked at; what decodes them is pyarrow.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from gpufeed.columnar import Column, ColumnarBatch
from gpufeed.errors import FieldError, FormatError, LoDError, import_extra
from gpufeed.formats.names import check_columns
from gpufeed.formats.source import Source, read_up_to
from gpufeed.formats.spool import seekable
from gpufeed.interop import arrow as arrow_interop
from gpufeed.tensor import LoDTensor

__all__ = [
    "Bounded",
    "Fill",
    "RecordBatches",
    "TableFile",
    "arrow_file",
    "check_table",
    "column_positions",
    "to_columnar",
    "translated",
]

Fill = Mapping[str, Any]


class RecordBatches(Protocol):
    """An open file of record batches."""

    def sizes(self) -> Sequence[int]:
        """Return the number of rows of each record batch; their data is not read for it."""

    def read(self, first: int) -> Iterator[Any]:
        """Yield the record batches from number ``first`` on."""


class TableFile(ABC):
    """The rows of one file, or its record batches as `ColumnarBatch`; starts at any of them.

    Args:
        source: The file.
        columns: Names, in the order wanted; None takes all.
        columnar: Whether a sample is a record batch, and not a row.
        fill_null: Column to what stands for its nulls.
    """

    def __init__(
        self,
        source: Source,
        columns: Sequence[str] | None,
        *,
        columnar: bool,
        fill_null: Fill | None,
    ) -> None:
        self._source = source
        self._columns = columns
        self._columnar = columnar
        self._fill_null = fill_null or {}

    @abstractmethod
    def _opened(self) -> AbstractContextManager[RecordBatches]:
        """Open the file; what pyarrow raises on it is `translated`."""

    def count(self) -> int:
        """Return the number of samples: of rows, or of record batches."""
        with self._opened() as file:
            sizes = file.sizes()
            return len(sizes) if self._columnar else sum(sizes)

    def __iter__(self) -> Iterator[Any]:
        return self.tail(0)

    def tail(self, skip: int) -> Generator[Any, None, None]:
        """Yield the samples after the first ``skip``.

        Raises:
            FormatError: The file is damaged, a column is not there, or holds nulls or something
                that no column is made of.
        """
        for batch in self._read(skip, by_rows=not self._columnar):
            if self._columnar:
                yield batch
            else:
                yield from batch.rows()

    def num_rows(self) -> int:
        """Return the number of rows, whatever a sample is."""
        with self._opened() as file:
            return sum(file.sizes())

    def record_batches(self, skip_rows: int) -> Iterator[ColumnarBatch]:
        """Yield all rows after the first ``skip_rows``, as record batches."""
        return self._read(skip_rows, by_rows=True)

    def _read(self, skip: int, *, by_rows: bool) -> Iterator[ColumnarBatch]:
        number = first_row = cut = 0
        with self._opened() as file:
            if skip:
                starts = np.cumsum([0, *file.sizes()])
                if by_rows:
                    number = int(np.searchsorted(starts, skip, side="right")) - 1
                else:
                    number = min(skip, len(starts) - 1)
                first_row = int(starts[number])
                cut = skip - first_row if by_rows else 0
                if number == len(starts) - 1:
                    return
            for record_batch in file.read(number):
                batch = to_columnar(
                    record_batch,
                    self._columns,
                    owner=self._source.path,
                    first_row=first_row,
                    fill_null=self._fill_null,
                )
                first_row += len(batch)
                yield batch[cut:] if cut else batch
                cut = 0


def check_table(tag: str, columns: Sequence[str] | None, *, fill_null: Fill | None = None) -> None:
    """Refuse options that no table could be read with.

    Raises:
        FieldError: ``columns`` is no list of names, or ``fill_null`` no mapping of some of them.
    """
    check_columns(f"{tag}.columns", columns)
    if fill_null is None:
        return
    if not isinstance(fill_null, Mapping):
        raise FieldError(
            f"{tag}.fill_null must map columns to what stands for nulls, got {fill_null!r:.80}"
        )
    others = [] if columns is None else [name for name in fill_null if name not in columns]
    if others:
        raise FieldError(f"{tag}.fill_null must be for columns that are read, got {others}")


def to_columnar(
    record_batch: Any,
    columns: Sequence[str] | None = None,
    *,
    owner: str,
    first_row: int = 0,
    fill_null: Fill | None = None,
) -> ColumnarBatch:
    """Return a record batch as columns over the same memory.

    Lists become tensors with a LoD, fixed-size lists item dimensions, text and bytes arrays of
    Python objects.

    Args:
        record_batch: Of pyarrow.
        columns: Names, in the order wanted; None takes all.
        owner: The file or object it is of, for errors.
        first_row: Number of its first row, for errors.
        fill_null: Column to what stands for its nulls.

    Raises:
        FieldError: A column is not there, or holds nulls or something that no column is made of.
        LoDError: The offsets of a column are damaged.
    """
    positions = column_positions(record_batch.schema.names, columns, owner)
    converted: dict[str, Column] = {}
    for name, position in positions.items():
        values, lod = arrow_interop.unpack(
            record_batch.column(position),
            f"{owner}, column {name!r}",
            first_row=first_row,
            fill=(fill_null or {}).get(name),
        )
        converted[name] = LoDTensor(values, list(lod)) if lod else values
    return ColumnarBatch(converted)


def column_positions(
    names: Sequence[str], columns: Sequence[str] | None, owner: str
) -> dict[str, int]:
    """Return where the wanted columns stand in a table.

    Raises:
        FieldError: One is not there, or several are of one name.
    """
    for column in columns or names:
        if names.count(column) != 1:
            got = ", ".join(names) or "none"
            raise FieldError(f"{owner}: expected one column {column!r}, got columns {got}")
    return {column: names.index(column) for column in columns or names}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise what is wrong with a file, by pyarrow's word or by our own, as FormatError."""
    arrow = import_extra("pyarrow", "arrow")
    try:
        yield
    except FormatError:
        raise
    except (FieldError, LoDError) as error:
        raise FormatError(str(error)) from error
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        text = " ".join(str(error).split())
        raise FormatError(f"{path}: cannot be read: {text}") from error


@contextmanager
def arrow_file(source: Source, stream: io.BufferedReader, *, mapped: bool = False) -> Iterator[Any]:
    """Give an opened source as a file of pyarrow, which can seek.

    Args:
        source: The file.
        stream: What `Source.open` gave, at its beginning.
        mapped: Whether a plain file is mapped into memory, so that what is read are views of it.
    """
    arrow = import_extra("pyarrow", "arrow")
    if source.is_local and source.measure(stream) is not None:
        with arrow.memory_map(source.path) if mapped else arrow.OSFile(source.path) as file:
            yield file
    else:
        with seekable(source, stream) as bytes_file:
            yield arrow.PythonFile(Bounded(bytes_file), mode="r")


class Bounded:
    """A binary file for pyarrow, whose reads cost no more memory than there are bytes."""

    closed = False

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, nbytes: int) -> bytes:
        """Return the next bytes, ``nbytes`` where there are so many."""
        return bytes(read_up_to(self._file, nbytes))

    def close(self) -> None:
        """Leave the file to who opened it."""
