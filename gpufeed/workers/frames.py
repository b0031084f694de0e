"""What is written into a slot: numbered samples, arrays in bytes of their own, never pickled.

A frame is a row of entries, one behind the other:

    number, kind, length of the pickle, number of buffers      4 x 8 bytes
    length of each buffer                                      8 bytes each
    the pickle (protocol 5), then each buffer, aligned to `BUFFER_ALIGNMENT`

The buffers are those that pickling hands over "out of band": of NumPy arrays, and of whatever else
supports it, if they are large enough to be worth it. They are copied once, into the slot, when the
entry is written, so that the writer may use its arrays again at once. A `WrittenInPlace` has no
bytes yet: it makes them where the reader will find them.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, cast

from gpufeed.errors import ReaderError

__all__ = [
    "Encoded",
    "Entry",
    "Kind",
    "WrittenInPlace",
    "encode",
    "encode_error",
    "read_entries",
]

ALIGNMENT = 64  # of entries
BUFFER_ALIGNMENT = 256  # of what a device may read where it is
# Below this, a copy inside the pickle is cheaper than a view that has to be watched.
MIN_BUFFER_NBYTES = 16 * 1024

_FOLDER = os.path.dirname(__file__)
_HEADER = struct.Struct("<4q")
_LENGTH = struct.Struct("<q")


class Kind:
    """What an entry is: numbers, and no enum, whose members take longer to look up than to use."""

    VALUE = 0  # a sample
    ERROR = 1  # what was raised instead of a sample, by the function that maps samples
    FAILURE = 2  # what was raised instead of a sample, by anything else; no more come from there
    END = 3  # no more samples; its number is how many there were
    DONE = 4  # the worker has ended as it should
    REPORT = 5  # what was counted while the sample that follows was made


class Entry(NamedTuple):
    """One sample as it arrives: its number in the pass, what it is, and its value."""

    number: int
    kind: int
    value: Any


class WrittenInPlace(ABC):
    """A value that is mostly one block of bytes, which it writes straight to where they are read.

    It arrives as a pair: what it `tells`, pickled, and the block, a buffer.
    """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Length of the block."""

    @abstractmethod
    def tells(self) -> object:
        """Return what is to be known of the block, before it is written."""

    @abstractmethod
    def write(self, block: memoryview) -> None:
        """Write the block. What is raised here is raised to whoever sends the value."""


