from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.compressed import COMPRESS
from support.readers import taken_until
from support.recordio import FLUID_PLAIN, GO_SNAPPY, chunk, opened

from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Seekable, Source
from gpufeed.formats.recordio import RecordIOFile
from gpufeed.formats.recordio.content import decode_tensors, encode_tensors
from gpufeed.tensor import LoDTensor

RECORDS = [b"a", b"", b"cd", b"e" * 1000, b"f", b"g", b"h"]
CONTENT = chunk(*RECORDS[:3]) + chunk(*RECORDS[3:6], dialect="go") + chunk(*RECORDS[6:])


class Told(list):
    """A callback that keeps what is left out."""

    def __call__(self, error: Exception, num_samples: int = 1) -> None:
        self.append((num_samples, str(error)))


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("is_counted", [False, True])
def test_tail_equals_dropping_the_first_samples(tmp_path, suffix, is_counted) -> None:
    file = opened(tmp_path / f"a{suffix}", COMPRESS[suffix](CONTENT))

    assert isinstance(file, Seekable)
    for skip in range(len(RECORDS) + 3):
        if is_counted:
            assert file.count() == len(RECORDS)
        assert list(file.tail(skip)) == RECORDS[skip:]
    assert list(file) == RECORDS


def test_what_is_skipped_is_not_read(tmp_path: Path) -> None:
    content = chunk(b"x" * 9000, checksum=1) + chunk(b"a", b"b")
    file = opened(tmp_path / "a", content)

    assert list(file.tail(2)) == [b"b"]
    assert file.count() == 3
    assert list(file.tail(2)) == [b"b"]
    with pytest.raises(FormatError, match="chunk 0, byte 20: expected a payload with CRC"):
        next(file.tail(0))


def test_a_file_of_no_records_is_legal_and_one_of_no_bytes_is_not(tmp_path: Path) -> None:
    assert list(opened(tmp_path / "a", chunk())) == []
    with pytest.raises(FormatError, match="got an empty file"):
        list(opened(tmp_path / "b", b""))


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"plain text that is no records", "chunk 0, byte 0", "expected the RecordIO magic"),
        (FLUID_PLAIN[:10], "chunk 0, byte 0", "expected a chunk header of 20 bytes, got 10"),
        (CONTENT + b"\4\3\2\1", "chunk 3, byte {}", "expected a chunk header of 20 bytes, got 4"),
        (CONTENT + FLUID_PLAIN[:-1], "chunk 3, byte {+20}", "payload of 14 bytes, got the end"),
        (CONTENT + chunk(b"x", checksum=7), "chunk 3, byte {+20}", "expected a payload with CRC"),
        (CONTENT + chunk(b"x", num_records=0), "chunk 3, byte {+4}", "expected 1 to 1 records"),
        (CONTENT + GO_SNAPPY[:-2] + b"\0\0", "chunk 3, byte {+20}", "a payload with CRC"),
    ],
)
def test_damage_names_file_chunk_and_byte(tmp_path, content, place, message) -> None:
    file = opened(tmp_path / "a", content)

    found, error = taken_until(file)

    assert found == (RECORDS if len(content) > 1000 else [])
    end = len(CONTENT)
    place = re.sub(r"{(.*)}", lambda match: str(end + int(match[1] or 0)), place)
    assert isinstance(error, FormatError)
    assert str(error).startswith(f"{tmp_path / 'a'}, {place}: ")
    assert message in str(error)
    assert error.__suppress_context__
    # Where one begins at the fault, the same is found there.
    assert file.count() >= len(found)
    assert str(taken_until(file.tail(len(found)))[1]) == str(error)


def test_a_chunk_that_hides_its_records_is_refused(tmp_path: Path) -> None:
    content = chunk(b"a", dialect="go", compressor="gzip", num_records=0)

    with pytest.raises(FormatError, match="expected 0 records that fill the payload"):
        list(opened(tmp_path / "a", content))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_cut_inside_a_compressed_file_is_found_while_skipping(tmp_path, suffix) -> None:
    file = opened(tmp_path / f"a{suffix}", COMPRESS[suffix](CONTENT[:-1]))

    assert taken_until(file)[0] == RECORDS[:-1]
    with pytest.raises(FormatError, match=r"chunk 3, .*expected the rest of the chunk before"):
        list(file.tail(7))


def test_nothing_is_unpickled_unasked(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    content = chunk(pickle.dumps(Trap()))

    assert len(list(opened(tmp_path / "a", content))) == 1
    with pytest.raises(FormatError):
        list(opened(tmp_path / "a", content, tensors=True))
    assert not (tmp_path / "sprung").exists()
    list(opened(tmp_path / "a", content, allow_pickle=True))
    assert (tmp_path / "sprung").exists()


def test_pickles_of_the_original_writer(tmp_path: Path) -> None:
    pytest.importorskip("cramjam", reason="needs cramjam")
    file = opened(tmp_path / "a", GO_SNAPPY, allow_pickle=True)

    assert list(file) == [(1, 2, 3), (4, 5, 6)]
    assert list(file.tail(1)) == [(4, 5, 6)]


def test_pickles_of_python_2_say_how_their_text_is_encoded(tmp_path: Path) -> None:
    # An array of two int16, and a str that is no ASCII, as Python 2 wrote them.
    array = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02i2K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x04\xff\xff\x07\x00tb."
    )
    path, content = tmp_path / "a", chunk(b"\x80\x02U\x02\xc3\xa4.")

    with pytest.raises(FormatError, match="record 0: cannot be decoded: 'ascii' codec"):
        list(opened(path, content, allow_pickle=True))
    assert list(opened(path, content, allow_pickle=True, encoding="utf-8")) == ["ä"]
    assert list(opened(path, content, allow_pickle=True, encoding="bytes")) == ["ä".encode()]
    (found,) = opened(path, chunk(array), allow_pickle=True, encoding="latin1")
    assert found.tolist() == [-1, 7]
    with pytest.raises(FieldError, match=r"recordio.encoding must be a text encoding, got 'x'"):
        opened(path, content, encoding="x")


