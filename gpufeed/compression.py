"""Compressed streams: what they are called, how they are opened, and how they say they are damaged.

Files name their compression by a suffix, pipes by a word. Every stream here may be several
compressed ones end to end, as ``cat`` makes them, and is decompressed as it is read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from typing import Any, BinaryIO

from gpufeed.errors import import_extra

__all__ = ["COMPRESSIONS", "damage_of", "decompressed"]

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}  # by suffix

_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)


def decompressed(raw: BinaryIO, compression: str) -> io.BufferedReader:
    """Return the decompressed bytes of ``raw``, which stays open when they are closed.

    >>> packed = gzip.compress(b"hello ") + gzip.compress(b"world")
    >>> decompressed(io.BytesIO(packed), "gzip").read()
    b'hello world'

    Args:
        raw: Need not seek.
        compression: A value of `COMPRESSIONS`.

    Raises:
        MissingExtra: Zstandard before Python 3.14, and the package for it is not installed.
    """
    # The buffer around it splits lines in C, which the decompressors do in Python.
    return io.BufferedReader(_opened(raw, compression))


def damage_of(compression: str) -> tuple[type[Exception], ...]:
    """Return what reading a stream may raise, when it is compressed so; ``""`` is not at all."""
    return (*_DAMAGE, _zstd().ZstdError) if compression == "zstd" else _DAMAGE


def _opened(raw: BinaryIO, compression: str) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression == "bz2":
        return bz2.BZ2File(raw)
    if compression == "xz":
        return lzma.LZMAFile(raw)
    return _zstd().ZstdFile(raw)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd
    return import_extra("backports.zstd", "zstd")
