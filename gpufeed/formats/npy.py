"""npy: one array in a file, as `numpy.save` writes it; npz: several of them in a zip archive.

The rows of a plain file are views of its memory map, which is private: a row may be written to,
and the file stays as it is. Other bytes are read in chunks, see `gpufeed.formats.items`.

Trust: nothing is unpickled, arrays of Python objects are refused. A header is bounded before it is
read and holds literals only.

Source: the format description in ``numpy.lib.format``.
"""

from __future__ import annotations

import ast
import io
import math
import mmap
import struct
import sys
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from gpufeed.errors import FieldError, FormatError
from gpufeed.formats.items import MAX_NDIM, ArrayFile, ArrayHeader
from gpufeed.formats.names import check_columns
from gpufeed.formats.source import Source, read_up_to
from gpufeed.formats.spool import seekable

__all__ = ["NpyFile", "NpzFile", "check_npy", "parse_npy", "read_npy"]

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_NBYTES = 1 << 16  # of version 1.0

_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError),
    *(NotImplementedError, RuntimeError),  # a method that Python does not know, encryption
)


@dataclass(frozen=True)
class NpyHeader(ArrayHeader):
    """What the first bytes of an npy file say.

    Attributes:
        fortran_order: Whether the first index runs fastest; items are then not contiguous.
    """

    fortran_order: bool


class NpyFile(ArrayFile[NpyHeader]):
    """The rows of one npy file, an iterable that can start anywhere."""

    def _chunks(
        self, stream: io.BufferedReader, header: NpyHeader, first: int
    ) -> Iterator[npt.NDArray[Any]]:
        is_fortran = header.fortran_order and len(header.item_shape) > 0
        memory: mmap.mmap | bytearray | None = None
        begin = header.nbytes
        if header.dtype.isnative and self._source.measure(stream) is not None:
            memory = _map(stream)
        if memory is None and is_fortran:  # where each row is spread over the whole array
            memory, begin = self._read_all(stream, header), 0
        if memory is None:
            yield from super()._chunks(stream, header, first)
        else:
            shape = (header.num_items, *header.item_shape)
            yield np.ndarray(shape, header.dtype, memory, begin, order="F" if is_fortran else "C")[
                first:
            ]

    def _read_all(self, stream: io.BufferedReader, header: NpyHeader) -> bytearray:
        promised = header.num_items * header.item_nbytes
        memory = read_up_to(stream, promised + 1)
        if len(memory) < promised:
            raise self._cut(header, header.nbytes + len(memory))
        if len(memory) > promised:
            end = header.byte_of(header.num_items)
            raise self._error(end, "the end of the file", "more bytes")
        return memory

    def _read_header(self, stream: io.BufferedReader) -> NpyHeader:
        try:
            start, shape, dtype, fortran_order = _read_start(stream)
            if not shape:
                raise ValueError("expected an array with a first axis, got a single value")
            header = NpyHeader(dtype, shape[0], shape[1:], start, fortran_order)
            if not header.item_nbytes:
                raise ValueError(f"expected items of 1 byte or more, got {dtype} of shape {shape}")
        except ValueError as error:
            raise FormatError(f"{self._source.path}, byte 0, header: {error}") from error
        return header


def parse_npy(data: bytes) -> npt.NDArray[Any]:
    """Return the array of an npy file in memory, as a view that cannot be written to.

    Raises:
        ValueError: It is no npy file, or holds Python objects, or more or fewer bytes than it says.
    """
    start, shape, dtype, fortran_order = _read_start(io.BytesIO(data))
    promised = math.prod(shape) * dtype.itemsize
    if promised != len(data) - start:
        raise ValueError(f"expected {promised} bytes of data, got {len(data) - start}")
    return np.ndarray(shape, dtype, data, start, order="F" if fortran_order else "C")


