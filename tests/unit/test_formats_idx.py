from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gpufeed.errors import FormatError
from gpufeed.formats import Seekable, Source
from gpufeed.formats.idx import IdxFile
from gpufeed.formats.items import CHUNK_NBYTES

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def header(code: int, *sizes: int) -> bytes:
    return bytes([0, 0, code, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)


def idx_bytes(array: np.ndarray) -> bytes:
    big_endian = array.astype(array.dtype.newbyteorder(">"))
    return header(CODES[array.dtype.str[1:]], *array.shape) + big_endian.tobytes()


def write(path: Path, content: bytes) -> IdxFile:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return IdxFile(Source(str(path)))


@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
@pytest.mark.parametrize("dtype", CODES)
def test_every_dtype_arrives_in_native_byte_order(tmp_path: Path, dtype: str, name: str) -> None:
    array = np.arange(-6, 6).reshape(4, 3).astype(dtype)

    items = list(write(tmp_path / name, idx_bytes(array)))

    np.testing.assert_array_equal(items, array)
    assert all(item.dtype == array.dtype and item.dtype.isnative for item in items)


def test_a_vector_gives_scalars(tmp_path: Path) -> None:
    items = list(write(tmp_path / "a.idx", idx_bytes(np.array([3, 1, 2], "u1"))))

    assert items == [3, 1, 2]
    assert isinstance(items[0], np.uint8)


def test_items_are_writable_and_do_not_overlap(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.idx", idx_bytes(np.zeros((2, 2), "u1")))

    first[:] = 7

    assert second.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
@pytest.mark.parametrize("skip", [0, 1, 4, 5, 9])
def test_tail_equals_dropping_the_first_items(tmp_path: Path, skip: int, name: str) -> None:
    # Items of a third of a chunk, so that skips end inside chunks and chunks inside the file.
    array = np.arange(5, dtype="u1")[:, None].repeat(CHUNK_NBYTES // 3, axis=1)
    file = write(tmp_path / name, idx_bytes(array))

    assert isinstance(file, Seekable)
    assert file.count() == 5
    np.testing.assert_array_equal(
        [item[0] for item in file.tail(skip)], array[skip:, 0].astype("u1")
    )


def test_an_item_larger_than_a_chunk_is_whole(tmp_path: Path) -> None:
    array = np.arange(2 * (CHUNK_NBYTES + 17)).astype("i2").reshape(2, -1)

    np.testing.assert_array_equal(list(write(tmp_path / "a.idx.gz", idx_bytes(array))), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08", "byte 0: expected the IDX magic .*, got 00 00 08"),
        (b"\x01\0\x08\x01" + bytes(8), "byte 0: expected the IDX magic .*, got 01 00 08 01"),
        (b"\0\0\x0a\x01" + bytes(8), "byte 0: expected the IDX magic"),
        (b"\0\0\x08\0", "byte 0: expected the IDX magic"),
        (b"\0\0\x08\xff" + bytes(1100), "byte 0: expected the IDX magic"),
        (b"\0\0\x08\x02" + bytes(7), "byte 4: expected 2 sizes of 4 bytes, got 7 bytes"),
        (header(8, 4, 0), "byte 8: expected item sizes >= 1"),
    ],
)
@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
def test_a_damaged_header_is_refused(
    tmp_path: Path, content: bytes, message: str, name: str
) -> None:
    file = write(tmp_path / name, content)

    with pytest.raises(FormatError, match=f"{name}, {message}"):
        file.count()
    with pytest.raises(FormatError, match=f"{name}, {message}"):
        next(iter(file))


@pytest.mark.parametrize("held", [24, 25, 27])
def test_a_plain_file_of_another_size_than_promised_yields_nothing(
    tmp_path: Path, held: int
) -> None:
    file = write(tmp_path / "a.idx", (header(8, 2, 7) + bytes(20))[:held])

    with pytest.raises(FormatError, match=f"byte 12: .* 26 bytes in all, got {held} bytes"):
        next(iter(file))


def test_a_cut_compressed_file_yields_its_whole_items_first(tmp_path: Path) -> None:
    file = write(tmp_path / "a.idx.gz", header(8, 3, 4) + bytes(9))
    seen = []

    with pytest.raises(FormatError, match=r"byte 21: .* got the end of the file in item 2"):
        seen.extend(file)
    assert len(seen) == 2
    with pytest.raises(FormatError, match="byte 21"):
        list(file.tail(3))


def test_bytes_behind_the_last_item_are_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "a.idx.gz", header(8, 2, 1) + bytes(3))

    items = iter(file)

    assert [next(items).tolist(), next(items).tolist()] == [[0], [0]]
    with pytest.raises(FormatError, match="byte 14: expected the end of the file, got more bytes"):
        next(items)


@pytest.mark.parametrize("name", ["a.idx", "a.idx.gz"])
@pytest.mark.parametrize(
    "sizes", [(1, 4_000_000_000), (4_000_000_000, 1), (3, 70_000, 70_000), (4_294_967_295,) * 9]
)
def test_memory_follows_the_file_and_not_its_header(
    tmp_path: Path, sizes: tuple[int, ...], name: str
) -> None:
    file = write(tmp_path / name, header(0x0E, *sizes) + bytes(64))

    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="items of"):
            list(file)
        with pytest.raises(FormatError, match="items of"):
            list(file.tail(2))
        assert tracemalloc.get_traced_memory()[1] < 4 * CHUNK_NBYTES
    finally:
        tracemalloc.stop()
