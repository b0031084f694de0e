"""RecordIO: what is written is read, from anywhere, and damage costs what it hit and no more."""

from __future__ import annotations

import gzip
import tracemalloc
from itertools import chain, compress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.readers import taken_until
from support.recordio import chunk, opened

from gpufeed.errors import FormatError
from gpufeed.formats import Source
from gpufeed.formats.recordio import RecordIOFile, RecordIOWriter
from gpufeed.formats.recordio.layout import COMPRESSORS, DIALECTS

pytest.importorskip("cramjam", reason="needs cramjam")

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

# Some that hold what begins a chunk, and some that are all of one length.
records = st.binary(max_size=40) | st.sampled_from([b"\4\3\2\1", chunk(b"x"), b"same", b"size"])
chunks = st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=5)


@same_folder
@given(
    records=st.lists(records, max_size=20),
    dialect=st.sampled_from(DIALECTS),
    compressor=st.sampled_from(COMPRESSORS),
    max_num_records=st.integers(1, 7),
    max_chunk_nbytes=st.integers(1, 100),
    skip=st.integers(0, 25),
)
def test_what_is_written_is_read_from_anywhere(
    tmp_path: Path, records: list[bytes], skip: int, **options: Any
) -> None:
    path = tmp_path / "a.rec"
    with RecordIOWriter(path, **options) as writer:
        for record in records:
            writer.write(record)
    file = RecordIOFile(Source(str(path)))

    assert list(file.tail(skip)) == records[skip:]
    assert file.count() == len(records)
    assert list(file.tail(skip)) == records[skip:]


@same_folder
@given(chunks=chunks, damaged=st.lists(st.booleans(), min_size=5, max_size=5), data=st.data())
def test_a_damaged_payload_costs_its_chunk(tmp_path: Path, chunks, damaged, data) -> None:
    content = b""
    for contained, is_damaged in zip(chunks, damaged, strict=False):
        whole = bytearray(chunk(*contained))
        if is_damaged:
            whole[data.draw(st.integers(20, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        content += whole
    told: list[int] = []
    file = opened(tmp_path / "a", content, skipped=lambda error, num=1: told.append(num))

    found = list(file)

    lost = damaged[: len(chunks)]
    assert found == list(chain(*compress(chunks, (not one for one in lost))))
    assert told == [len(one) for one in compress(chunks, lost)]


@same_folder
@given(
    chunks=st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=5), min_size=1),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.binary(max_size=9))),
    dialect=st.sampled_from(DIALECTS),
    compressor=st.sampled_from(COMPRESSORS),
)
def test_whatever_the_damage_what_is_read_was_written(
    tmp_path: Path, chunks, edits, dialect, compressor
) -> None:
    numbered = [[b"%d " % i + record for record in one] for i, one in enumerate(chunks)]
    written = chain(*numbered)
    content = b"".join(chunk(*one, dialect=dialect, compressor=compressor) for one in numbered)
    for where, width, new in edits:
        at = int(where * len(content))
        content = content[:at] + new + content[at + width :]

    content = content or b"\0"
    found, error = taken_until(opened(tmp_path / "a", content))
    rest = list(opened(tmp_path / "b", content, skipped=lambda error, num=1: None))

    assert isinstance(error, FormatError | None)
    assert rest[: len(found)] == found
    assert all(record in written for record in rest)  # in this order


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_memory_follows_the_chunk_and_not_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "a.rec"
    with RecordIOWriter(path, compressor="none", max_chunk_nbytes=100_000) as writer:
        for _ in range(200):
            writer.write(bytes(50_000))
    content = path.read_bytes()
    file = opened(tmp_path / f"a{suffix}", gzip.compress(content) if suffix else content)
    del content

    tracemalloc.start()
    try:
        assert sum(1 for _ in file) == 200
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