def _read_start(stream: IO[bytes]) -> tuple[int, tuple[int, ...], np.dtype[Any], bool]:
    """Return the number of bytes in front of the array, its shape, dtype and order.

    Raises:
        ValueError: They are damaged.
    """
    magic = stream.read(8)
    if magic[:6] != _MAGIC or magic[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise ValueError(
            f"expected the npy magic {_MAGIC.hex(' ')} 01..03 00, got {magic.hex(' ')}"
        )
    width = 2 if magic[6] == 1 else 4
    nbytes = int.from_bytes(stream.read(width), "little")
    if nbytes > _MAX_HEADER_NBYTES:
        raise ValueError(f"expected at most {_MAX_HEADER_NBYTES} bytes, got {nbytes}")
    raw = stream.read(nbytes)
    if len(raw) < nbytes:
        raise ValueError(f"expected {nbytes} bytes, got {len(raw)}")
    text = raw.decode("utf-8" if magic[6] == 3 else "latin1")
    try:
        return 8 + width + nbytes, *_parse(text)
    except _BAD_HEADER as error:
        raise ValueError(f"{error}, got {text[:80]!r}") from error


# Whatever literals and dtypes may raise; a warning, where the user has made errors of them.
_BAD_HEADER = (
    *(ValueError, TypeError, SyntaxError, LookupError, AttributeError),
    *(OverflowError, RecursionError, MemoryError, Warning),
)


def _parse(text: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return shape, dtype and order; raise any of `_BAD_HEADER`."""
    fields = ast.literal_eval(text)
    shape, fortran_order = fields["shape"], fields["fortran_order"]
    if type(shape) is not tuple or len(shape) > MAX_NDIM:
        raise ValueError(f"expected at most {MAX_NDIM} sizes")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("expected sizes that are whole numbers >= 0")
    if type(fortran_order) is not bool:
        raise ValueError("expected fortran_order True or False")
    dtype = np.lib.format.descr_to_dtype(fields["descr"])
    if dtype.hasobject:
        raise ValueError("expected no Python objects, whose pickles are not opened")
    if math.prod(max(1, size) for size in shape) * dtype.itemsize > sys.maxsize:
        raise ValueError("expected an array that memory can address")
    return shape, dtype, fortran_order


def _map(stream: io.BufferedReader) -> mmap.mmap | None:
    """Return a private memory map of a file, None of what is no file of this system."""
    try:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):
        return None


class NpzFile:
    """The rows of the arrays of one npz file, side by side: tuples of their items.

    Args:
        source: The file.
        columns: Names of arrays, in the order wanted; None takes all, in the order of the file.
    """

    def __init__(self, source: Source, columns: Sequence[str] | None = None) -> None:
        self._source = source
        self._columns = columns

    def count(self) -> int:
        """Return the number of rows that every array promises."""
        with self._arrays() as arrays:
            return self._common_count(arrays)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self.tail(0)

    def tail(self, skip: int) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows after the first ``skip``.

        Raises:
            FormatError: The archive is damaged, an array is not there, or is refused by `NpyFile`,
                or they differ in their number of rows.
        """
        with self._arrays() as arrays, ExitStack() as stack:
            self._common_count(arrays)
            tails = [stack.enter_context(closing(array.tail(skip))) for array in arrays]
            # Strict, so that each array is read to its end and its end is checked.
            yield from zip(*tails, strict=True)

    @contextmanager
    def _arrays(self) -> Iterator[list[NpyFile]]:
        with self._source.open() as stream, seekable(self._source, stream) as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    held = [name for name in archive.namelist() if name.endswith(".npy")]
                    names = held if self._columns is None else [f"{c}.npy" for c in self._columns]
                    if not names or not set(names) <= set(held):
                        wanted = " and ".join(names) or "arrays"
                        got = ", ".join(held) or "no array"
                        raise FormatError(f"{self._source.path}: expected {wanted}, got {got}")
                    yield [NpyFile(_Member(self._source.path, archive, name)) for name in names]
            except FormatError:
                raise
            except _ZIP_ERRORS as error:
                raise FormatError(f"{self._source.path}: cannot be read: {error}") from error

    def _common_count(self, arrays: Sequence[NpyFile]) -> int:
        counts = [array.count() for array in arrays]
        if len(set(counts)) > 1:
            held = ", ".join(map("{}: {}".format, arrays, counts))
            raise FormatError(f"{self._source.path}: expected equally many rows, got {held}")
        return counts[0]


@dataclass(frozen=True)
class _Member:
    """One member of a zip archive, as `ArrayFile` reads it."""

    archive_path: str
    archive: zipfile.ZipFile
    name: str

    @property
    def path(self) -> str:
        return f"{self.archive_path}, {self.name}"

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        with self.archive.open(self.name) as member:
            # The buffer around it makes small reads cheap.
            yield io.BufferedReader(cast("io.RawIOBase", member))

    def measure(self, stream: io.BufferedReader) -> None:
        """Return None: seeking to the end would read it all."""


def check_npy(columns: Sequence[str] | None = None) -> None:
    """Refuse options of `read_npy` that no file could be read with.

    Raises:
        FieldError: ``columns`` is no list of names.
    """
    check_columns("npy.columns", columns)


def read_npy(source: Source, columns: Sequence[str] | None = None) -> NpyFile | NpzFile:
    """Return the rows of a file, which is an archive if it is called so.

    Args:
        source: The file; ``.npz`` is an archive.
        columns: Of an archive, see `NpzFile`.

    Raises:
        FieldError: ``columns`` is no list of names, or given for a single array.
    """
    check_npy(columns)
    if source.stem.lower().endswith(".npz"):
        return NpzFile(source, columns)
    if columns is not None:
        raise FieldError(f"npy.columns must be None for one array, {source.path}, got {columns!r}")
    return NpyFile(source)
