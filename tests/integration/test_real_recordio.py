"""RecordIO files that both original implementations wrote, where they are at hand."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from pathlib import Path

import pytest
from support.readers import taken_until

from gpufeed import RecordIOWriter, creator
from gpufeed.errors import FormatError
from gpufeed.formats import Source
from gpufeed.formats.recordio.chunks import ChunkReader
from gpufeed.formats.recordio.layout import Header

DATA = Path(__file__).parents[2] / "../shared/data/recordio"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}")


@pytest.mark.parametrize("name", ["fluid-plain", "fluid-snappy"])
def test_the_fluid_dialect(name: str) -> None:
    if "snappy" in name:
        pytest.importorskip("cramjam", reason="needs cramjam")
    records = list(creator.recordio(DATA / f"{name}.recordio"))

    assert records[:4] == [b"ABC", b"BCD", b"", b"x" * 100_000]
    assert [len(record) for record in records[4:]] == [70_000]
    # Random: what little zlib saves on it is less than a hundredth.
    assert len(zlib.compress(records[4])) > 69_000


def test_both_fluid_files_hold_the_same() -> None:
    pytest.importorskip("cramjam", reason="needs cramjam")
    plain, snappy = (
        creator.recordio(DATA / f"fluid-{name}.recordio") for name in ("plain", "snappy")
    )

    assert list(plain) == list(snappy)


def test_the_go_dialect() -> None:
    pytest.importorskip("cramjam", reason="needs cramjam")
    samples = list(creator.recordio(DATA / "go-snappy-pickle.recordio", allow_pickle=True))

    assert len(samples) == 1000
    assert {type(text) for text, _ in samples} == {str}
    assert {label for _, label in samples} == {0, 1}
    assert samples[0][0].startswith("the rock is destined to be the 21st century's new")


def test_the_writer_repeats_the_fluid_file_byte_by_byte(tmp_path: Path) -> None:
    path = DATA / "fluid-plain.recordio"
    with RecordIOWriter(tmp_path / "again", compressor="none") as writer:
        for record in creator.recordio(path):
            writer.write(record)

    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_the_writer_repeats_the_go_file_but_for_its_compression(tmp_path: Path) -> None:
    # Compressors differ in what they find to compress, and the rest must not.
    pytest.importorskip("cramjam", reason="needs cramjam")
    path = DATA / "go-snappy-pickle.recordio"
    with RecordIOWriter(tmp_path / "again", dialect="go") as writer:
        for record in creator.recordio(path):
            writer.write(record)

    (mine,), (theirs,) = (_headers(file) for file in (tmp_path / "again", path))
    fields = ("dialect", "compressor", "num_records")
    assert [getattr(mine, name) for name in fields] == [getattr(theirs, name) for name in fields]
    assert list(creator.recordio(tmp_path / "again")) == list(creator.recordio(path))


def _headers(path: Path) -> list[Header]:
    with Source(str(path)).open() as stream:
        chunks = ChunkReader(stream, path.stat().st_size)
        return [chunk.header for chunk in iter(chunks.read, None)]


@pytest.mark.parametrize("name", ["fluid-plain", "fluid-snappy", "go-snappy-pickle"])
def test_what_is_left_of_a_mutated_file_is_what_was_written(tmp_path: Path, name: str) -> None:
    pytest.importorskip("cramjam", reason="needs cramjam")
    whole = (DATA / f"{name}.recordio").read_bytes()
    written = set(creator.recordio(DATA / f"{name}.recordio"))
    generator = random.Random(name)
    tracemalloc.start()
    try:
        for _ in range(100):
            content = bytearray(whole)
            for _ in range(generator.randint(1, 4)):
                # Half of the time in the first chunk's header or behind it, where it hurts most.
                end = generator.choice([60, len(content)])
                at, width = generator.randrange(end), generator.randint(0, 6)
                content[at : at + width] = generator.randbytes(generator.randint(0, 6))
            path = tmp_path / "mutated.recordio"
            path.write_bytes(content)
            found, error = taken_until(creator.recordio(path))
            rest = list(creator.recordio(path, on_error="skip"))

            assert error is None or isinstance(error, FormatError)
            assert rest[: len(found)] == found
            assert written.issuperset(rest)
        assert tracemalloc.get_traced_memory()[1] < 40 * len(whole)
    finally:
        tracemalloc.stop()
