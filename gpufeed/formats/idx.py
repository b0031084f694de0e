"""IDX: one array in a file, as MNIST is published.

Four bytes ``0 0 dtype ndim``, then ``ndim`` sizes (uint32), then the array in C order; all numbers
big-endian. The first size counts the items. Items are views of chunks of about `CHUNK_NBYTES`,
converted to the machine's byte order once a chunk.

Trust: sizes come from the file and may be anything. A plain file is measured before anything is
allocated; a compressed one is read piece by piece, so that memory follows the bytes that arrive.

Source: the format description at yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import io
import math
import os
import struct
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufeed.errors import FormatError
from gpufeed.formats.source import Source

__all__ = ["CHUNK_NBYTES", "IdxFile", "IdxHeader"]

CHUNK_NBYTES = 1 << 20

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

_MAX_NDIM = 32  # of NumPy 1


@dataclass(frozen=True)
class IdxHeader:
    """What the first bytes of an IDX file say.

    Attributes:
        dtype: Of the values, big-endian as stored.
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


class IdxFile:
    """The items of one IDX file, an iterable that can start anywhere.

    Item ``i`` is ``array[i]`` of the array that the file holds: a view, or a NumPy scalar when the
    array has one dimension.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def __str__(self) -> str:
        return self._source.path

    def count(self) -> int:
        """Return the number of items that the header promises."""
        with self._source.open() as stream:
            return self._read_header(stream).num_items

    def __iter__(self) -> Iterator[Any]:
        return self.tail(0)

    def tail(self, skip: int) -> Generator[Any, None, None]:
        """Yield the items after the first ``skip``, which are not read where the file can seek.

        Raises:
            FormatError: The file is not IDX, or holds more or fewer bytes than its header says;
                items in front of the fault have been yielded.
        """
        with self._source.open() as stream:
            header = self._read_header(stream)
            per_chunk = max(1, CHUNK_NBYTES // header.item_nbytes)
            skip = min(skip, header.num_items)
            if stream.seek(header.byte_of(skip)) < header.byte_of(skip):
                raise self._cut(header, stream.tell())
            for first in range(skip, header.num_items, per_chunk):
                yield from self._read_items(stream, header, first, per_chunk)
            if stream.read(1):
                end = header.byte_of(header.num_items)
                raise self._error(end, "the end of the file", "more bytes")

    def _read_header(self, stream: io.BufferedReader) -> IdxHeader:
        magic = bytes(_read_up_to(stream, 4))
        if not _is_magic(magic):
            codes = "/".join(f"{code:02x}" for code in _DTYPES)
            rule = f"the IDX magic 00 00 {codes} 01..{_MAX_NDIM:02x}"
            raise self._error(0, rule, magic.hex(" "))
        ndim = magic[3]
        dims = _read_up_to(stream, 4 * ndim)
        if len(dims) < 4 * ndim:
            raise self._error(4, f"{ndim} sizes of 4 bytes", f"{len(dims)} bytes")
        num_items, *item_shape = struct.unpack(f">{ndim}I", dims)
        if 0 in item_shape:
            raise self._error(8, "item sizes >= 1", item_shape)
        header = IdxHeader(np.dtype(_DTYPES[magic[2]]), num_items, tuple(item_shape), 4 + len(dims))
        self._check_size(header, stream)
        return header

    def _check_size(self, header: IdxHeader, stream: io.BufferedReader) -> None:
        promised = header.byte_of(header.num_items)
        held = sys.maxsize if self._source.compression else os.fstat(stream.fileno()).st_size
        if promised > held or (promised < held and not self._source.compression):
            items = f"{header.num_items} items of {header.item_nbytes} bytes"
            raise self._error(header.nbytes, f"{items}, {promised} bytes in all", f"{held} bytes")

    def _read_items(
        self, stream: io.BufferedReader, header: IdxHeader, first: int, per_chunk: int
    ) -> Iterator[Any]:
        wanted = min(per_chunk, header.num_items - first)
        raw = _read_up_to(stream, wanted * header.item_nbytes)
        whole = len(raw) // header.item_nbytes
        stored = np.frombuffer(raw, header.dtype, whole * math.prod(header.item_shape))
        native = stored.astype(header.dtype.newbyteorder("="), copy=False)
        yield from native.reshape(whole, *header.item_shape)
        if whole < wanted:
            raise self._cut(header, header.byte_of(first) + len(raw))

    def _cut(self, header: IdxHeader, at: int) -> FormatError:
        items = f"{header.num_items} items of {header.item_nbytes} bytes"
        found = (at - header.nbytes) // header.item_nbytes
        return self._error(at, items, f"the end of the file in item {found}")

    def _error(self, at: int, expected: str, got: object) -> FormatError:
        return FormatError(f"{self._source.path}, byte {at}: expected {expected}, got {got}")


def _is_magic(magic: bytes) -> bool:
    return (
        len(magic) == 4
        and magic[:2] == b"\0\0"
        and magic[2] in _DTYPES
        and 1 <= magic[3] <= _MAX_NDIM
    )


def _read_up_to(stream: io.BufferedReader, nbytes: int) -> bytearray:
    """Read ``nbytes`` bytes, fewer at the end of the stream; what is not there costs no memory."""
    found = bytearray()
    while piece := stream.read(min(CHUNK_NBYTES, nbytes - len(found))):
        found += piece
    return found
