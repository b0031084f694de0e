from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from support.recordio import chunk

from gpufeed.formats.recordio.chunks import ChunkIndex, ChunkReader, ChunkStart
from gpufeed.formats.recordio.layout import Damaged

CONTENT = chunk(b"a", b"b") + chunk(b"c", dialect="go", compressor="gzip") + chunk(b"d", b"e", b"f")
STARTS = [ChunkStart(0, 0, 0), ChunkStart(1, 30, 2), ChunkStart(2, 75, 3)]
END = ChunkStart(3, len(CONTENT), 6)


class Counted(io.BytesIO):
    num_read = 0

    def readinto(self, buffer: Any) -> int:
        num = super().readinto(buffer)
        self.num_read += num
        return num


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation


def reader(content: bytes, nbytes: int | None = None, kind: type = io.BytesIO) -> ChunkReader:
    return ChunkReader(io.BufferedReader(kind(content)), nbytes)


@pytest.mark.parametrize("nbytes", [None, len(CONTENT)])
@pytest.mark.parametrize("kind", [io.BytesIO, Pipe])
@pytest.mark.parametrize("wanted", [{0, 1, 2}, {1}, {2}, set()])
def test_chunks_of_both_dialects_are_walked(nbytes, kind, wanted) -> None:
    chunks = reader(CONTENT, nbytes, kind)
    starts, records = [], []

    while (found := chunks.read()) is not None:
        starts.append(found.start)
        if found.start.number in wanted:
            records.append(chunks.records(found))

    assert starts == STARTS
    assert chunks.start == END
    every = [[b"a", b"b"], [b"c"], [b"d", b"e", b"f"]]
    assert records == [every[number] for number in sorted(wanted)]


def test_walking_reads_headers_only(tmp_path: Path) -> None:
    content = chunk(bytes(1_000_000)) * 5
    counted = Counted(content)
    chunks = ChunkReader(io.BufferedReader(counted, 64), len(content))

    while chunks.read() is not None:
        pass

    assert counted.num_read <= 5 * 64


def test_an_index_finds_the_chunk_of_each_record() -> None:
    index, chunks = ChunkIndex(), reader(CONTENT)
    while (found := chunks.read()) is not None:
        index.append(found)

    assert index.end == END
    found = [index.find(record) for record in range(8)]
    assert found == [*[STARTS[0]] * 2, STARTS[1], *[STARTS[2]] * 3, END, END]


def test_chunks_without_records_are_found_through() -> None:
    index, chunks = ChunkIndex(), reader(chunk() + chunk(b"a") + chunk() + chunk(b"b"))
    while (found := chunks.read()) is not None:
        index.append(found)

    assert [index.find(record).number for record in range(3)] == [1, 3, 4]


@pytest.mark.parametrize("kind", [io.BytesIO, Pipe])
@pytest.mark.parametrize("skips", [True, False])
def test_a_cut_payload_is_damage(kind: type, skips: bool) -> None:
    content = chunk(b"a", b"b") + chunk(bytes(90))[:50]
    chunks = reader(content, None if kind is Pipe else len(content), kind)
    chunks.read()

    def go_on() -> None:
        found = chunks.read()
        if skips:
            chunks.read()
        else:
            chunks.records(found)

    with pytest.raises(Damaged, match="the end"):
        go_on()


@pytest.mark.parametrize("kind", [io.BytesIO, Pipe])
def test_a_payload_that_is_promised_costs_nothing(kind: type) -> None:
    content = chunk(b"x", nbytes=2**32 - 1)
    for nbytes in (None, len(content)):
        chunks = reader(content, nbytes, kind)
        with pytest.raises(Damaged, match="a payload of 4294967295 bytes"):
            chunks.records(chunks.read())


def after_recovery(content: bytes, kind: type = io.BytesIO) -> list[Any]:
    """Starts of chunks that are whole, and "damage" where there is some."""
    chunks, found = reader(content, None if kind is Pipe else len(content), kind), []
    while True:
        try:
            one = chunks.read()
            if one is None:
                return found
            chunks.records(one)
            found.append(one.start)
        except Damaged:
            found.append("damage")
            if not chunks.can_recover or not chunks.recover():
                return found


def test_the_chunk_behind_a_damaged_payload_is_where_its_header_says() -> None:
    # The first payload holds what looks like a chunk.
    inner = chunk(b"not to be found")
    content = chunk(inner, checksum=1) + chunk(b"c")

    assert after_recovery(content) == ["damage", ChunkStart(1, 24 + len(inner), 1)]


def test_chunks_damaged_side_by_side_are_each_told() -> None:
    content = chunk(b"a", b"b", checksum=1) + chunk(b"c", checksum=1) + chunk(b"d")

    assert after_recovery(content) == ["damage", "damage", ChunkStart(2, 55, 3)]


def test_behind_a_damaged_header_the_next_magic_is_looked_for() -> None:
    first = chunk(b"a", b"b")
    # Of the magic, the number of records, the compressor and the size. No one knows how many
    # records a chunk held whose header cannot be read: one at least.
    for at, num_lost in ((0, 1), (3, 1), (4, 1), (19, 2)):
        content = bytearray(first + chunk(b"c"))
        content[at] ^= 0xFF

        assert after_recovery(bytes(content)) == ["damage", ChunkStart(1, 30, num_lost)]


def test_a_magic_far_away_or_across_pieces_is_found() -> None:
    for gap in (1, (1 << 20) - 2, (1 << 20) - 1, 1 << 20, 3 << 20):
        found = after_recovery(b"\xff" * gap + chunk(b"c"))

        assert found == ["damage", ChunkStart(1, gap, 1)]


def test_magics_that_begin_nothing_are_passed_over_at_once() -> None:
    # Were each of them looked for anew, these would take minutes.
    junk = b"\4\3\2\1" * 100_000

    assert after_recovery(b"\0" + junk + chunk(b"c")) == [
        "damage",
        ChunkStart(1, 1 + len(junk), 1),
    ]


def test_damage_at_the_end_ends_the_file() -> None:
    assert after_recovery(chunk(b"a") + chunk(b"c", checksum=1)) == [STARTS[0], "damage"]
    assert after_recovery(chunk(b"a") + chunk(b"c")[:-1]) == [STARTS[0], "damage"]
    assert after_recovery(chunk(b"a") + b"\4\3\2\1") == [STARTS[0], "damage"]


def test_in_a_stream_that_cannot_go_back_headers_must_be_right() -> None:
    first, last = chunk(b"a"), chunk(b"c")

    content = first + chunk(b"b", checksum=1) + last
    assert after_recovery(content, Pipe) == [STARTS[0], "damage", ChunkStart(2, 50, 2)]
    content = first + b"junk" + last
    assert after_recovery(content, Pipe) == [STARTS[0], "damage"]
    assert after_recovery(first + last[:-1], Pipe) == [STARTS[0], "damage"]
