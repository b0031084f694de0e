"""Arrow IPC: record batches as they are in memory, in a file with an index or in a stream.

Which of the two a file holds is told by its first bytes. Columns of a plain file that is not
compressed inside either are views of its memory map.

Trust: it is pyarrow that decodes; offsets are checked before anybody follows them. What a
compressed buffer says of its size is reserved, and used as it is filled.

Source: arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpufeed.errors import import_extra
from gpufeed.formats.source import Source
from gpufeed.formats.tables import (
    Bounded,
    Fill,
    RecordBatches,
    TableFile,
    arrow_file,
    check_table,
    column_positions,
    translated,
)

__all__ = ["check_arrow", "read_arrow"]

_MAGIC = b"ARROW1"  # of the format with an index


def check_arrow(
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
) -> None:
    """Refuse options of `read_arrow` that no file could be read with.

    Raises:
        FieldError: ``columns`` is no list of names, or ``fill_null`` no mapping.
    """
    check_table("arrow", columns, fill_null=fill_null)


def read_arrow(
    source: Source,
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
) -> TableFile:
    """Return the rows of a file or stream, or its record batches.

    Args:
        source: The file.
        columns: Names, in the order wanted; None takes all.
        columnar: Whether a sample is a `ColumnarBatch`, one a record batch.
        fill_null: Column to what stands for its nulls; null lists become empty.

    Raises:
        FieldError: As `check_arrow`.
    """
    check_arrow(columns, columnar=columnar, fill_null=fill_null)
    return _ArrowFile(source, columns, columnar=columnar, fill_null=fill_null)


class _ArrowFile(TableFile):
    @contextmanager
    def _opened(self) -> Iterator[RecordBatches]:
        with self._source.open() as stream, translated(self._source.path):
            if stream.peek(len(_MAGIC)).startswith(_MAGIC):
                with arrow_file(self._source, stream, mapped=True) as file:
                    yield _Indexed(file, self._columns, self._source.path)
            else:
                yield _Streamed(self._source, stream)


class _Indexed:
    """The record batches of a file with an index."""

    def __init__(self, file: Any, columns: Sequence[str] | None, path: str) -> None:
        self._file = file
        self._ipc = import_extra("pyarrow.ipc", "arrow")
        self._whole = self._ipc.open_file(file)
        self._positions = sorted(column_positions(self._whole.schema.names, columns, path).values())

    def sizes(self) -> list[int]:
        """Return the number of rows of each record batch, by one column at most."""
        reader = self._reader(self._positions[:1])
        return [reader.get_batch(k).num_rows for k in range(reader.num_record_batches)]

    def read(self, first: int) -> Iterator[Any]:
        """Yield the record batches from number ``first`` on."""
        reader = self._reader(self._positions)
        for number in range(first, reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield batch

    def _reader(self, positions: list[int]) -> Any:
        """Return a reader of some columns.

        A selection is always copied. That saves decompressing the others, and is a waste where all
        are views of the memory map at no cost.
        """
        if len(positions) == len(self._whole.schema) or self._is_mapped():
            return self._whole
        options = self._ipc.IpcReadOptions(included_fields=positions)
        return self._ipc.open_file(self._file, options=options)

    def _is_mapped(self) -> bool:
        arrow = import_extra("pyarrow", "arrow")
        if not isinstance(self._file, arrow.MemoryMappedFile) or not self._whole.num_record_batches:
            return False
        self._file.seek(0)
        memory = self._file.read_buffer()
        return all(
            memory.address <= buffer.address < memory.address + memory.size
            for column in self._whole.get_batch(0).columns
            for buffer in column.buffers()
            if buffer is not None and buffer.size
        )


class _Streamed:
    """The record batches of a stream, where one comes after the other."""

    def __init__(self, source: Source, stream: io.BufferedReader) -> None:
        self._source = source
        self._stream = stream

    def sizes(self) -> list[int]:
        """Return the number of rows of each record batch, for which all are read."""
        with self._source.open() as stream, self._reader(stream) as reader:
            return [batch.num_rows for batch in reader]

    def read(self, first: int) -> Iterator[Any]:
        """Yield the record batches from number ``first`` on."""
        with self._reader(self._stream) as reader:
            for number, batch in enumerate(reader):
                if number >= first:
                    batch.validate(full=True)
                    yield batch

    @contextmanager
    def _reader(self, stream: io.BufferedReader) -> Iterator[Any]:
        arrow = import_extra("pyarrow", "arrow")
        ipc = import_extra("pyarrow.ipc", "arrow")
        if self._source.measure(stream) is not None:
            with arrow_file(self._source, stream, mapped=True) as file:
                yield ipc.open_stream(file)
        else:
            yield ipc.open_stream(arrow.PythonFile(Bounded(stream), mode="r"))
