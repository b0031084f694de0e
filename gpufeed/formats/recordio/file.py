"""The records of one RecordIO file, of either dialect: a sequence that can start anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from gpufeed.errors import FormatError
from gpufeed.formats.damage import OnDamage, refuse
from gpufeed.formats.recordio.chunks import Chunk, ChunkIndex, ChunkReader, ChunkStart
from gpufeed.formats.recordio.content import decoder
from gpufeed.formats.recordio.layout import Damaged
from gpufeed.formats.source import Source

__all__ = ["RecordIOFile", "check_recordio"]


def check_recordio(
    *, allow_pickle: bool = False, tensors: bool = False, encoding: str = "ASCII"
) -> None:
    """Refuse options that `RecordIOFile` would.

    Raises:
        FieldError: ``allow_pickle`` and ``tensors`` are both True, or there is no ``encoding``.
    """
    decoder(allow_pickle=allow_pickle, tensors=tensors, encoding=encoding)


class RecordIOFile:
    """The samples of one file, an iterable that can start at any of them.

    Args:
        source: Of fluid or Go chunks, or both.
        allow_pickle: Unpickle each record, which runs the code that it names.
        tensors: Decode each record into a tuple of LoDTensors.
        encoding: Of the text in pickles of Python 2.
        skipped: Told of damage. A chunk is lost with all its samples; where its header is damaged
            nobody knows how many these were, and they count as one. A record that does not decode
            is lost alone. A damaged header in a stream that cannot go back is raised all the same.

    Raises:
        FieldError: ``allow_pickle`` and ``tensors`` are both True, or there is no ``encoding``.
    """

    def __init__(
        self,
        source: Source,
        *,
        allow_pickle: bool = False,
        tensors: bool = False,
        encoding: str = "ASCII",
        skipped: OnDamage = refuse,
    ) -> None:
        self._source = source
        self._skipped = skipped
        self._decode = decoder(allow_pickle=allow_pickle, tensors=tensors, encoding=encoding)
        self._index: ChunkIndex | None = None

    def __str__(self) -> str:
        return self._source.path

    def count(self) -> int:
        """Return the number of samples, from the headers of the chunks.

        In a file that is damaged between its chunks, or cut, those in front of the fault.
        """
        return self.index().end.first

    def index(self) -> ChunkIndex:
        """Return where each chunk begins, up to the first fault; made once, by reading headers."""
        if self._index is None:
            index = ChunkIndex()
            with self._open() as chunks:
                try:
                    while (chunk := chunks.read()) is not None:
                        index.append(chunk)
                except Damaged:
                    pass  # whoever reads up to there is told
            self._index = index
        return self._index

    def __iter__(self) -> Iterator[Any]:
        return self.tail(0)

    def tail(self, skip: int) -> Iterator[Any]:
        """Yield the samples after the first ``skip``, whose chunks are not read.

        Raises:
            FormatError: A chunk is damaged or cut, or a record does not decode; the samples in
                front of it have been yielded.
        """
        with self._open() as chunks:
            if self._index is not None:
                chunks.start = self._index.find(skip)
            for chunk, records in self._sound_chunks(chunks, skip):
                first = max(skip, chunk.start.first)
                wanted = islice(records, first - chunk.start.first, None)
                yield from self._samples(chunk, first, wanted)

    def chunks(self) -> Iterator[tuple[Chunk, list[bytes]]]:
        """Yield each chunk with its records as they are stored, but for their compression.

        Raises:
            FormatError: A chunk is damaged or cut; the ones in front of it have been yielded.
        """
        with self._open() as chunks:
            yield from self._sound_chunks(chunks, 0)

    @contextmanager
    def _open(self) -> Iterator[ChunkReader]:
        with self._source.open() as stream:
            yield ChunkReader(stream, self._source.measure(stream))

    def _sound_chunks(self, chunks: ChunkReader, skip: int) -> Iterator[tuple[Chunk, list[bytes]]]:
        """Yield the chunks with a record behind the first ``skip``, unless they are damaged."""
        while True:
            try:
                chunk = chunks.read()
                if chunk is None:
                    return
                if chunk.start.first < skip and chunk.next.first <= skip:
                    continue
                records = chunks.records(chunk)
            except Damaged as damage:
                start, num_samples = chunks.start, 1
                if (lost := chunks.current) is not None:
                    start, num_samples = lost.start, lost.header.num_records
                error = self._damage(start, damage)
                if not chunks.can_recover:
                    raise error from damage.__cause__
                self._skipped(error, num_samples)
                if not chunks.recover():
                    return
            else:
                yield chunk, records

    def _samples(self, chunk: Chunk, first: int, records: Iterator[bytes]) -> Iterator[Any]:
        decode = self._decode
        if decode is None:
            yield from records
            return
        for number, record in enumerate(records, first):
            try:
                sample = decode(record)
            except Exception as error:  # noqa: BLE001 - a pickle may raise anything
                place = f"{self._place(chunk.start)}, record {number}"
                refusal = FormatError(f"{place}: cannot be decoded: {error}")
                refusal.__cause__ = error
                self._skipped(refusal)
            else:
                yield sample

    def _damage(self, start: ChunkStart, damage: Damaged) -> FormatError:
        place = self._place(start, damage.at)
        error = FormatError(f"{place}: expected {damage.expected}, got {damage.got}")
        error.__cause__ = damage.__cause__  # of the library that found it, if one did
        return error

    def _place(self, start: ChunkStart, offset: int = 0) -> str:
        return f"{self._source.path}, chunk {start.number}, byte {start.at + offset}"
