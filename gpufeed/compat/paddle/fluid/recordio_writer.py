"""``fluid.recordio_writer``: batches of a reader as records of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpufeed.compat.paddle.fluid.core import RecordIOCompressor, RecordIOWriter
from gpufeed.convert import convert_reader_to_recordio_file as convert_to_file
from gpufeed.convert import convert_reader_to_recordio_files as convert_to_files
from gpufeed.feeder import DataFeeder
from gpufeed.formats import PathLike

__all__ = [
    "convert_reader_to_recordio_file",
    "convert_reader_to_recordio_files",
    "create_recordio_writer",
]

Batches = Callable[[], Iterable[Any]]

create_recordio_writer = RecordIOWriter  # a context manager in both


def convert_reader_to_recordio_file(
    filename: PathLike,
    reader_creator: Batches,
    feeder: DataFeeder,
    compressor: RecordIOCompressor = RecordIOCompressor.Snappy,
    max_num_records: int = 1000,
    feed_order: Sequence[str] | None = None,
) -> int:
    """Write a record for every batch of a reader; return how many.

    Args:
        filename: Of the file.
        reader_creator: Of batches.
        feeder: Makes tensors of each.
        compressor: Of the chunks.
        max_num_records: Most records in a chunk.
        feed_order: Names of variables in the order of a record's tensors; None is the feeder's.
    """
    return convert_to_file(
        filename, reader_creator, feeder, compressor.value, max_num_records, feed_order
    )


def convert_reader_to_recordio_files(
    filename: PathLike,
    batch_per_file: int,
    reader_creator: Batches,
    feeder: DataFeeder,
    compressor: RecordIOCompressor = RecordIOCompressor.Snappy,
    max_num_records: int = 1000,
    feed_order: Sequence[str] | None = None,
) -> int:
    """Write records to ``name-00000.recordio`` and so on; return how many.

    Every batch is written, where the reference lost those after the last full file.
    """
    return convert_to_files(
        *(filename, batch_per_file, reader_creator, feeder),
        *(compressor.value, max_num_records, feed_order),
    )
