"""Collation elsewhere without another process: through its shared memory, but in this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

from support.way import Way

from gpufeed import isolation
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import reading
from gpufeed.workers.frames import Kind

__all__ = ["collating_here"]


@contextmanager
def collating_here() -> Iterator[None]:
    """Let ``decorate_reader(isolate=True)`` start no process, within a ``with``.

    A slot is written again by the very next batch, if it was given back.
    """
    with mock.patch.object(isolation, "isolate", _Here):
        yield


class _Here(Reader[Any]):
    def __init__(self, reader: Reader[Any], *, buffer_size: int) -> None:
        super().__init__("here", reader)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        with closing(Way()) as way, reading(self._reader, epoch, skip) as values:
            for number, value in enumerate(values, skip):
                way.outbox.put(number, Kind.VALUE, value, is_last=True)
                # Nothing here may keep what arrives.
                yield way.take().pop().value
