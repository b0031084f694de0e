from __future__ import annotations

import struct
import zlib

import pytest
from support.recordio import FLUID_PLAIN, FLUID_SNAPPY, GO_SNAPPY

from gpufeed.formats.recordio.layout import COMPRESSORS, DIALECTS, Damaged, Header, cut, join


@pytest.mark.parametrize(
    ("content", "dialect", "compressor"),
    [
        (GO_SNAPPY, "go", "snappy"),
        (FLUID_PLAIN, "fluid", "none"),
        (FLUID_SNAPPY, "fluid", "snappy"),
    ],
)
def test_headers_of_the_original_writers(content: bytes, dialect: str, compressor: str) -> None:
    header = Header.parse(content[:20])

    assert (header.dialect, header.compressor, header.num_records) == (dialect, compressor, 2)
    assert header.nbytes == len(content) - 20
    header.check_payload(content[20:])
    assert header.pack() == content[:20]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("num_records", [1, 2, 3, 4, 1000])
def test_pack_and_parse_are_inverse(dialect, compressor, num_records) -> None:
    # Numbers that are small enough to be taken for a compressor, in each of the places.
    for checksum in (0, 1, 2, 3, 2**32 - 1):
        header = Header(dialect, num_records, checksum, compressor, 4 * num_records)

        assert Header.parse(header.pack()) == header


def test_a_chunk_without_records_is_the_same_in_both_dialects() -> None:
    assert Header("go", 0, 0, "none", 0).pack() == Header("fluid", 0, 0, "none", 0).pack()
    assert Header.parse(Header("go", 0, 0, "none", 0).pack()).num_records == 0


@pytest.mark.parametrize(
    ("raw", "at", "expected", "got"),
    [
        (FLUID_PLAIN[:19], 0, "a chunk header of 20 bytes", "19 bytes"),
        (b"\x04\x03\x02\x00" + FLUID_PLAIN[4:20], 0, "the RecordIO magic 04 03 02 01", "04 03"),
        (struct.pack("<4s4I", b"\4\3\2\1", 7, 3, 9, 1), 8, "a compressor of 0 to 2", "3"),
        (Header("fluid", 4, 7, "none", 15).pack(), 4, "1 to 3 records in 15 bytes", "4"),
        (Header("go", 4, 7, "none", 15).pack(), 16, "1 to 3 records in 15 bytes", "4"),
        (Header("go", 0, 7, "none", 15).pack(), 16, "1 to 3 records in 15 bytes", "0"),
        (Header("go", 2**32 - 1, 7, "gzip", 40).pack(), 16, "0 to 11000 records", "4294967295"),
    ],
)
def test_what_is_no_header_is_refused(raw: bytes, at: int, expected: str, got: str) -> None:
    with pytest.raises(Damaged) as caught:
        Header.parse(raw)

    assert caught.value.at == at
    assert caught.value.expected.startswith(expected)
    assert str(caught.value.got).startswith(got)


def test_a_payload_is_held_against_its_header() -> None:
    header = Header("go", 1, zlib.crc32(b"hello"), "none", 5)

    header.check_payload(b"hello")
    with pytest.raises(Damaged, match="a payload of 5 bytes"):
        header.check_payload(b"hell")
    with pytest.raises(Damaged, match="a payload with CRC 0x3610a686"):
        header.check_payload(b"hullo")


@pytest.mark.parametrize(
    "records", [[], [b""], [b"", b""], [b"a", b"", b"bcd"], [b"12", b"34"], [b"1234", b""]]
)
def test_cut_is_the_inverse_of_join(records: list[bytes]) -> None:
    assert cut(join(records), len(records)) == records


def test_lengths_that_only_seem_equal_are_cut_one_by_one() -> None:
    # Three records of 12 bytes in all, as three of 4 would be.
    records = [b"abcd", b"ab", b"abcdef"]

    assert cut(join(records), 3) == records


@pytest.mark.parametrize("num_records", [0, 1, 3, 2**32 - 1])
def test_another_number_of_records_is_refused(num_records: int) -> None:
    with pytest.raises(Damaged, match=f"{num_records} records that fill the payload"):
        cut(join([b"ab", b"cde"]), num_records)


@pytest.mark.parametrize("last", [join([b"cde"])[:-1], join([b"cde"]) + b"f", b"\xff\xff\xff\xff"])
def test_lengths_that_do_not_add_up_are_refused(last: bytes) -> None:
    with pytest.raises(Damaged, match="records that fill the payload"):
        cut(join([b"ab"]) + last, 2)
