"""Parquet: tables in row groups, of which only those that are wanted are read.

A record batch is up to ``batch_rows`` rows of one row group, so that memory is bounded by a row
group as it is stored and by a record batch as it is decoded, whatever the size of the file.

Trust: it is pyarrow that decodes, and checks that column chunks lie within the file, and checksums
of pages where there are any. What a page's header says of its size is reserved (2 GiB at most), and
used as it is filled.

Source: parquet.apache.org.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.errors import FormatError, import_extra
from gpufeed.formats.source import Source
from gpufeed.formats.tables import (
    Fill,
    TableFile,
    arrow_file,
    check_table,
    column_positions,
    translated,
)

__all__ = ["BATCH_ROWS", "check_parquet", "read_parquet"]

BATCH_ROWS = 65_536


def check_parquet(
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
    batch_rows: int = BATCH_ROWS,
) -> None:
    """Refuse options of `read_parquet` that no file could be read with.

    Raises:
        FieldError: ``columns`` is no list of names, ``fill_null`` no mapping, or ``batch_rows`` no
            whole number >= 1.
    """
    check_table("parquet", columns, fill_null=fill_null)
    whole_number("parquet.batch_rows", batch_rows, minimum=1)


def read_parquet(
    source: Source,
    columns: Sequence[str] | None = None,
    *,
    columnar: bool = False,
    fill_null: Fill | None = None,
    batch_rows: int = BATCH_ROWS,
) -> TableFile:
    """Return the rows of a file, or its record batches.

    Args:
        source: The file.
        columns: Names, in the order wanted; None takes all.
        columnar: Whether a sample is a `ColumnarBatch` of up to ``batch_rows`` rows.
        fill_null: Column to what stands for its nulls; null lists become empty.
        batch_rows: Rows that are decoded at once.

    Raises:
        FieldError: As `check_parquet`.
    """
    check_parquet(columns, columnar=columnar, fill_null=fill_null, batch_rows=batch_rows)
    return _ParquetFile(source, columns, columnar, fill_null, int(batch_rows))


class _ParquetFile(TableFile):
    def __init__(
        self,
        source: Source,
        columns: Sequence[str] | None,
        columnar: bool,
        fill_null: Fill | None,
        batch_rows: int,
    ) -> None:
        super().__init__(source, columns, columnar=columnar, fill_null=fill_null)
        self._batch_rows = batch_rows

    @contextmanager
    def _opened(self) -> Iterator[_RowGroups]:
        parquet = import_extra("pyarrow.parquet", "arrow")
        source = self._source
        with (
            source.open() as stream,
            translated(source.path),
            arrow_file(source, stream) as file,
            parquet.ParquetFile(file, page_checksum_verification=True) as opened,
        ):
            yield _RowGroups(opened, source.path, self._columns, self._batch_rows)


class _RowGroups:
    """The record batches of an open file."""

    def __init__(
        self,
        file: Any,
        path: str,
        columns: Sequence[str] | None,
        batch_rows: int,
    ) -> None:
        self._file = file
        self._path = path
        self._batch_rows = batch_rows
        self._columns = list(column_positions(file.schema_arrow.names, columns, path))
        metadata = file.metadata
        self._rows = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        if min(self._rows, default=0) < 0 or sum(self._rows) != metadata.num_rows:
            rows = ", ".join(map(str, self._rows))
            raise FormatError(f"{path}: expected {metadata.num_rows} rows in all, got {rows}")

    def sizes(self) -> list[int]:
        """Return the number of rows of each record batch."""
        full = self._batch_rows
        return [min(full, rows - begin) for rows in self._rows for begin in range(0, rows, full)]

    def read(self, first: int) -> Iterator[Any]:
        """Yield the record batches from number ``first`` on; earlier row groups are not read."""
        for group, rows in enumerate(self._rows):
            num_batches = math.ceil(rows / self._batch_rows)
            if first < num_batches:
                yield from islice(self._read_group(group), first, None)
            first = max(0, first - num_batches)

    def _read_group(self, group: int) -> Iterator[Any]:
        num_rows = 0
        for batch in self._file.iter_batches(
            self._batch_rows, row_groups=[group], columns=self._columns
        ):
            batch.validate(full=True)
            num_rows += len(batch)
            yield batch
        if num_rows != self._rows[group]:
            raise FormatError(
                f"{self._path}, row group {group}: expected {self._rows[group]} rows, "
                f"got {num_rows}"
            )
