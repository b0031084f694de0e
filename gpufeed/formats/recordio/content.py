"""What a record holds: bytes, which this format does not look into, a pickle, or tensors.

A tensor record is PaddlePaddle's: a number of tensors (little-endian uint32), then each of them as
`LoDTensor.save` writes it. Pickles run whatever code they name, so nothing is unpickled unasked.
"""

from __future__ import annotations

import codecs
import io
import pickle
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpufeed.errors import FieldError, FormatError

if TYPE_CHECKING:
    from gpufeed.tensor import LoDTensor

__all__ = ["decode_tensors", "decoder", "encode_tensors"]

_COUNT = struct.Struct("<I")


def decoder(*, allow_pickle: bool, tensors: bool, encoding: str) -> Callable[[bytes], Any] | None:
    """Return what makes a sample of a record; None where the record is the sample.

    Raises:
        FieldError: A record cannot be both, or there is no such encoding.
    """
    try:
        codecs.lookup("ascii" if encoding == "bytes" else encoding)
    except (LookupError, TypeError) as error:
        raise FieldError(f"recordio.encoding must be a text encoding, got {encoding!r}") from error
    if allow_pickle and tensors:
        raise FieldError("recordio.tensors must be False where allow_pickle is True, got True")
    if allow_pickle:
        return partial(pickle.loads, encoding=encoding)
    return decode_tensors if tensors else None


def encode_tensors(tensors: Sequence[LoDTensor]) -> bytes:
    """Return the record that holds ``tensors``.

    Raises:
        FormatError: There is no code for the dtype of one.
    """
    record = io.BytesIO()
    record.write(_COUNT.pack(len(tensors)))
    for tensor in tensors:
        tensor.save(record)
    return record.getvalue()


def decode_tensors(record: bytes) -> tuple[LoDTensor, ...]:
    """Return the tensors of a record, the inverse of `encode_tensors`.

    Raises:
        FormatError: The record is no such thing.
    """
    # Imported here, because records of bytes need no tensors.
    from gpufeed.tensor import LoDTensor

    if len(record) < _COUNT.size:
        raise FormatError(f"expected a number of tensors, got {len(record)} bytes")
    file = _Record(record)
    (count,) = _COUNT.unpack(file.read(_COUNT.size))
    found = []
    for number in range(count):
        file.name = f"tensor {number} of {count}"
        found.append(LoDTensor.load(file))
    if file.tell() < len(record):
        rest = len(record) - file.tell()
        raise FormatError(f"expected {count} tensors, got {rest} more bytes behind them")
    return tuple(found)


class _Record(io.BytesIO):
    name = ""  # what errors call it
