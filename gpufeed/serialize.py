"""A tensor as bytes, in the format of PaddlePaddle's saved variables and RecordIO tensors.

    uint32          version of the LoD part, 0
    uint64          number of levels
      uint64        bytes of a level's offsets
      uint64 ...    the offsets
    uint32          version of the tensor part, 0
    int32           bytes of the description
      protobuf      field 1: dtype code, field 2: one dimension, repeated
    raw             the values, row-major

All numbers are little-endian. What is read is not trusted: a length in it never decides how much
memory is taken, only the bytes that are really there do.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

import gpufeed.lod as offset_math
from gpufeed.errors import FormatError, LoDError, MissingFile
from gpufeed.lod import LoD

__all__ = ["read_tensor", "write_tensor"]

_CODES = {
    "bool": 0,
    "int16": 1,
    "int32": 2,
    "int64": 3,
    "float16": 4,
    "float32": 5,
    "float64": 6,
    "uint64": 19,  # the reference's SIZE_T
    "uint8": 20,
    "int8": 21,
    "complex64": 23,
    "complex128": 24,
}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}
_BLOCK = 1 << 20
_MAX_LEVELS = 64
_MAX_DESCRIPTION = 1 << 12
_MAX_DIMENSIONS = 32
_MAX_VALUES = 1 << 58  # their bytes are countable in 63 bits


def write_tensor(file: str | Path | BinaryIO, rows: npt.NDArray[Any], lod: LoD) -> None:
    """Write rows and the LoD that cuts them.

    Args:
        file: A path, or a file open for writing bytes.
        rows: ``(rows, *item)``.
        lod: Offsets, the top level first.

    Raises:
        FormatError: The format has no code for the dtype of ``rows``.
    """
    if isinstance(file, (str, Path)):
        with open(file, "wb") as opened:
            return write_tensor(opened, rows, lod)
    if rows.dtype.name not in _CODES:
        raise FormatError(f"saved tensors hold {', '.join(_CODES)}, got {rows.dtype}")
    file.write(struct.pack("<IQ", 0, len(lod)))
    for offsets in lod:
        file.write(struct.pack("<Q", offsets.nbytes) + offsets.astype("<u8").tobytes())
    description = b"\x08" + _varint(_CODES[rows.dtype.name])
    description += b"".join(b"\x10" + _varint(size) for size in rows.shape)
    file.write(struct.pack("<Ii", 0, len(description)) + description)
    # A memoryview of the values: contiguous rows are not copied once more.
    file.write(np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).reshape(-1).view("u1").data)


def read_tensor(file: str | Path | BinaryIO) -> tuple[npt.NDArray[Any], LoD]:
    """Read rows and the LoD that cuts them; the file is left at the tensor's end.

    Args:
        file: A path, or a file open for reading bytes.

    Raises:
        MissingFile: There is no such file.
        FormatError: It cannot be opened, or the bytes are no tensor, or end too early.
    """
    if isinstance(file, (str, Path)):
        with _opened(file) as opened:
            return read_tensor(opened)
    source = _Source(file)
    source.expect_version("LoD")
    levels = source.number("<Q", "number of LoD levels", _MAX_LEVELS)
    lod = tuple(source.offsets(level) for level in range(levels))
    source.expect_version("tensor")
    size = source.number("<i", "size of the tensor description", _MAX_DESCRIPTION)
    at = source.position
    dtype, shape = _describe(source, source.take(size, "tensor description"), at)
    at = source.position
    raw = source.take(math.prod(shape) * dtype.itemsize, f"values of {dtype.name} {list(shape)}")
    try:
        offset_math.check(lod, shape[0] if shape else 0)
    except LoDError as error:
        raise source.error(at, "offsets that describe the rows", str(error)) from error
    return np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="), copy=False).reshape(shape), lod


def _opened(path: str | Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise MissingFile(f"{path}: no such file") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened: {error.strerror}") from error


class _Source:
    """A file, its name and how far it has been read, for errors that say where."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._name = getattr(file, "name", type(file).__name__)
        self.position = 0

    def error(self, at: int, expected: str, got: object) -> FormatError:
        return FormatError(f"{self._name}, byte {at} of the tensor: expected {expected}, got {got}")

    def take(self, nbytes: int, what: str) -> bytearray:
        """Return exactly ``nbytes`` bytes; memory grows with the bytes that arrive."""
        taken = bytearray()
        while len(taken) < nbytes:
            piece = self._file.read(min(nbytes - len(taken), _BLOCK))
            if not piece:
                raise self.error(
                    self.position, f"{nbytes} bytes of {what}", f"{len(taken)} before the end"
                )
            taken += piece
        self.position += nbytes
        return taken

    def number(self, form: str, what: str, most: int) -> int:
        at = self.position
        (value,) = struct.unpack(form, self.take(struct.calcsize(form), what))
        if not 0 <= value <= most:
            raise self.error(at, f"a {what} from 0 to {most}", value)
        return int(value)

    def expect_version(self, part: str) -> None:
        self.number("<I", f"version of the {part} part", 0)

    def offsets(self, level: int) -> npt.NDArray[np.int64]:
        at = self.position
        nbytes = self.number("<Q", f"size of LoD level {level}", 2**63 - 1)
        if nbytes % 8:
            raise self.error(at, f"whole 8-byte offsets in LoD level {level}", f"{nbytes} bytes")
        return np.frombuffer(self.take(nbytes, f"LoD level {level}"), "<i8").astype(np.int64)


def _describe(
    source: _Source, message: bytearray, at: int
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    code, shape, position = -1, [], 0
    while position < len(message):
        tag, begin = message[position], position
        value, position = _parse_varint(message, position + 1)
        if position < 0 or tag not in (0x08, 0x10):
            raise source.error(at + begin, "a dtype or a dimension", f"byte {tag:#04x}")
        if tag == 0x08:
            code = value
        else:
            shape.append(value)
    if code not in _DTYPES:
        raise source.error(at, f"a dtype code of {sorted(_DTYPES)}", code)
    dtype = _DTYPES[code]
    if len(shape) > _MAX_DIMENSIONS or math.prod(size or 1 for size in shape) > _MAX_VALUES:
        raise source.error(at, "a shape that an array can have", shape)
    return dtype, tuple(shape)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse_varint(message: bytearray, position: int) -> tuple[int, int]:
    """Return the number at ``position`` and where the next field begins; -1 if there is none."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, -1