def test_a_record_that_does_not_decode_is_named(tmp_path: Path) -> None:
    content = chunk(pickle.dumps(1)) + chunk(pickle.dumps(2), b"no pickle", pickle.dumps(3))
    file = opened(tmp_path / "a", content, allow_pickle=True)

    found, error = taken_until(file)

    assert found == [1, 2]
    at = len(chunk(pickle.dumps(1)))
    assert str(error).startswith(f"{tmp_path / 'a'}, chunk 1, byte {at}, record 2: cannot be dec")
    assert error is not None
    assert isinstance(error.__cause__, pickle.UnpicklingError)


def test_tensor_records_come_back(tmp_path: Path) -> None:
    first = LoDTensor(np.arange(6, dtype="f4").reshape(3, 2), lod=[[0, 1, 3]])
    second = LoDTensor(np.array([7, 8]))
    content = chunk(encode_tensors([first, second]), encode_tensors([]))

    (one, other), nothing = opened(tmp_path / "a", content, tensors=True)

    assert one.lod() == [[0, 1, 3]]
    np.testing.assert_array_equal(one.data, first.data)
    np.testing.assert_array_equal(other.data, [7, 8])
    assert nothing == ()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\1\0\0", "expected a number of tensors, got 3 bytes"),
        (b"\2\0\0\0" + encode_tensors([LoDTensor([1])])[4:], "tensor 1 of 2, byte 0"),
        (encode_tensors([LoDTensor([1])]) + b"x", "expected 1 tensors, got 1 more bytes"),
        (b"\xff" * 40, "tensor 0 of 4294967295, byte 0 of the tensor: expected a version"),
    ],
)
def test_damaged_tensor_records_say_what_is_wrong(record: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_tensors(record)


def test_a_record_is_one_thing_only(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match=r"recordio.tensors must be False where allow_pickle"):
        opened(tmp_path / "a", b"", tensors=True, allow_pickle=True)


def test_damaged_chunks_are_left_out_and_told(tmp_path: Path) -> None:
    told = Told()
    content = CONTENT + chunk(b"x", b"y", checksum=7) + b"junk" + CONTENT + FLUID_PLAIN[:-1]
    file = opened(tmp_path / "a", content, skipped=told)

    assert list(file) == RECORDS * 2
    # Of the junk nobody knows how many records it was.
    assert [num for num, _ in told] == [2, 2]
    assert "chunk 3, byte" in told[0][1]
    assert "payload of 14 bytes" in told[1][1]


def test_damage_that_cannot_be_gone_behind_is_raised(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    told = Told()
    content = chunk(b"a") + chunk(b"b", checksum=7) + chunk(b"c") + b"junk" + chunk(b"d")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()

    found, error = taken_until(RecordIOFile(Source(str(tmp_path / "pipe")), skipped=told))

    writer.join()
    assert found == [b"a", b"c"]
    assert [num for num, _ in told] == [1]
    assert "chunk 3, byte 75: expected the RecordIO magic" in str(error)


def test_records_that_do_not_decode_are_left_out_alone(tmp_path: Path) -> None:
    told = Told()
    content = chunk(pickle.dumps(1), b"no pickle", pickle.dumps(2))

    assert list(opened(tmp_path / "a", content, allow_pickle=True, skipped=told)) == [1, 2]
    assert [num for num, _ in told] == [1]
    assert "record 1: cannot be decoded" in told[0][1]


def test_who_is_told_may_refuse(tmp_path: Path) -> None:
    def refuse(error: Exception, num_samples: int = 1) -> None:
        raise error

    file = opened(tmp_path / "a", chunk(b"x", checksum=7) + CONTENT, skipped=refuse)

    with pytest.raises(FormatError, match="chunk 0"):
        list(file)


def test_damage_of_the_compression_around_a_file_ends_it(tmp_path: Path) -> None:
    told = Told()
    packed = gzip.compress(CONTENT * 100)
    file = opened(tmp_path / "a.gz", packed[: len(packed) // 2], skipped=told)

    with pytest.raises(FormatError, match=r"a.gz near byte [0-9]+: cannot be read"):
        list(file)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dialect", ["fluid", "go"])
@pytest.mark.parametrize(
    "wrong", [{"nbytes": 2**32 - 1}, {"num_records": 2**32 - 1}, {"num_records": 1 << 20}]
)
def test_memory_follows_the_file_and_not_its_headers(tmp_path, wrong, dialect, suffix) -> None:
    content = chunk(b"x" * 64, dialect=dialect, **wrong)
    file = opened(tmp_path / f"a{suffix}", COMPRESS[suffix](content))

    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            list(file)
        assert file.count() in (0, 1)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_records_may_hold_anything(tmp_path: Path) -> None:
    nested = io.BytesIO(CONTENT).getvalue()

    assert list(opened(tmp_path / "a", chunk(nested, b"\4\3\2\1"))) == [nested, b"\4\3\2\1"]