class Encoded(NamedTuple):
    """A value that is ready to be written: its pickle, and the buffers beside it."""

    data: bytes
    buffers: Sequence[memoryview | WrittenInPlace]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a frame at most."""
        nbytes = _HEADER.size + ALIGNMENT + len(self.data)
        for part in self.buffers:
            nbytes += 8 + BUFFER_ALIGNMENT + part.nbytes
        return nbytes

    def write(self, frame: memoryview, begin: int, number: int, kind: int) -> int:
        """Write an entry at ``begin``; return where it ends."""
        buffers = self.buffers
        _HEADER.pack_into(frame, begin, number, kind, len(self.data), len(buffers))
        begin += _HEADER.size
        for part in buffers:
            _LENGTH.pack_into(frame, begin, part.nbytes)
            begin += _LENGTH.size
        end = begin + len(self.data)
        frame[begin:end] = self.data
        for part in buffers:
            begin = _aligned(end, BUFFER_ALIGNMENT)
            end = begin + part.nbytes
            if isinstance(part, memoryview):
                frame[begin:end] = part
            else:
                part.write(frame[begin:end])
        return _aligned(end)


# Stands in a pickle for a block that is not written yet.
_BLOCK = pickle.PickleBuffer(bytearray())


def encode(value: Any, dumps: Callable[..., bytes] = pickle.dumps) -> Encoded:
    """Pickle ``value``, its large buffers beside it.

    >>> encode(["a", 1]).buffers
    []
    """
    if isinstance(value, WrittenInPlace):
        # All that it tells stays in the pickle: views of it would keep the slot from being reused.
        told = (value.tells(), _BLOCK)
        data = dumps(told, protocol=5, buffer_callback=lambda buffer: buffer is not _BLOCK)
        return Encoded(data, [value])
    if dumps is pickle.dumps and _is_plain_array(value):
        data = _pickle_of_array(value.dtype, value.shape)
        return Encoded(data, [pickle.PickleBuffer(value).raw()])
    buffers: list[memoryview | WrittenInPlace] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < MIN_BUFFER_NBYTES:
            return True
        buffers.append(raw)
        return False

    return Encoded(dumps(value, protocol=5, buffer_callback=is_small), buffers)


def _is_plain_array(value: Any) -> bool:
    """Whether all that a pickle holds of ``value`` is the dtype and the shape of an array."""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and type(value) is numpy.ndarray
        and value.nbytes >= MIN_BUFFER_NBYTES
        and value.flags.carray  # C-contiguous, and writeable
        and value.dtype.kind in "biufc"
        and value.dtype.metadata is None
    )


@lru_cache(maxsize=64)
def _pickle_of_array(dtype: Any, shape: tuple[int, ...]) -> bytes:
    """Return what stands in the pickle of an array whose bytes are beside it.

    Pickling goes through so much code that a writer whose caches are full of samples takes half as
    long for it as for copying 1 MiB.
    """
    import numpy as np

    return pickle.dumps(np.empty(shape, dtype), 5, buffer_callback=lambda _: None)


def read_entries(
    frame: memoryview, num_entries: int, take: Callable[[int, int], Any]
) -> list[Entry]:
    """Return the entries of a frame.

    Args:
        frame: The slot that they were written to.
        num_entries: How many were.
        take: Returns the bytes of the slot from one place to another, for a value to keep.
    """
    entries = []
    begin = 0
    for _ in range(num_entries):
        number, kind, nbytes, num_buffers = _HEADER.unpack_from(frame, begin)
        begin += _HEADER.size
        first, begin = begin, begin + num_buffers * _LENGTH.size
        end = begin + nbytes
        data = frame[begin:end]
        buffers = []
        for (length,) in _LENGTH.iter_unpack(frame[first:begin]) if num_buffers else ():
            begin = _aligned(end, BUFFER_ALIGNMENT)
            end = begin + length
            buffers.append(take(begin, end))
        entries.append(_decode(number, kind, data, buffers))
        begin = _aligned(end)
    return entries


def _decode(number: int, kind: int, data: memoryview, buffers: list[Any]) -> Entry:
    try:
        value = pickle.loads(data, buffers=buffers)
        if kind in (Kind.ERROR, Kind.FAILURE):
            value, text = value
            value.add_note(text)
    except Exception as error:  # noqa: BLE001 - takes the place of the sample
        failure = ReaderError(f"sample {number} cannot be unpickled where it arrived: {error!r}")
        failure.__cause__ = error
        return Entry(number, Kind.FAILURE, failure)
    return Entry(number, kind, value)


def encode_error(
    error: BaseException, where: str, encode: Callable[[object], Encoded] = encode
) -> Encoded:
    """Pickle an exception with the text of its traceback, which becomes a note of it.

    It arrives as the exception that it was, also if ``__init__`` takes other arguments than it
    hands on to `Exception`. One that cannot be pickled, or not be unpickled again, is represented
    by a `ReaderError` that says its type and message.

    Args:
        error: What was raised.
        where: Says in which process, and at which sample.
        encode: Pickles.
    """
    import traceback  # a millisecond that a worker which nothing befalls can do without

    trace = "".join(traceback.format_exception(type(error), error, _users_part(error))).rstrip()
    note = f"raised in {where}:\n{trace}"
    try:
        encoded = encode((_Parts.of(error), note))
        again, _ = pickle.loads(encoded.data, buffers=encoded.buffers)
        if type(again) is type(error):
            return encoded
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it cannot be sent
        pass
    kind = type(error)
    return encode((ReaderError(f"{kind.__module__}.{kind.__qualname__}: {error}"), note))


class _Parts:
    """Unpickled, it is the exception that it was made of, put together without ``__init__``."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @staticmethod
    def of(error: BaseException) -> _Parts | BaseException:
        """Return what to pickle: the exception itself, if its class says how."""
        kind = type(error)
        says_how = (kind.__reduce_ex__, kind.__reduce__) != (
            object.__reduce_ex__,
            _builtin(kind).__reduce__,
        )
        return error if says_how else _Parts(error)

    def __reduce__(self) -> tuple[object, ...]:
        _, args, *state = cast("tuple[Any, ...]", self._error.__reduce__())
        return (_put_together, (type(self._error), args), *state)


def _put_together(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    _builtin(kind).__init__(error, *args)  # an `OSError` finds its number and file in them
    return error


def _builtin(kind: type[BaseException]) -> type[BaseException]:
    """Return the exception of Python's own that one of the user's is."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _users_part(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback without the frames of this package that begin it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_FOLDER):
        trace = trace.tb_next
    return trace or error.__traceback__


def _aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    return -(-nbytes // alignment) * alignment
