"""RecordIO files as PaddlePaddle's writers made them, and what builds and damages others."""

from __future__ import annotations

import zlib
from pathlib import Path

from gpufeed.formats import Source
from gpufeed.formats.recordio import RecordIOFile
from gpufeed.formats.recordio.codecs import compress
from gpufeed.formats.recordio.layout import Compressor, Dialect, Header, join

# Written by the original implementations: Go, Snappy framed, two pickles of protocol 0 ...
GO_SNAPPY = (
    bytes.fromhex(
        "040302019362159b010000003800000002000000ff060000734e61507059012a0000585d4c3c0f000000"
    )
    + b"(I1\nI2\nI3\ntp1\n.\x0f\0\0\0(I4\nI5\nI6\ntp1\n."
)
# ... and fluid, the records ABC and BCD, not compressed and with Snappy.
FLUID_PLAIN = bytes.fromhex("04030201020000007104c763000000000e0000000300000041424303000000424344")
FLUID_SNAPPY = bytes.fromhex(
    "04030201020000008a5071f0010000001c000000"
    "736e617070790000000e7696e33d"
    "03000000414243"
    "03000000424344"
)


def chunk(
    *records: bytes, dialect: Dialect = "fluid", compressor: Compressor = "none", **wrong: int
) -> bytes:
    """Return a chunk; what is in ``wrong`` replaces a field of its header."""
    stored = compress(join(list(records)), compressor, dialect)
    fields = {
        "num_records": len(records),
        "checksum": zlib.crc32(stored),
        "nbytes": len(stored),
        **wrong,
    }
    return Header(dialect=dialect, compressor=compressor, **fields).pack() + stored


def opened(path: Path, content: bytes, **options: object) -> RecordIOFile:
    """Write a file and return its samples."""
    path.write_bytes(content)
    return RecordIOFile(Source(str(path)), **options)
