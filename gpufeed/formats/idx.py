"""IDX: one array in a file, as MNIST is published.

Four bytes ``0 0 dtype ndim``, then ``ndim`` sizes (uint32), then the array in C order; all numbers
big-endian. The first size counts the items, which `gpufeed.formats.items` reads.

Source: the format description at yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import io
import struct

import numpy as np

from gpufeed.formats.items import MAX_NDIM, ArrayFile, ArrayHeader
from gpufeed.formats.source import read_up_to

__all__ = ["IdxFile"]

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxFile(ArrayFile[ArrayHeader]):
    """The items of one IDX file, an iterable that can start anywhere."""

    def _read_header(self, stream: io.BufferedReader) -> ArrayHeader:
        magic = bytes(read_up_to(stream, 4))
        if not _is_magic(magic):
            codes = "/".join(f"{code:02x}" for code in _DTYPES)
            rule = f"the IDX magic 00 00 {codes} 01..{MAX_NDIM:02x}"
            raise self._error(0, rule, magic.hex(" "))
        ndim = magic[3]
        dims = read_up_to(stream, 4 * ndim)
        if len(dims) < 4 * ndim:
            raise self._error(4, f"{ndim} sizes of 4 bytes", f"{len(dims)} bytes")
        num_items, *item_shape = struct.unpack(f">{ndim}I", dims)
        if 0 in item_shape:
            raise self._error(8, "item sizes >= 1", item_shape)
        dtype = np.dtype(_DTYPES[magic[2]])
        return ArrayHeader(dtype, num_items, tuple(item_shape), 4 + len(dims))


def _is_magic(magic: bytes) -> bool:
    return (
        len(magic) == 4
        and magic[:2] == b"\0\0"
        and magic[2] in _DTYPES
        and 1 <= magic[3] <= MAX_NDIM
    )
