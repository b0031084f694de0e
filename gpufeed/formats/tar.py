"""Tar archives, member by member, in memory: nothing is extracted, and no link is followed.

Read are the formats of POSIX (ustar, pax) and GNU, with long names. Directories are passed over; a
link, a device or a sparse file is an error, for what it stands for is not in its data.

Trust: sizes come from the archive. What is not there costs no memory, and headers that extend
others are bounded.

Source: POSIX.1-2017, pax; the GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from gpufeed.errors import FormatError
from gpufeed.formats.source import PIECE_NBYTES, Source, read_up_to

__all__ = ["Member", "TarReader"]

_BLOCK = 512
_MAX_EXTENSION_NBYTES = 1 << 20
_MAX_NBYTES = 10**18

_PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=\n]+)=")


@dataclass(frozen=True)
class Member:
    """A file in an archive.

    Attributes:
        name: Its path, as it is written.
        nbytes: Of its data.
        at: Where its header begins in the archive, in bytes.
    """

    name: str
    nbytes: int
    at: int


class TarReader:
    """The files of an open archive, in order; only of the last one the data can be read.

    Args:
        source: The archive.
        stream: What `Source.open` gave, at its beginning.
    """

    def __init__(self, source: Source, stream: io.BufferedReader) -> None:
        self._path = source.path
        self._stream = stream
        self._total = source.measure(stream)
        self._at = 0  # position in the archive
        self._next = 0  # of the next header

    def __iter__(self) -> Iterator[Member]:
        """Yield the files.

        Raises:
            FormatError: A header is damaged, or the archive ends before its end mark.
        """
        for_all: dict[str, str] = {}
        for_next: dict[str, str] = {}
        while (info := self._header()) is not None:
            begin = self._next
            self._next = self._at + -(-info.size // _BLOCK) * _BLOCK
            if info.type in _EXTENSIONS:
                attributes = self._extension(info)
                (for_all if info.type == tarfile.XGLTYPE else for_next).update(attributes)
                continue
            extended = {**for_all, **for_next}
            for_next = {}
            if info.type == tarfile.DIRTYPE:
                continue
            kind = _OTHERS.get(info.type)
            if any(key.startswith("GNU.sparse.") for key in extended):
                kind = _OTHERS[tarfile.GNUTYPE_SPARSE]
            if kind is not None:
                raise self.error(begin, "files and folders only", f"{kind}, {info.name!r:.80}")
            member = self._member(info, extended, begin)
            self._next = self._at + -(-member.nbytes // _BLOCK) * _BLOCK
            yield member

    def read(self, member: Member) -> bytes:
        """Return the data of the file that was yielded last.

        Raises:
            FormatError: The archive ends within.
        """
        return bytes(self._read(member.nbytes, f"{member.nbytes} bytes of {member.name!r:.80}"))

    def error(self, at: int, expected: str, got: object) -> FormatError:
        """Return the error that something else was met than expected at a byte."""
        return FormatError(f"{self._path}, byte {at}: expected {expected}, got {got}")

    def _header(self) -> tarfile.TarInfo | None:
        """Return the next header; None at the end mark, behind which there is nothing."""
        self._skip_to(self._next)
        block = self._read(_BLOCK, "a tar header or the end mark")
        if not any(block):
            while piece := self._stream.read(PIECE_NBYTES):
                if any(piece):
                    raise self.error(self._at, "zeros behind the end mark", "other bytes")
                self._at += len(piece)
            return None
        try:
            info = tarfile.TarInfo.frombuf(bytes(block), "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise self.error(self._next, "a tar header", error) from error
        if not 0 <= info.size <= _MAX_NBYTES:
            raise self.error(self._next, "a size", info.size)
        return info

    def _member(self, info: tarfile.TarInfo, extended: dict[str, str], begin: int) -> Member:
        size = extended.get("size", str(info.size))
        if not re.fullmatch(r"[0-9]{1,18}", size):
            raise self.error(begin, "a size", repr(size))
        return Member(extended.get("path", info.name), int(size), begin)

    def _extension(self, info: tarfile.TarInfo) -> dict[str, str]:
        """Return what a header says about the next one, or about all."""
        if info.size > _MAX_EXTENSION_NBYTES:
            rule = f"an extended header of at most {_MAX_EXTENSION_NBYTES} bytes"
            raise self.error(self._at - _BLOCK, rule, info.size)
        data = bytes(self._read(info.size, f"an extended header of {info.size} bytes"))
        if info.type == tarfile.GNUTYPE_LONGNAME:
            return {"path": _text(data.partition(b"\0")[0])}
        return {} if info.type == tarfile.GNUTYPE_LONGLINK else self._pax_records(data)

    def _pax_records(self, data: bytes) -> dict[str, str]:
        records, begin = {}, 0
        while begin < len(data):
            found = _PAX_RECORD.match(data, begin)
            end = begin + int(found[1]) if found else 0
            if not found or not found.end() < end <= len(data) or data[end - 1 : end] != b"\n":
                at = self._at - len(data) + begin
                raise self.error(at, "a pax record", repr(data[begin : begin + 20]))
            records[_text(found[2])] = _text(data[found.end() : end - 1])
            begin = end
        return records

    def _read(self, nbytes: int, expected: str) -> bytearray:
        begin = self._at
        data = read_up_to(self._stream, nbytes)
        self._at += len(data)
        if len(data) < nbytes:
            raise self.error(begin, expected, f"the end of the file after {len(data)}")
        return data

    def _skip_to(self, position: int) -> None:
        if self._total is None:
            while self._at < position:
                self._read(min(PIECE_NBYTES, position - self._at), "data")
        elif position > self._total:
            raise self.error(self._at, f"{position - self._at} bytes of data", "fewer")
        else:
            self._stream.seek(position - self._at, os.SEEK_CUR)
            self._at = position


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


_EXTENSIONS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
# What is no file; types that nobody knows are taken for files, as POSIX wants it.
_OTHERS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
