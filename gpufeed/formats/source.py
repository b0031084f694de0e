"""Sources: the bytes of one file, decompressed by its suffix.

A source is a description; `Source.open` opens it. Nothing reads ahead of its caller by more than a
buffer, so memory follows the bytes that a file really holds, never what its header promises.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from gpufeed.errors import FormatError, MissingFile

__all__ = ["SUFFIXES", "PathLike", "Source", "locate"]

PathLike = str | os.PathLike[str]

_DECOMPRESSORS: dict[str, Callable[[BinaryIO], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
SUFFIXES = tuple(_DECOMPRESSORS)  # of compressed files


@dataclass(frozen=True)
class Source:
    """One file to read.

    >>> Source("data/train.csv.gz").stem
    'data/train.csv'

    Attributes:
        path: Of the file; a suffix ``.gz``, ``.bz2`` or ``.xz`` says how it is compressed.
    """

    path: str

    @property
    def compression(self) -> str:
        """The compression suffix of the path, or ``""``."""
        suffix = os.path.splitext(self.path)[1].lower()
        return suffix if suffix in _DECOMPRESSORS else ""

    @property
    def stem(self) -> str:
        """The path without its compression suffix."""
        return self.path[: len(self.path) - len(self.compression)]

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """Open the file and give its decompressed bytes.

        Raises:
            MissingFile: There is no such file.
            FormatError: It cannot be opened, is empty, or its compressed data is damaged; the last
                also out of the ``with`` block, wherever the damage is met.
        """
        with self._raw() as raw, self._decompressed(raw) as stream:
            try:
                if not stream.peek(1):
                    raise FormatError(f"{self.path}: expected data, got an empty file")
                yield stream
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                position = "" if raw.closed else f" near byte {raw.tell()}"
                raise FormatError(f"{self.path}{position}: cannot be read: {error}") from error

    def _raw(self) -> io.BufferedReader:
        try:
            return open(self.path, "rb")
        except FileNotFoundError as error:
            raise MissingFile(f"{self.path}: no such file") from error
        except OSError as error:
            raise FormatError(f"{self.path}: cannot be opened: {error.strerror}") from error

    def _decompressed(self, raw: io.BufferedReader) -> io.BufferedReader:
        if not self.compression:
            return raw
        # The buffer around it splits lines in C, which the decompressors do in Python.
        return io.BufferedReader(_DECOMPRESSORS[self.compression](raw))


def locate(pattern: PathLike) -> list[Source]:
    """Return the sources that a path or glob pattern names, sorted.

    A path that exists is taken as it is, whatever characters it holds; a pattern may use ``**``.
    A plain path is not looked up: opening it says that it is missing.

    >>> locate("data/train.csv")
    [Source(path='data/train.csv')]

    Raises:
        MissingFile: No file matches the pattern.
    """
    path = os.fspath(pattern)
    if os.path.exists(path) or not glob.has_magic(path):
        return [Source(path)]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise MissingFile(f"{path}: no file matches this pattern")
    return [Source(name) for name in found]
