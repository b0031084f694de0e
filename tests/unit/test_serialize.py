from __future__ import annotations

import gzip
import io
import struct
import tracemalloc

import numpy as np
import pytest
from support.batches import assert_same

from gpufeed.errors import FormatError, MissingFile
from gpufeed.tensor import LoDTensor

# Written by PaddlePaddle 1.8.5.
FLOATS = bytes.fromhex(
    "00000000 0100000000000000 1800000000000000 000000000000000001000000000000000300000000000000"
    "00000000 06000000 080510031001 0000803f 00000040 00004040"
)
INTS = bytes.fromhex(
    "00000000 0000000000000000 00000000 06000000 080310021001 0700000000000000 0800000000000000"
)


def saved(tensor: LoDTensor) -> bytes:
    file = io.BytesIO()
    tensor.save(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (LoDTensor(np.array([[1], [2], [3]], np.float32), lod=[[0, 1, 3]]), FLOATS),
        (LoDTensor(np.array([[7], [8]])), INTS),
    ],
)
def test_the_reference_s_bytes(tensor, expected):
    assert saved(tensor) == expected
    assert_same(LoDTensor.load(io.BytesIO(expected)), tensor)


def test_paths_and_several_tensors_in_a_file(tmp_path):
    one, two = LoDTensor([1.5, 2.5], lod=[[0, 0, 2]]), LoDTensor(np.ones((2, 200), bool))
    one.save(tmp_path / "one")
    assert_same(LoDTensor.load(str(tmp_path / "one")), one)
    with open(tmp_path / "both", "wb") as file:
        one.save(file)
        two.save(file)
    with open(tmp_path / "both", "rb") as file:
        assert_same(LoDTensor.load(file), one)
        assert_same(LoDTensor.load(file), two)


def test_strided_rows_are_written_in_order():
    rows = np.arange(12).reshape(3, 4)[:, ::2]
    assert LoDTensor.load(io.BytesIO(saved(LoDTensor(rows)))).to_list() == rows.tolist()


def test_what_is_loaded_can_be_written_to():
    t = LoDTensor.load(io.BytesIO(INTS))
    t.data[:] = 1
    assert t.data.flags.aligned


def test_a_dtype_without_a_code_is_refused():
    with pytest.raises(FormatError, match=r"saved tensors hold bool, int16, .* got uint16"):
        saved(LoDTensor(np.ones(2, np.uint16)))


@pytest.mark.parametrize("length", range(len(FLOATS)))
def test_a_truncated_tensor_is_refused(length):
    with pytest.raises(FormatError, match=r"BytesIO, byte \d+ of the tensor: expected"):
        LoDTensor.load(io.BytesIO(FLOATS[:length]))


@pytest.mark.parametrize(
    ("position", "byte", "message"),
    [
        (0, 1, "byte 0 of the tensor: expected a version of the LoD part from 0 to 0, got 1"),
        (5, 1, "expected a number of LoD levels from 0 to 64, got 257"),
        (12, 0x19, "expected whole 8-byte offsets in LoD level 0, got 25 bytes"),
        (20, 1, "expected offsets that describe the rows, got lod level 0 must start with 0"),
        (36, 2, "got lod level 0 must cover 3 rows, got 2"),
        (44, 1, "byte 44 of the tensor: expected a version of the tensor part from 0 to 0"),
        (51, 0x80, "expected a size of the tensor description from 0 to 4096, got -2147483642"),
        (52, 0x18, "byte 52 of the tensor: expected a dtype or a dimension, got byte 0x18"),
        (53, 22, "byte 52 of the tensor: expected a dtype code of .* got 22"),
        (57, 0x81, "byte 56 of the tensor: expected a dtype or a dimension"),
    ],
)
def test_damage_is_located(position, byte, message):
    damaged = bytearray(FLOATS)
    damaged[position] = byte
    with pytest.raises(FormatError, match=message):
        LoDTensor.load(io.BytesIO(damaged))


def with_shape(*sizes: int) -> bytes:
    description = b"\x08\x05"
    for size in sizes:
        description += b"\x10"
        while size >= 0x80:
            description += bytes([size & 0x7F | 0x80])
            size >>= 7
        description += bytes([size])
    return struct.pack("<IQIi", 0, 0, 0, len(description)) + description


@pytest.mark.parametrize("sizes", [(2**64 - 1,), (2**40, 2**40), (0, 2**62), (1,) * 40])
def test_shapes_that_no_array_has(sizes):
    with pytest.raises(FormatError, match="expected a shape that an array can have"):
        LoDTensor.load(io.BytesIO(with_shape(*sizes) + bytes(8)))


@pytest.mark.parametrize(
    "header", [with_shape(2**40), struct.pack("<IQQ", 0, 1, 2**40)], ids=["values", "offsets"]
)
def test_memory_follows_the_bytes_and_not_the_header(tmp_path, header):
    (tmp_path / "liar.gz").write_bytes(gzip.compress(header + bytes(1000)))
    tracemalloc.start()
    with gzip.open(tmp_path / "liar.gz") as file, pytest.raises(FormatError, match=r"1000 before"):
        LoDTensor.load(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_missing_file_is_its_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        LoDTensor.load(tmp_path / "none")


def test_a_path_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(MissingFile, match="nope: no such file"):
        LoDTensor.load(tmp_path / "nope")
    with pytest.raises(FormatError, match=f"{tmp_path}: cannot be opened: "):
        LoDTensor.load(str(tmp_path))
