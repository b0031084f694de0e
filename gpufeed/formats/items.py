"""Items of one array in a file: what IDX and npy share once their headers are read.

Items are views of chunks of about `CHUNK_NBYTES`, converted to the machine's byte order once a
chunk.

Trust: sizes come from the file and may be anything. A plain file is measured before anything is
allocated; a compressed one is read piece by piece, so that memory follows the bytes that arrive.
"""

from __future__ import annotations

import io
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gpufeed.errors import FormatError
from gpufeed.formats.source import PIECE_NBYTES, read_up_to

__all__ = ["CHUNK_NBYTES", "MAX_NDIM", "ArrayFile", "ArrayHeader", "ByteSource"]

CHUNK_NBYTES = PIECE_NBYTES

MAX_NDIM = 32  # of NumPy 1


class ByteSource(Protocol):
    """What an array is read from: a `Source`, or a part of another file."""

    @property
    def path(self) -> str:
        """How errors call it."""

    def open(self) -> AbstractContextManager[io.BufferedReader]:
        """Open it for reading."""

    def measure(self, stream: io.BufferedReader) -> int | None:
        """Return how many bytes it holds in all; None where only reading to the end tells."""


@dataclass(frozen=True)
class ArrayHeader:
    """What the first bytes of a file say about its array.

    Attributes:
        dtype: Of the values, as stored.
        num_items: The first size.
        item_shape: The other sizes; ``()`` when items are scalars.
        nbytes: Of the header itself.
    """

    dtype: np.dtype[Any]
    num_items: int
    item_shape: tuple[int, ...]
    nbytes: int

    @property
    def item_nbytes(self) -> int:
        """Bytes of one item."""
        return self.dtype.itemsize * math.prod(self.item_shape)

    def byte_of(self, item: int) -> int:
        """Position of an item in the file; of item ``num_items``: where the file must end."""
        return self.nbytes + item * self.item_nbytes


Header = TypeVar("Header", bound=ArrayHeader)


class ArrayFile(ABC, Generic[Header]):
    """The items of one array, an iterable that can start anywhere.

    Item ``i`` is ``array[i]``: a view, or a NumPy scalar when the array has one dimension. A
    subclass reads its format's header.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    def __str__(self) -> str:
        return self._source.path

    @abstractmethod
    def _read_header(self, stream: io.BufferedReader) -> Header:
        """Read the header, and leave ``stream`` behind it.

        Raises:
            FormatError: It is damaged, or an item has no bytes: then nothing would bound their
                number.
        """

    def count(self) -> int:
        """Return the number of items that the header promises."""
        with self._source.open() as stream:
            return self._checked_header(stream).num_items

    def __iter__(self) -> Iterator[Any]:
        return self.tail(0)

    def tail(self, skip: int) -> Generator[Any, None, None]:
        """Yield the items after the first ``skip``, which are not read where the file can seek.

        Raises:
            FormatError: The file is of another format, or holds more or fewer bytes than its
                header says; items in front of the fault have been yielded.
        """
        with self._source.open() as stream:
            header = self._checked_header(stream)
            for chunk in self._chunks(stream, header, min(skip, header.num_items)):
                yield from chunk.astype(header.dtype.newbyteorder("="), copy=False)

    def _chunks(
        self, stream: io.BufferedReader, header: Header, first: int
    ) -> Iterator[npt.NDArray[Any]]:
        """Yield the array from item ``first`` on, in pieces."""
        at = header.nbytes + _skip(stream, header.byte_of(first) - header.nbytes)
        if at < header.byte_of(first):
            raise self._cut(header, at)
        per_chunk = max(1, CHUNK_NBYTES // header.item_nbytes)
        for begin in range(first, header.num_items, per_chunk):
            wanted = min(per_chunk, header.num_items - begin)
            raw = read_up_to(stream, wanted * header.item_nbytes)
            whole = len(raw) // header.item_nbytes
            values = np.frombuffer(raw, header.dtype, whole * math.prod(header.item_shape))
            yield values.reshape(whole, *header.item_shape)
            if whole < wanted:
                raise self._cut(header, header.byte_of(begin) + len(raw))
        if stream.read(1):
            end = header.byte_of(header.num_items)
            raise self._error(end, "the end of the file", "more bytes")

    def _checked_header(self, stream: io.BufferedReader) -> Header:
        header = self._read_header(stream)
        promised, held = header.byte_of(header.num_items), self._source.measure(stream)
        if promised > sys.maxsize if held is None else promised != held:
            expected = f"{_items(header)}, {promised} bytes in all"
            raise self._error(header.nbytes, expected, f"{held or sys.maxsize} bytes")
        return header

    def _cut(self, header: Header, at: int) -> FormatError:
        found = (at - header.nbytes) // header.item_nbytes
        return self._error(at, _items(header), f"the end of the file in item {found}")

    def _error(self, at: int, expected: str, got: object) -> FormatError:
        return FormatError(f"{self._source.path}, byte {at}: expected {expected}, got {got}")


def _items(header: ArrayHeader) -> str:
    return f"{header.num_items} items of {header.item_nbytes} bytes"


def _skip(stream: io.BufferedReader, nbytes: int) -> int:
    """Go ``nbytes`` bytes on, or up to the end where that takes reading; return how far it was."""
    if stream.seekable():
        return -stream.tell() + stream.seek(nbytes, os.SEEK_CUR)
    skipped = 0
    while piece := stream.read(min(CHUNK_NBYTES, nbytes - skipped)):
        skipped += len(piece)
    return skipped
