from __future__ import annotations

import gzip
import random
import sys
from contextlib import suppress

import pytest
from support.recordio import FLUID_SNAPPY, GO_SNAPPY

from gpufeed.errors import MissingExtra
from gpufeed.formats.recordio.codecs import compress, decompress
from gpufeed.formats.recordio.layout import COMPRESSORS, DIALECTS, Damaged, cut, join

pytest.importorskip("cramjam", reason="needs cramjam")

PAYLOADS = [
    b"",
    b"x",
    b"x" * 100_000,
    random.Random(1).randbytes(32_768),
    random.Random(2).randbytes(70_001),
    bytes(range(256)) * 1000,
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_decompress_is_the_inverse_of_compress(payload, compressor, dialect) -> None:
    assert decompress(compress(payload, compressor, dialect), compressor, dialect) == payload


def test_equal_payloads_give_equal_bytes() -> None:
    for compressor in COMPRESSORS:
        first, second = (compress(b"abc" * 99, compressor, "go") for _ in range(2))
        assert first == second


def test_snappy_of_the_original_writers() -> None:
    assert decompress(GO_SNAPPY[20:], "snappy", "go").endswith(b"(I4\nI5\nI6\ntp1\n.")
    payload = join([b"ABC", b"BCD"])
    assert decompress(FLUID_SNAPPY[20:], "snappy", "fluid") == payload
    # Too short to be worth compressing: the same bytes come out again.
    assert compress(payload, "snappy", "fluid") == FLUID_SNAPPY[20:]
    assert compress(decompress(GO_SNAPPY[20:], "snappy", "go"), "snappy", "go") == GO_SNAPPY[20:]


def test_blocks_are_raw_where_compression_saves_nothing() -> None:
    stored = compress(PAYLOADS[3] + bytes(32_768), "snappy", "fluid")

    assert stored[7:10] == b"\0\x80\0"  # raw, 32 KiB
    assert stored[7 + 7 + 32_768] == 1  # compressed
    assert len(stored) < 40_000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_streams_joined_end_to_end_are_one(dialect) -> None:
    stored = compress(b"one", "snappy", dialect) + compress(b"two", "snappy", dialect)

    assert decompress(stored, "snappy", dialect) == b"onetwo"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("compressor", ["gzip", "snappy"])
def test_a_cut_stream_is_damaged_or_a_whole_beginning(compressor, dialect) -> None:
    payload = PAYLOADS[4]
    stored = compress(payload, compressor, dialect)
    for length in [*range(40), *range(len(stored) - 9, len(stored)), 32_768 + 14, 32_768 + 21]:
        found = b""
        with suppress(Damaged):
            found = decompress(stored[:length], compressor, dialect)
        # Not damaged between two blocks: there the CRC and the number of records tell.
        assert payload.startswith(found)
        assert len(found) < len(payload)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"sNaPpY\0", "the Snappy magic 73 6e 61 70 70 79 00"),
        (b"snappy\0\2\0\1....x", "a Snappy block"),
        (b"snappy\0\0\0\2....x", "a Snappy block"),
        (b"snappy\0\0\0", "a Snappy block"),
        (FLUID_SNAPPY[20:-1] + b"x", "Snappy data"),
    ],
)
def test_damaged_fluid_snappy_says_where(stored: bytes, message: str) -> None:
    with pytest.raises(Damaged) as caught:
        decompress(stored, "snappy", "fluid")

    assert message in caught.value.expected


@pytest.mark.parametrize("stored", [b"plain", gzip.compress(b"x")[:-1], gzip.compress(b"x") + b"x"])
def test_damaged_gzip_is_damaged(stored: bytes) -> None:
    with pytest.raises(Damaged, match="gzip data"):
        decompress(stored, "gzip", "go")


def test_a_block_that_promises_much_costs_nothing() -> None:
    # Snappy's own head says 4 GiB; a block holds 64 KiB at most.
    block = b"\xff\xff\xff\xff\x0f" + b"x" * 20
    stored = b"snappy\0\1" + len(block).to_bytes(2, "big") + bytes(4) + block
    with pytest.raises(Damaged, match="Snappy data"):
        decompress(stored, "snappy", "fluid")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    for call in (compress, decompress):
        with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[snappy\]'"):
            call(b"", "snappy", "go")


def test_cut_finds_what_the_codecs_bring_back() -> None:
    records = [b"abc", b"", b"defg" * 20_000]

    stored = compress(join(records), "snappy", "fluid")

    assert cut(decompress(stored, "snappy", "fluid"), 3) == records
