"""Writing RecordIO files: chunk by chunk, and under the file's own name only once it is whole.

A file that is cut between two chunks looks like a whole one. So a writer writes beside its path,
under a name that no pattern for RecordIO files matches, and `RecordIOWriter.close` moves the file
into place in one step. Until then, and for ever if the process dies or an exception leaves the
``with`` block, what stood at the path before still stands there. A process that is killed leaves
its unfinished ``.name.xxxxxxxx.part`` behind, which nobody reads.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from weakref import finalize

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats.recordio.codecs import compress
from gpufeed.formats.recordio.content import encode_tensors
from gpufeed.formats.recordio.layout import (
    COMPRESSORS,
    DIALECTS,
    MAX_NBYTES,
    Compressor,
    Dialect,
    Header,
    join,
)
from gpufeed.formats.source import SUFFIXES, PathLike, Source

if TYPE_CHECKING:
    from gpufeed.tensor import LoDTensor

__all__ = ["RecordIOWriter"]

CHUNK_NBYTES = 32 << 20  # of records, before compression: the Go package's limit

Name = TypeVar("Name", bound=str)


class RecordIOWriter:
    """Writes records to a file that readers of either dialect's original understand.

    >>> from tempfile import TemporaryDirectory
    >>> from gpufeed import creator
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/words.recordio"
    ...     with RecordIOWriter(path, compressor="gzip") as writer:
    ...         writer.write(b"one")
    ...         writer.write(b"two")
    ...     list(creator.recordio(path))
    [b'one', b'two']

    The file appears, or replaces another, when the writer is closed; an exception in the ``with``
    block leaves everything as it was.

    Args:
        path: Of the file.
        dialect: ``"fluid"`` or ``"go"``.
        compressor: ``"snappy"``, ``"gzip"`` or ``"none"``. The fluid dialect has a number for gzip
            which PaddlePaddle itself never read.
        max_num_records: Most records in a chunk, what a damaged byte costs and a reader holds.
        max_chunk_nbytes: Most bytes of records in a chunk, unless one record alone is larger.

    Attributes:
        path: Where the file will be.
        num_records: Records written so far.

    Raises:
        FieldError: ``dialect`` or ``compressor`` is another, a limit is not a whole number >= 1, or
            ``path`` is a URL, ends as compressed files do, or is a folder or device.
        FormatError: The file cannot be created.
        MissingExtra: ``compressor`` is Snappy, and its package is not installed.

    Source: ``paddle.fluid.recordio_writer``; the Go package ``recordio``.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        dialect: Dialect = "fluid",
        compressor: Compressor = "snappy",
        max_num_records: int = 1000,
        max_chunk_nbytes: int = CHUNK_NBYTES,
    ) -> None:
        self.path = os.fspath(path)
        _check_path(self.path)
        self._dialect = _one_of("dialect", dialect, DIALECTS)
        self._compressor = _one_of("compressor", compressor, COMPRESSORS)
        name = "RecordIOWriter.max_num_records"
        self._max_num_records = whole_number(name, max_num_records, minimum=1)
        name = "RecordIOWriter.max_chunk_nbytes"
        nbytes = whole_number(name, max_chunk_nbytes, minimum=1)
        self._max_chunk_nbytes = min(nbytes, MAX_NBYTES // 2)  # compressed, it may be larger
        compress(b"", self._compressor, self._dialect)  # what is missing is missed before any work
        self.num_records = 0
        self._records: list[bytes] = []
        self._nbytes = 0
        self._tensors: list[LoDTensor] = []
        self._file = _create(self.path)
        self._is_open = True
        self._abandon = finalize(self, _abandon, os.getpid(), self._file, self.path)

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Add a record.

        Raises:
            FieldError: ``record`` is not bytes, or too long for a chunk; or the writer is closed.
            OSError: The chunk before it cannot be written, and the writer is closed.
        """
        if not self._is_open:
            raise self._closed()
        if type(record) is not bytes:
            record = _as_bytes(record)
        nbytes = self._nbytes + len(record)
        if len(self._records) >= self._max_num_records or nbytes > self._max_chunk_nbytes:
            nbytes = len(record)
            if nbytes > MAX_NBYTES - 4:  # its length is in the chunk too
                raise FieldError(f"RecordIOWriter.record must be < 4 GiB, got {nbytes} bytes")
            if self._records:
                self._flush()
        self._records.append(record)
        self._nbytes = nbytes
        self.num_records += 1

    def append_tensor(self, tensor: LoDTensor) -> None:
        """Add a tensor to the next record, which `complete_append_tensor` writes."""
        if not self._is_open:
            raise self._closed()
        self._tensors.append(tensor)

    def complete_append_tensor(self) -> None:
        """Write the tensors appended since the last call as one record.

        Raises:
            FormatError: There is no code for the dtype of one.
        """
        tensors, self._tensors = self._tensors, []
        self.write(encode_tensors(tensors))

    def close(self) -> None:
        """Write what is left, and put the file into its place; idempotent.

        Raises:
            FieldError: Tensors were appended and not completed; there is no file.
            OSError: The file cannot be written; there is none.
        """
        if not self._is_open:
            return
        with self._discarding():
            if self._tensors:
                raise FieldError(
                    "RecordIOWriter.close: complete_append_tensor must come first, "
                    f"got {len(self._tensors)} tensors without it"
                )
            if self._records or not self.num_records:
                self._flush()
            self._file.flush()
            # Else a system that crashes may keep the new name and not the bytes.
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._file.name, os.path.realpath(self.path))
        self._is_open = False
        self._abandon.detach()

    def discard(self) -> None:
        """Forget what was written, and leave at the path what was there; idempotent."""
        if self._is_open:
            self._is_open = False
            self._abandon.detach()
            _remove(self._file)

    def __enter__(self) -> RecordIOWriter:
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        if raised is None:
            self.close()
        else:
            self.discard()

    def _closed(self) -> FieldError:
        return FieldError(f"RecordIOWriter of {self.path} must be open, got a closed one")

    def _flush(self) -> None:
        records, self._records, self._nbytes = self._records, [], 0
        with self._discarding():
            self._file.write(_chunk(records, self._compressor, self._dialect))

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Leave nothing that half a chunk could be part of."""
        try:
            yield
        except BaseException:
            self.discard()
            raise


def _chunk(records: list[bytes], compressor: Compressor, dialect: Dialect) -> bytes:
    if not records:
        return Header(dialect, 0, 0, "none", 0).pack()
    stored = compress(join(records), compressor, dialect)
    if len(stored) > MAX_NBYTES:
        raise FieldError(f"RecordIOWriter: a chunk must be < 4 GiB, got {len(stored)} bytes")
    header = Header(dialect, len(records), zlib.crc32(stored), compressor, len(stored))
    return header.pack() + stored


def _as_bytes(record: object) -> bytes:
    if isinstance(record, bytes | bytearray | memoryview):
        return bytes(record)
    raise FieldError(f"RecordIOWriter.record must be bytes, got {type(record).__name__}")


def _check_path(path: str) -> None:
    source = Source(path)
    if not source.is_local:
        raise FieldError(f"RecordIOWriter.path must be a file of this machine, got {path}")
    if source.compression:
        raise FieldError(
            f"RecordIOWriter.path must not end in one of {', '.join(SUFFIXES)}, got {path}; "
            "chunks are compressed by compressor="
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise FieldError(f"RecordIOWriter.path must be a plain file or a new one, got {path}")


def _one_of(argument: str, given: Name, names: tuple[Name, ...]) -> Name:
    if given not in names:
        known = ", ".join(map(repr, names))
        raise FieldError(f"RecordIOWriter.{argument} must be one of {known}, got {given!r}")
    return given


def _create(path: str) -> BinaryIO:
    folder, name = os.path.split(os.path.realpath(path))
    beside = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part")
    try:
        return open(beside, "xb")
    except OSError as error:
        raise FormatError(f"{path}: cannot be written: {error.strerror}") from error


def _remove(file: BinaryIO) -> None:
    with suppress(OSError):  # of what is buffered, on a disk that is full
        file.close()
    with suppress(FileNotFoundError):
        os.remove(file.name)


def _abandon(owner: int, file: BinaryIO, path: str) -> None:
    if os.getpid() != owner:  # a fork of the process that writes
        return
    _remove(file)
    warnings.warn(
        f"RecordIOWriter of {path} was not closed, and is forgotten",
        ResourceWarning,
        stacklevel=2,
    )
