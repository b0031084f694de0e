"""Converting what a reader yields into RecordIO files.

A feeder makes a record of every batch: its tensors, in the byte format of PaddlePaddle. Without
one, every sample is a record: bytes as they are, and anything else as a pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.formats import PathLike
from gpufeed.formats.recordio.content import encode_tensors
from gpufeed.formats.recordio.layout import Compressor, Dialect
from gpufeed.formats.recordio.writer import RecordIOWriter
from gpufeed.reader.opening import reading
from gpufeed.reader.stage import AnyReader
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor

__all__ = ["convert_reader_to_recordio_file", "convert_reader_to_recordio_files"]

_PICKLE_PROTOCOL = 4  # of every Python 3 that is still around


def convert_reader_to_recordio_file(
    filename: PathLike,
    reader: AnyReader[Any],
    feeder: DataFeeder | None = None,
    compressor: Compressor = "snappy",
    max_num_records: int = 1000,
    feed_order: Sequence[str] | None = None,
    *,
    dialect: Dialect = "fluid",
) -> int:
    """Write one pass of a reader to a RecordIO file; return the number of its records.

    >>> from tempfile import TemporaryDirectory
    >>> from gpufeed import creator
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/numbers.recordio"
    ...     convert_reader_to_recordio_file(path, lambda: range(3), compressor="none")
    ...     list(creator.recordio(path, allow_pickle=True))
    3
    [0, 1, 2]

    The file appears when it is whole; an error leaves what was there.

    Args:
        filename: Of the file.
        reader: Of batches where there is a feeder, else of samples; pass 0 is written.
        feeder: Makes a feed of each batch, and so a record: read it with
            ``creator.recordio(filename, tensors=True)``. None makes a record of each sample: of
            bytes if the first one is, else of pickles, to be read with ``allow_pickle=True``.
        compressor: As for `RecordIOWriter`.
        max_num_records: Most records in a chunk.
        feed_order: Names of the variables in the order of a record's tensors; None is all of them
            in the feeder's order.
        dialect: As for `RecordIOWriter`.

    Raises:
        FieldError: ``feed_order`` names no variable of the feeder, or is given without one; a
            variable is sparse; a sample is no bytes where the first was; or an option breaks a rule
            of `RecordIOWriter`.
        FormatError: The file cannot be created, or a tensor's dtype has no code.
        MissingExtra: ``compressor`` is Snappy, and its package is not installed.

    Source: ``paddle.fluid.recordio_writer.convert_reader_to_recordio_file``.
    """
    encode = _encoder("convert_reader_to_recordio_file", feeder, feed_order)
    with reading(reader, 0, 0) as items:
        return write_records(
            filename,
            map(encode, items),
            dialect=dialect,
            compressor=compressor,
            max_num_records=max_num_records,
        )


def convert_reader_to_recordio_files(
    filename: PathLike,
    batch_per_file: int,
    reader: AnyReader[Any],
    feeder: DataFeeder | None = None,
    compressor: Compressor = "snappy",
    max_num_records: int = 1000,
    feed_order: Sequence[str] | None = None,
    *,
    dialect: Dialect = "fluid",
) -> int:
    """Write one pass of a reader to several RecordIO files; return the number of their records.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     convert_reader_to_recordio_files(
    ...         f"{folder}/numbers.recordio", 2, lambda: range(3), compressor="none"
    ...     )
    ...     sorted(path.name for path in Path(folder).iterdir())
    3
    ['numbers-00000.recordio', 'numbers-00001.recordio']

    Every batch is written; the last file holds what is left. A reader that yields nothing makes no
    file, and an error leaves the files before the one that it interrupts.

    Args:
        filename: ``"name.recordio"``, for ``name-00000.recordio`` and so on.
        batch_per_file: Records in each file: batches, or without a feeder samples.
        reader: As for `convert_reader_to_recordio_file`, and all that follows.
        feeder: Makes a record of each batch, or None.
        compressor: Of the chunks.
        max_num_records: Most records in a chunk.
        feed_order: Names of variables.
        dialect: Of the files.

    Raises:
        FieldError: ``filename`` ends otherwise, ``batch_per_file`` is not a whole number >= 1, and
            as `convert_reader_to_recordio_file`, like the other errors.

    Source: ``paddle.fluid.recordio_writer.convert_reader_to_recordio_files``; here the batches
    after the last full file are written too, and every file before it holds ``batch_per_file``.
    """
    owner = "convert_reader_to_recordio_files"
    per_file = whole_number(f"{owner}.batch_per_file", batch_per_file, minimum=1)
    path = Path(filename)
    if path.suffix != ".recordio":
        raise FieldError(f"{owner}.filename must end in .recordio, got {str(path)!r}")
    encode = _encoder(owner, feeder, feed_order)
    num_records = 0
    with reading(reader, 0, 0) as items:
        for number, first in enumerate(items):
            num_records += write_records(
                path.with_name(f"{path.stem}-{number:05d}.recordio"),
                map(encode, chain([first], islice(items, per_file - 1))),
                dialect=dialect,
                compressor=compressor,
                max_num_records=max_num_records,
            )
    return num_records


def write_records(
    path: PathLike,
    records: Iterable[bytes],
    *,
    dialect: Dialect = "fluid",
    compressor: Compressor = "snappy",
    max_num_records: int = 1000,
) -> int:
    """Write records to one file; return how many they were.

    Raises:
        FieldError: As `RecordIOWriter`.
    """
    with RecordIOWriter(
        path, dialect=dialect, compressor=compressor, max_num_records=max_num_records
    ) as writer:
        for record in records:
            writer.write(record)
        return writer.num_records


class SampleEncoder:
    """Makes a record of each sample: of bytes if the first one is, else of pickles.

    >>> encode = SampleEncoder("convert")
    >>> encode(b"one"), encode.pickles
    (b'one', False)

    Args:
        owner: For errors.

    Attributes:
        pickles: Whether records are pickles; None before the first one.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._num_samples = 0
        self.pickles: bool | None = None

    def __call__(self, sample: Any) -> bytes:
        """Return the record of the next sample.

        Raises:
            FieldError: It is no bytes, and the first one was.
        """
        is_bytes = isinstance(sample, bytes | bytearray | memoryview)
        if self.pickles is None:
            self.pickles = not is_bytes
        self._num_samples += 1
        if self.pickles:
            return pickle.dumps(sample, _PICKLE_PROTOCOL)
        if not is_bytes:
            raise FieldError(
                f"{self._owner}, sample {self._num_samples - 1}: must be bytes as those before it, "
                f"got {type(sample).__name__}"
            )
        return bytes(sample)


def _encoder(
    owner: str, feeder: DataFeeder | None, feed_order: Sequence[str] | None
) -> Callable[[Any], bytes]:
    if feeder is None:
        if feed_order is not None:
            raise FieldError(f"{owner}.feed_order must be None without a feeder, got {feed_order}")
        return SampleEncoder(owner)
    names = feeder.feed_names if feed_order is None else list(feed_order)
    if unknown := [name for name in names if name not in feeder.feed_names]:
        known = ", ".join(feeder.feed_names)
        raise FieldError(f"{owner}.feed_order must name variables of {known}, got {unknown}")

    def encode(batch: Any) -> bytes:
        feed = feeder.feed(batch)
        return encode_tensors([_dense(owner, name, feed[name]) for name in names])

    return encode


def _dense(owner: str, name: str, field: LoDTensor | SparseRows) -> LoDTensor:
    if isinstance(field, LoDTensor):
        return field
    raise FieldError(
        f"{owner}: variable {name!r} must be dense to be written, got sparse rows; "
        "declare it with densify=True"
    )
