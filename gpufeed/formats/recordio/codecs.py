"""What compresses the payload of a RecordIO chunk: nothing, gzip, or Snappy in one of two framings.

Snappy knows blocks, not streams, and the dialects frame its blocks differently:

    go      Google's framing format: ``ff 06 00 00 sNaPpY``, then blocks of kind (1 byte: 0
            compressed, 1 raw), length (3, little-endian), checksum (4, little-endian), data
    fluid   ``snappy 00``, then blocks of kind (1 byte: 1 compressed, 0 raw), length (2,
            big-endian), checksum (4, big-endian), data; at most 32 KiB of data before compression

Google's length counts the checksum in. The checksums are the same, a masked CRC-32C of the data
before compression, and so is the rule for what is stored raw. So fluid's blocks are Google's under
another head, and one library does both.

Source: framing_format.txt of google/snappy; the files of PaddlePaddle's fluid writer.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

from gpufeed.errors import import_extra
from gpufeed.formats.recordio.layout import HEADER_NBYTES, Compressor, Damaged, Dialect

__all__ = ["compress", "decompress"]

_GOOGLE_MAGIC = b"\xff\x06\x00\x00sNaPpY"
_FLUID_MAGIC = b"snappy\0"
_FLUID_BLOCK_NBYTES = 1 << 15

_GOOGLE_HEAD = struct.Struct("<II")  # kind and length in one word, checksum
_FLUID_HEAD = struct.Struct(">BHI")  # kind, length, checksum


def compress(payload: bytes, compressor: Compressor, dialect: Dialect) -> bytes:
    """Return ``payload`` as a chunk stores it.

    Raises:
        MissingExtra: ``compressor`` is Snappy, and its package is not installed.
    """
    if compressor == "gzip":
        # At the level that Go takes; without a time, so that equal records give equal bytes.
        return gzip.compress(payload, 6, mtime=0)
    if compressor == "snappy":
        if dialect == "fluid":
            return _fluid_stream(payload)
        return bytes(_cramjam().snappy.compress(payload))
    return payload


def decompress(stored: bytes, compressor: Compressor, dialect: Dialect) -> bytes:
    """Return the payload of a chunk, the inverse of `compress`.

    Raises:
        Damaged: ``stored`` is not of this compressor.
        MissingExtra: As for `compress`.
    """
    if compressor == "gzip":
        try:
            return gzip.decompress(stored)
        except (OSError, EOFError, zlib.error) as error:
            raise Damaged(HEADER_NBYTES, "gzip data", error) from error
    if compressor == "snappy":
        cramjam = _cramjam()
        try:
            return bytes(cramjam.snappy.decompress(_google_stream(stored, dialect)))
        except cramjam.DecompressionError as error:
            raise Damaged(HEADER_NBYTES, "Snappy data", error) from error
    return stored


def _cramjam() -> Any:
    return import_extra("cramjam", "snappy")


def _fluid_stream(payload: bytes) -> bytes:
    snappy, parts = _cramjam().snappy, [_FLUID_MAGIC]
    for begin in range(0, len(payload), _FLUID_BLOCK_NBYTES):
        google = bytes(snappy.compress(payload[begin : begin + _FLUID_BLOCK_NBYTES]))
        word, checksum = _GOOGLE_HEAD.unpack_from(google, len(_GOOGLE_MAGIC))
        data = google[len(_GOOGLE_MAGIC) + _GOOGLE_HEAD.size :]
        parts += [_FLUID_HEAD.pack(1 - (word & 0xFF), len(data), checksum), data]
    return b"".join(parts)


def _google_stream(stored: bytes, dialect: Dialect) -> bytes:
    if dialect == "go":
        return stored
    if not stored.startswith(_FLUID_MAGIC):
        got = stored[: len(_FLUID_MAGIC)].hex(" ")
        raise Damaged(HEADER_NBYTES, f"the Snappy magic {_FLUID_MAGIC.hex(' ')}", got)
    parts, at = [_GOOGLE_MAGIC], 0
    while at < len(stored):
        if stored.startswith(_FLUID_MAGIC, at):  # in front, and wherever streams were joined
            at += len(_FLUID_MAGIC)
            continue
        head = stored[at : at + _FLUID_HEAD.size]
        # A head that is cut short says that its block is as long as can be: too long.
        kind, nbytes, checksum = _FLUID_HEAD.unpack(head.ljust(_FLUID_HEAD.size, b"\xff"))
        data = stored[at + len(head) : at + len(head) + nbytes]
        if kind > 1 or len(data) < nbytes:
            raise Damaged(HEADER_NBYTES + at, "a Snappy block", f"a head of {head.hex(' ')}")
        parts += [_GOOGLE_HEAD.pack(1 - kind | nbytes + 4 << 8, checksum), data]
        at += len(head) + nbytes
    return b"".join(parts)
