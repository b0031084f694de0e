"""The chunks of an open RecordIO file, one after the other, and where each of them begins.

Going from chunk to chunk reads headers only; a payload is read when its records are asked for. So
a file without an index is indexed by 20 bytes a chunk, and skipping costs what the index costs.

Trust: a header is held against the size of the file before anything is allocated, and where the
size is not known a payload is read piece by piece. Memory follows one chunk, decompressed.
"""

from __future__ import annotations

import io
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from gpufeed.formats.recordio.codecs import decompress
from gpufeed.formats.recordio.layout import HEADER_NBYTES, MAGIC, Damaged, Header, cut
from gpufeed.formats.source import PIECE_NBYTES, read_up_to

__all__ = ["Chunk", "ChunkIndex", "ChunkReader", "ChunkStart"]


class ChunkStart(NamedTuple):
    """Where a chunk begins.

    Attributes:
        number: Of the chunk in its file, from 0.
        at: Its first byte.
        first: The number of its first record, from 0.
    """

    number: int = 0
    at: int = 0
    first: int = 0


class Chunk(NamedTuple):
    """A chunk whose header was read.

    Attributes:
        start: Where it begins.
        header: What its header says.
        next: Where the next chunk begins, or the file ends.
    """

    start: ChunkStart
    header: Header
    next: ChunkStart


class ChunkIndex:
    """Where every chunk begins, in 16 bytes a chunk.

    Attributes:
        end: What is behind the last chunk: the end of the file, or the first fault in it.
    """

    def __init__(self) -> None:
        self._at = array("Q")
        self._first = array("Q")
        self.end = ChunkStart()

    def append(self, chunk: Chunk) -> None:
        """Add the next chunk."""
        self._at.append(chunk.start.at)
        self._first.append(chunk.start.first)
        self.end = chunk.next

    def find(self, record: int) -> ChunkStart:
        """Return the chunk that holds a record, `end` if there is none."""
        if record >= self.end.first:
            return self.end
        number = bisect_right(self._first, record) - 1
        return ChunkStart(number, self._at[number], self._first[number])


class ChunkReader:
    """A walk over the chunks of one open file.

    Args:
        stream: Open at its beginning.
        nbytes: Of the stream; None where only its end tells.

    Attributes:
        start: Of the chunk that `read` returns next.
        current: The chunk that it came to last; None if it has no header that can be read.
    """

    def __init__(self, stream: io.BufferedReader, nbytes: int | None) -> None:
        self._stream = stream
        self._nbytes = nbytes
        self._position = 0
        self.start = ChunkStart()
        self.current: Chunk | None = None

    def read(self) -> Chunk | None:
        """Return the next chunk, and go behind it; None at the end of the file.

        Raises:
            Damaged: What is at `start` is no chunk, or not all of one.
        """
        self.current = None
        self._go_to(self.start.at)
        # Files let one go behind their end, decompressed ones do not.
        reached = self._position if self._nbytes is None else min(self._position, self._nbytes)
        if reached < self.start.at:
            missing = reached - self.start.at
            raise Damaged(missing, "the rest of the chunk before", "the end of the file")
        raw = self._take(HEADER_NBYTES)
        if not raw:
            return None
        start, header = self.start, Header.parse(raw)
        end = start.at + HEADER_NBYTES + header.nbytes
        behind = ChunkStart(start.number + 1, end, start.first + header.num_records)
        self.current = chunk = Chunk(start, header, behind)
        self._check_size(chunk)
        self.start = behind
        return chunk

    def records(self, chunk: Chunk) -> list[bytes]:
        """Return the records of a chunk.

        Raises:
            Damaged: The payload is not the one that the header describes.
        """
        header = chunk.header
        stored = self._stored(chunk)
        header.check_payload(stored)
        return cut(decompress(stored, header.compressor, header.dialect), header.num_records)

    @property
    def can_recover(self) -> bool:
        """Whether what follows the damage can be looked for: going on, if not going back."""
        current = self.current
        return self._stream.seekable() or (
            current is not None and current.next.at == self._position
        )

    def recover(self) -> bool:
        """Go to the chunk after `current`, which is damaged; False where none is to be found.

        It is where the damaged chunk's header says, if a chunk or the end of the file is there;
        otherwise at the next magic that begins a header.
        """
        damaged = self.current
        if damaged is not None and not self._stream.seekable():
            self.start = damaged.next
            return True
        if damaged is not None and self._is_boundary(damaged.next):
            self.start = damaged.next
            return True
        lost, num_records = self.start, 1
        if damaged is not None:
            lost, num_records = damaged.start, damaged.header.num_records
        for at in self._magics(lost.at + 1):
            found = ChunkStart(lost.number + 1, at, lost.first + num_records)
            if self._is_boundary(found):
                self.start = found
                return True
        return False

    def _stored(self, chunk: Chunk) -> bytes:
        self._go_to(chunk.start.at + HEADER_NBYTES)
        return self._take(chunk.header.nbytes)

    def _check_size(self, chunk: Chunk) -> None:
        if self._nbytes is not None and chunk.next.at > self._nbytes:
            held = self._nbytes - chunk.start.at - HEADER_NBYTES
            expected = f"a payload of {chunk.header.nbytes} bytes"
            raise Damaged(HEADER_NBYTES, expected, f"the end of the file after {held}")

    def _is_boundary(self, start: ChunkStart) -> bool:
        """Return whether a chunk begins or the file ends there."""
        before, self.start = self.start, start
        try:
            self.read()
        except Damaged:
            return False
        else:
            return True
        finally:
            self.start = before

    def _magics(self, at: int) -> Iterator[int]:
        """Yield where magics are, from byte ``at`` on."""
        self._go_to(at)
        while len(piece := self._take(PIECE_NBYTES)) >= len(MAGIC):
            end = self._position
            found = piece.find(MAGIC)
            while found >= 0:
                yield end - len(piece) + found
                found = piece.find(MAGIC, found + 1)
            self._go_to(end - len(MAGIC) + 1)  # one may be cut there

    def _take(self, nbytes: int) -> bytes:
        if self._nbytes is None and nbytes > PIECE_NBYTES:
            taken = bytes(read_up_to(self._stream, nbytes))
        else:
            taken = self._stream.read(nbytes)
        self._position += len(taken)
        return taken

    def _go_to(self, at: int) -> None:
        """Go to a byte, or to the end if that comes before it."""
        if at == self._position:
            return
        if self._stream.seekable():
            self._position = self._stream.seek(at)
        while self._position < at and self._take(min(PIECE_NBYTES, at - self._position)):
            pass
