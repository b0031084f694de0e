"""Tables in files: the same rows as Parquet, Arrow file and Arrow stream."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["WRITERS", "write_table"]


def _parquet(path: str, table: Any, batch_rows: int, **options: Any) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, row_group_size=batch_rows, **options)


def _arrow_file(path: str, table: Any, batch_rows: int, **options: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(path, table.schema, options=_ipc(options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def _arrow_stream(path: str, table: Any, batch_rows: int, **options: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(path, table.schema, options=_ipc(options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def _ipc(options: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.ipc.IpcWriteOptions(**options)


WRITERS: dict[str, Callable[..., None]] = {
    "a.parquet": _parquet,
    "file.arrow": _arrow_file,
    "stream.arrow": _arrow_stream,
}


def write_table(path: Path, table: Any, batch_rows: int, **options: Any) -> Path:
    """Write a table in record batches (or row groups) of so many rows; as the name says.

    A name in `WRITERS`, or one with ``.gz`` behind it.
    """
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    WRITERS[plain.name](str(plain), table, batch_rows, **options)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    return path
