"""Stages that run on threads: reading ahead, and mapping with many threads at once.

Backpressure of `xmap_readers`: the consumer grants the reading thread as many samples as fit into
the window, and grants more as it receives. So the window bounds everything between the source and
the consumer, also while one slow sample holds back the order; the channels themselves need none.

Failure: an error travels as the outcome of its sample and is raised where that sample would have
come. Samples are taken in order, so whatever is still queued when a mapper fails comes after the
failure and is dropped, and whatever is already being mapped may come before it and is awaited.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from gpufeed.checks import positive_s, whole_number
from gpufeed.device.channel import Channel, EndOfChannel
from gpufeed.device.threads import ThreadGroup, run_ahead
from gpufeed.reader.base import AnyReader, Reader, identity_of, open_reader, reading

__all__ = ["buffered", "xmap_readers"]

T = TypeVar("T")
R = TypeVar("R")

# What became of one sample: its number in the pass, its value, and the error instead of a value.
# Plain tuples, because one is made for every sample and every stage.
Outcome = tuple[int, Any, BaseException | None]


def buffered(reader: AnyReader[T], size: int) -> Reader[T]:
    """Read up to ``size`` samples ahead, on a thread.

    >>> list(buffered(lambda: range(4), size=2))
    [0, 1, 2, 3]

    The thread starts with the first sample taken, and a sample can be taken as soon as it is read.

    Args:
        reader: Called and iterated on the thread.
        size: Most samples read and not yet taken; 0 or less is unbounded.

    Raises:
        FieldError: ``size`` is not a whole number.

    Source: ``paddle.reader.buffered``; here errors arrive, and leaving the loop ends the thread.
    """
    return _Buffered(reader, size)


class _Buffered(Reader[T]):
    def __init__(self, reader: AnyReader[T], size: int) -> None:
        self._size = whole_number("buffered.size", size)
        super().__init__("buffered", reader, size=self._size)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        return run_ahead("buffered", partial(open_reader, self._reader, epoch, skip), self._size)

    def identity(self) -> str:
        return identity_of(self._reader)


def xmap_readers(
    mapper: Callable[[T], R],
    reader: AnyReader[T],
    process_num: int,
    buffer_size: int,
    order: bool = False,
    *,
    timeout_s: float | None = None,
) -> Reader[R]:
    """Yield ``mapper(sample)`` for every sample, mapped on ``process_num`` threads.

    >>> list(xmap_readers(str.upper, lambda: "abc", process_num=2, buffer_size=4, order=True))
    ['A', 'B', 'C']

    Threads run side by side where the mapper releases the GIL: reading files, decoding, NumPy.

    Args:
        mapper: Called on the threads, by several at once.
        reader: Called and iterated on a thread of its own.
        process_num: Mapping threads.
        buffer_size: At most ``buffer_size + process_num`` samples are read and not yet delivered;
            0 or less is unbounded.
        order: Deliver in the reader's order, else as they are done. Only with it can a pipeline
            be resumed.
        timeout_s: How long a sample may take; None is for ever.

    Raises:
        FieldError: ``process_num`` is not a whole number >= 1, ``buffer_size`` no whole number,
            or ``timeout_s`` not above 0.
        ReaderTimeout: On iteration: nothing arrived for ``timeout_s``.

    Source: ``paddle.reader.xmap_readers``; here errors arrive, nothing spins, and leaving the
    loop ends the threads.
    """
    return _Xmap(mapper, reader, process_num, buffer_size, order, timeout_s)


class _Xmap(Reader[R]):
    def __init__(
        self,
        mapper: Callable[[T], R],
        reader: AnyReader[T],
        process_num: int,
        buffer_size: int,
        order: bool,
        timeout_s: float | None,
    ) -> None:
        self._process_num = whole_number("xmap_readers.process_num", process_num, minimum=1)
        self._buffer_size = whole_number("xmap_readers.buffer_size", buffer_size)
        self._order = bool(order)
        self._timeout_s = positive_s("xmap_readers.timeout_s", timeout_s)
        super().__init__(
            "xmap_readers",
            reader,
            functions=(mapper,),
            process_num=self._process_num,
            buffer_size=self._buffer_size,
            order=self._order,
        )
        self._mapper, self._reader = mapper, reader

    def open(self, epoch: int, skip: int) -> Iterator[R]:
        """Skip without calling the mapper, as `map_readers` does."""
        grants: Channel[int] = Channel()
        samples: Channel[Outcome] = Channel()
        outcomes: Channel[Outcome] = Channel(num_producers=self._process_num, name=self.name)
        source = partial(reading, self._reader, epoch, skip)
        with ThreadGroup(self.name, grants, samples, outcomes) as group:
            group.start("xmap-reader", partial(_read, source, grants), samples)
            for number in range(self._process_num):
                role = f"xmap-mapper-{number}"
                group.start(role, partial(_map, self._mapper, samples), outcomes)
            arrange = _in_order if self._order else _as_done
            arrived = arrange(outcomes.drain(self._timeout_s))
            yield from _grant_as_received(arrived, grants, self._process_num, self._buffer_size)

    def identity(self) -> str:
        return f"map_readers({identity_of(self._reader)})"

    def unrepeatable(self) -> str | None:
        return None if self._order else "delivers as samples are done; pass order=True"


def _read(
    source: Callable[[], AbstractContextManager[Iterator[Any]]], grants: Channel[int]
) -> Iterator[Outcome]:
    """Number the samples, and read no more of them than were granted."""
    number = 0
    try:
        with source() as samples:
            for grant in grants.drain():
                end = number + grant
                for sample in islice(samples, grant):
                    yield number, sample, None
                    number += 1
                if number < end:
                    return
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - handed to the consumer's thread
        yield number, None, error


def _map(mapper: Callable[[Any], Any], samples: Channel[Outcome]) -> Iterator[Outcome]:
    while True:
        try:
            number, sample, error = samples.get()
        except EndOfChannel:
            return
        if error is None:
            try:
                sample = mapper(sample)
            except BaseException as raised:  # noqa: BLE001 - handed to the consumer's thread
                samples.close()
                sample, error = None, raised
        yield number, sample, error
        del sample, error


def _in_order(outcomes: Iterator[Outcome]) -> Iterator[Any]:
    early: dict[int, tuple[Any, BaseException | None]] = {}
    wanted = 0
    for number, value, error in outcomes:
        early[number] = value, error
        while wanted in early:
            value, error = early.pop(wanted)
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # as in `Channel`: the error's traceback holds this frame
            yield value
            wanted += 1


def _as_done(outcomes: Iterator[Outcome]) -> Iterator[Any]:
    failed_at, failure = sys.maxsize, None
    for number, value, error in outcomes:
        if number > failed_at:
            continue
        if error is not None:
            failed_at, failure = number, error
        else:
            yield value
    if failure is not None:
        try:
            raise failure
        finally:
            del failure


def _grant_as_received(
    values: Iterator[Any], grants: Channel[int], process_num: int, buffer_size: int
) -> Iterator[Any]:
    """Keep the window open: all of it at the start, then as much as has been received.

    Grants come in steps of half the buffer, so that the reading thread is woken once a step; at
    the other end of a step there is still one sample a mapper, and half a buffer.
    """
    if buffer_size <= 0:
        grants.put(sys.maxsize)
        yield from values
        return
    grants.put(process_num + buffer_size)
    step = max(1, buffer_size // 2)
    num_received = 0
    for value in values:
        num_received += 1
        if num_received == step:
            grants.put(step)
            num_received = 0
        yield value
