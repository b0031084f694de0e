"""Sources: the bytes of one file, here or behind a URL, decompressed by its suffix.

A source is a description; `Source.open` opens it. Nothing reads ahead of its caller by more than a
buffer, so memory follows the bytes that a file really holds, never what its header promises.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpufeed.compression import COMPRESSIONS, damage_of, decompressed
from gpufeed.errors import FormatError, MissingFile
from gpufeed.formats.remote import is_url, match_urls, open_url

__all__ = ["PIECE_NBYTES", "SUFFIXES", "PathLike", "Source", "locate", "read_up_to"]

PathLike = str | os.PathLike[str]

SUFFIXES = tuple(COMPRESSIONS)  # of compressed files

PIECE_NBYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """One file to read.

    >>> Source("data/train.csv.gz").stem
    'data/train.csv'

    Attributes:
        path: Of the file, or its URL; a suffix ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` says how it
            is compressed.
    """

    path: str

    @property
    def is_local(self) -> bool:
        """Whether the path is one of the operating system's, and no URL."""
        return not is_url(self.path)

    @property
    def compression(self) -> str:
        """The compression suffix of the path, or ``""``."""
        suffix = os.path.splitext(self._name)[1].lower()
        return suffix if suffix in COMPRESSIONS else ""

    @property
    def stem(self) -> str:
        """The path without its compression suffix, a web address also without its query."""
        return self._name[: len(self._name) - len(self.compression)]

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """Open the file and give its decompressed bytes.

        Raises:
            MissingFile: There is no such file.
            FormatError: It cannot be opened, is empty, or its compressed data is damaged; the last
                also out of the ``with`` block, wherever the damage is met.
            MissingExtra: What the URL or the compression needs is not installed.
        """
        damage = damage_of(COMPRESSIONS.get(self.compression, ""))
        with self._raw() as raw, self._decompressed(raw) as stream:
            try:
                if not stream.peek(1):
                    raise FormatError(f"{self.path}: expected data, got an empty file")
                yield stream
            except damage as error:
                if isinstance(error, FormatError):
                    raise
                position = "" if raw.closed else f" near byte {raw.tell()}"
                raise FormatError(f"{self.path}{position}: cannot be read: {error}") from error

    def measure(self, stream: io.BufferedReader) -> int | None:
        """Return how many bytes ``stream``, which `open` gave, holds in all.

        None where only reading to the end tells: a compressed file, a pipe, some web servers.
        """
        if self.compression or not stream.seekable():
            return None
        position = stream.tell()
        nbytes = stream.seek(0, os.SEEK_END)
        stream.seek(position)
        return nbytes

    @property
    def _name(self) -> str:
        if not self.path.startswith(("http://", "https://")):
            return self.path
        address = urlsplit(self.path)
        return f"{address.scheme}://{address.netloc}{address.path}"

    def _raw(self) -> io.BufferedReader:
        if not self.is_local:
            return open_url(self.path)
        try:
            return open(self.path, "rb")
        except FileNotFoundError as error:
            raise MissingFile(f"{self.path}: no such file") from error
        except (OSError, ValueError) as error:  # the latter of a path that holds a null character
            reason = getattr(error, "strerror", None) or error
            raise FormatError(f"{self.path}: cannot be opened: {reason}") from error

    def _decompressed(self, raw: io.BufferedReader) -> io.BufferedReader:
        return decompressed(raw, COMPRESSIONS[self.compression]) if self.compression else raw


def locate(pattern: PathLike) -> list[Source]:
    """Return the sources that a path, a URL or a glob pattern names, sorted.

    A path that exists is taken as it is, whatever characters it holds; a pattern may use ``**``.
    A URL is a pattern only if it has a ``*``: a question mark begins a web address's query. A
    plain path is not looked up: opening it says that it is missing.

    >>> locate("data/train.csv")
    [Source(path='data/train.csv')]

    Raises:
        MissingFile: No file matches the pattern.
        FormatError: The place behind a URL cannot list its files.
        MissingExtra: What the URL needs is not installed.
    """
    path = os.fspath(pattern)
    if is_url(path):
        if "*" not in path:
            return [Source(path)]
        found = match_urls(path)
    elif os.path.exists(path) or not glob.has_magic(path):
        return [Source(path)]
    else:
        found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise MissingFile(f"{path}: no file matches this pattern")
    return [Source(name) for name in found]


def read_up_to(stream: io.BufferedReader, nbytes: int) -> bytearray:
    """Read ``nbytes`` bytes, fewer at the end of the stream; what is not there costs no memory."""
    found = bytearray()
    while piece := stream.read(min(PIECE_NBYTES, nbytes - len(found))):
        found += piece
    return found
