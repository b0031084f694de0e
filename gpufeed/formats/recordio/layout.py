"""How a RecordIO chunk is laid out, in both dialects.

A file is chunks end to end, nothing before, between or behind them. A chunk is a header of five
little-endian uint32, and the payload that it describes:

    word        fluid (C++)             go
    0           magic 0x01020304        magic 0x01020304
    1           number of records       CRC-32
    2           CRC-32                  compressor
    3           compressor              bytes of the payload
    4           bytes of the payload    number of records

The CRC is the payload's as it is stored. Decompressed, the payload is the records, each behind its
length (uint32). A compressor is 0, 1 or 2; a payload with a record in it has 4 bytes or more. So
word 3 tells the dialects apart before the CRC confirms it, and a scan of the headers needs to read
no payload. Both write a chunk without records, which an empty file needs, as a magic and zeros.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, Literal, NamedTuple

__all__ = [
    "COMPRESSORS",
    "DIALECTS",
    "HEADER_NBYTES",
    "MAGIC",
    "MAX_NBYTES",
    "Compressor",
    "Damaged",
    "Dialect",
    "Header",
    "cut",
    "join",
]

Dialect = Literal["fluid", "go"]
Compressor = Literal["none", "snappy", "gzip"]

DIALECTS: Final[tuple[Dialect, ...]] = ("fluid", "go")
COMPRESSORS: Final[tuple[Compressor, ...]] = ("none", "snappy", "gzip")  # by their number

MAGIC = b"\x04\x03\x02\x01"
HEADER_NBYTES = 20
MAX_NBYTES = 2**32 - 1  # what a header can say

_WORDS = struct.Struct("<4s4I")
_LENGTH = struct.Struct("<I")


class Damaged(Exception):  # noqa: N818 - a fact about a chunk, without the file's name yet
    """What is wrong with a chunk.

    Attributes:
        at: Where in the chunk, in bytes from its beginning.
        expected: What should be there.
        got: What is.
    """

    def __init__(self, at: int, expected: str, got: object) -> None:
        super().__init__(at, expected, got)
        self.at, self.expected, self.got = at, expected, got


class Header(NamedTuple):
    """What the first bytes of a chunk say.

    Attributes:
        dialect: Whose order of words.
        num_records: In the chunk.
        checksum: CRC-32 of the payload as stored.
        compressor: Of the payload.
        nbytes: Of the payload as stored.
    """

    dialect: Dialect
    num_records: int
    checksum: int
    compressor: Compressor
    nbytes: int

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """Read a header.

        Raises:
            Damaged: It is none.
        """
        if len(raw) < HEADER_NBYTES:
            raise Damaged(0, f"a chunk header of {HEADER_NBYTES} bytes", f"{len(raw)} bytes")
        magic, *words = _WORDS.unpack(raw)
        if magic != MAGIC:
            raise Damaged(0, f"the RecordIO magic {MAGIC.hex(' ')}", magic.hex(" "))
        dialect: Dialect = "fluid" if words[2] < len(COMPRESSORS) else "go"
        if dialect == "fluid":
            num_records, checksum, compressor, nbytes = words
        else:
            checksum, compressor, nbytes, num_records = words
        if compressor >= len(COMPRESSORS):
            raise Damaged(8, f"a compressor of 0 to {len(COMPRESSORS) - 1}", compressor)
        header = cls(dialect, num_records, checksum, COMPRESSORS[compressor], nbytes)
        header._check_plausible()
        return header

    def _check_plausible(self) -> None:
        # Each record has a length of 4 bytes, which nothing here makes 1,100 times smaller.
        is_plain = self.compressor == "none"
        least = 1 if is_plain and self.nbytes else 0
        most = self.nbytes * (1 if is_plain else 1100) // 4
        if not least <= self.num_records <= most:
            at = 4 if self.dialect == "fluid" else 16
            expected = f"{least} to {most} records in {self.nbytes} bytes"
            raise Damaged(at, expected, self.num_records)

    def pack(self) -> bytes:
        """Return the header's bytes."""
        compressor = COMPRESSORS.index(self.compressor)
        if self.dialect == "fluid":
            words = (self.num_records, self.checksum, compressor, self.nbytes)
        else:
            words = (self.checksum, compressor, self.nbytes, self.num_records)
        return _WORDS.pack(MAGIC, *words)

    def check_payload(self, stored: bytes | bytearray) -> None:
        """Hold a payload against its length and checksum.

        Raises:
            Damaged: It is not the one that this header describes.
        """
        if len(stored) < self.nbytes:
            raise Damaged(
                HEADER_NBYTES, f"a payload of {self.nbytes} bytes", f"the end after {len(stored)}"
            )
        if (checksum := zlib.crc32(stored)) != self.checksum:
            expected = f"a payload with CRC {self.checksum:#010x}"
            raise Damaged(HEADER_NBYTES, expected, f"{checksum:#010x}")


def join(records: list[bytes]) -> bytes:
    r"""Return the payload, before compression, that holds ``records``.

    >>> join([b"AB", b""])
    b'\x02\x00\x00\x00AB\x00\x00\x00\x00'
    """
    pack = _LENGTH.pack
    return b"".join([part for record in records for part in (pack(len(record)), record)])


def cut(payload: bytes, num_records: int) -> list[bytes]:
    """Return the records of a payload, the inverse of `join`.

    >>> cut(join([b"AB", b""]), 2)
    [b'AB', b'']

    Raises:
        Damaged: It holds more or fewer records, or lengths that do not add up.
    """
    if num_records * _LENGTH.size > len(payload):
        raise _miscounted(num_records, payload)
    if num_records and (records := _cut_equal(payload, num_records)):
        return records
    unpack, at, records = _LENGTH.unpack_from, 0, []
    try:
        for _ in range(num_records):
            begin = at + _LENGTH.size
            at = begin + unpack(payload, at)[0]
            records.append(payload[begin:at])
    except struct.error:  # the end is where a length should be
        raise _miscounted(num_records, payload) from None
    if at != len(payload):
        raise _miscounted(num_records, payload)
    return records


def _cut_equal(payload: bytes, num_records: int) -> list[bytes] | None:
    """Return records that are all as long as the first, as tensors often are; else None."""
    (nbytes,) = _LENGTH.unpack_from(payload)
    if num_records * (_LENGTH.size + nbytes) != len(payload):
        return None
    pairs = struct.iter_unpack(f"<I{nbytes}s", payload)
    records = [record for length, record in pairs if length == nbytes]
    return records if len(records) == num_records else None


def _miscounted(num_records: int, payload: bytes) -> Damaged:
    expected = f"{num_records} records that fill the payload"
    return Damaged(HEADER_NBYTES, expected, f"other lengths in its {len(payload)} bytes")
