"""Stages that run on threads or in processes: reading ahead, and mapping by many at once.

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
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from gpufeed.checks import positive_s, require_callable, whole_number
from gpufeed.device.channel import Channel, EndOfChannel
from gpufeed.device.threads import ThreadGroup, run_ahead
from gpufeed.reader.arranging import Outcome, Outcomes, Window, as_done, in_order
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import count_of, drain, open_reader, reading
from gpufeed.reader.rng import PassRng, pass_rng, rng_seed
from gpufeed.reader.skipping import OnError, Skip, skip_policy
from gpufeed.reader.stage import AnyReader, identity_of
from gpufeed.workers.frames import Entry, Kind
from gpufeed.workers.payload import pack
from gpufeed.workers.pool import Pool
from gpufeed.workers.standby import Standby
from gpufeed.workers.worker import MapSamples, numbered

__all__ = ["buffered", "xmap_readers"]

T = TypeVar("T")
R = TypeVar("R")


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

    def count(self) -> int | None:
        return count_of(self._reader)

    def num_taken(self, num: int) -> int | None:
        return num

    def identity(self) -> str:
        return identity_of(self._reader)


def xmap_readers(
    mapper: Callable[..., R],
    reader: AnyReader[T],
    process_num: int,
    buffer_size: int,
    order: bool = False,
    *,
    processes: bool = False,
    on_error: OnError = "raise",
    rng: bool | int = False,
    timeout_s: float | None = None,
) -> Reader[R]:
    """Yield ``mapper(sample)`` for every sample, mapped by ``process_num`` threads or processes.

    >>> list(xmap_readers(str.upper, lambda: "abc", process_num=2, buffer_size=4, order=True))
    ['A', 'B', 'C']

    Threads run side by side where the mapper releases the GIL: reading files, decoding, NumPy.
    Processes do so for any mapper. They are started with the first pass and never run the script
    again: the mapper is pickled, by value if it is defined in ``__main__``, and samples go through
    shared memory, arrays without being pickled. An array that arrives is the receiver's to keep or
    change. Between passes the processes wait, as that of `isolate` does.

    Args:
        mapper: Called by several at once.
        reader: Called and iterated on a thread of its own, in this process.
        process_num: Mapping threads or processes.
        buffer_size: At most ``buffer_size + process_num`` samples are read and not yet delivered;
            0 or less is unbounded.
        order: Deliver in the reader's order, else as they are done. Only with it can a pipeline
            be resumed.
        processes: Map in processes.
        on_error: What to do when ``mapper`` raises: ``"raise"``, ``"skip"`` the sample, or `Skip`
            with limits.
        rng: Whether ``mapper`` takes a `numpy.random.Generator` as its last argument, True or a
            seed. What it draws depends on the seed, the epoch and the number of the sample only,
            and not on who maps it; it is reseated for each sample, so ``mapper`` must not keep it.
        timeout_s: How long a sample may take; None is for ever.

    Raises:
        FieldError: ``process_num`` is not a whole number >= 1, ``buffer_size`` no whole number,
            ``timeout_s`` not above 0, or ``on_error`` or ``rng`` something else.
        ReaderError: On iteration: ``mapper`` cannot be pickled, or shared memory is short.
        WorkerDied: On iteration, after the samples before: a process was killed, or ended itself.
        ReaderTimeout: On iteration: nothing arrived for ``timeout_s``.

    Source: ``paddle.reader.xmap_readers``; here errors arrive, nothing spins, and leaving the
    loop ends the threads and processes.
    """
    require_callable("xmap_readers.mapper", mapper)
    return _Xmap(
        mapper,
        reader,
        whole_number("xmap_readers.process_num", process_num, minimum=1),
        whole_number("xmap_readers.buffer_size", buffer_size),
        order=bool(order),
        processes=bool(processes),
        policy=skip_policy("xmap_readers.on_error", on_error),
        seed=rng_seed("xmap_readers.rng", rng),
        timeout_s=positive_s("xmap_readers.timeout_s", timeout_s),
    )


class _Xmap(Reader[R]):
    def __init__(
        self,
        mapper: Callable[..., R],
        reader: AnyReader[T],
        process_num: int,
        buffer_size: int,
        *,
        order: bool,
        processes: bool,
        policy: Skip | None,
        seed: int | None,
        timeout_s: float | None,
    ) -> None:
        options = {"processes": processes or None, "on_error": policy, "rng": seed}
        super().__init__(
            "xmap_readers",
            reader,
            functions=(mapper,),
            process_num=process_num,
            buffer_size=buffer_size,
            order=order,
            **{key: value for key, value in options.items() if value is not None},
        )
        self._mapper, self._reader = mapper, reader
        self._process_num, self._buffer_size = process_num, buffer_size
        self._order, self._processes = order, processes
        self._policy, self._seed, self._timeout_s = policy, seed, timeout_s
        self._standby = Standby()

    def open(self, epoch: int, skip: int) -> Iterator[R]:
        """Skip without calling the mapper, as `map_readers` does, unless it may leave some out."""
        begin = skip if self._policy is None else 0
        log = None if self._policy is None else self.start_skipping(self._policy)
        window = Window(self._process_num, self._buffer_size)
        source = partial(_read, partial(reading, self._reader, epoch, begin), window.grants, begin)
        rng = None if self._seed is None else pass_rng(self, self._seed, epoch)
        map_all = self._map_in_processes if self._processes else self._map_on_threads
        with closing(map_all(source, window, begin, rng)) as outcomes:
            window.open()
            mapped = (
                in_order(outcomes, window, begin, log)
                if self._order
                else as_done(outcomes, window, log)
            )
            drain(mapped, skip - begin, self)
            yield from mapped

    def _map_on_threads(
        self,
        source: Callable[[], Outcomes],
        window: Window,
        begin: int,
        rng: PassRng | None,
    ) -> Outcomes:
        samples: Channel[Outcome] = Channel()
        outcomes: Channel[Outcome] = Channel(num_producers=self._process_num, name=self.name)
        on_error = samples.close if self._policy is None else _go_on
        with ThreadGroup(self.name, window.grants, samples, outcomes) as group:
            group.start("xmap-reader", source, samples)
            for number in range(self._process_num):
                mapper = numbered(self._mapper, None if rng is None else rng.generators())
                run = partial(_map, mapper, samples, on_error)
                group.start(f"xmap-mapper-{number}", run, outcomes)
            yield from outcomes.drain(self._timeout_s)
            group.require_open()

    def _map_in_processes(
        self,
        source: Callable[[], Outcomes],
        window: Window,
        begin: int,
        rng: PassRng | None,
    ) -> Outcomes:
        work = MapSamples(
            self._mapper,
            None if rng is None else rng.generators,
            stops_at_error=self._policy is None,
        )
        pool = Pool(
            self.name,
            self._process_num,
            self._standby,
            max_entries=window.chunk(self._process_num),
            has_tasks=True,
        )
        sent: Channel[None] = Channel()
        with pool, ThreadGroup(self.name, window.grants, sent, pool) as group:
            pool.give_work([pack(self.name, work, {"mapper": self._mapper})])
            group.start("xmap-reader", partial(_send, source, pool, begin), sent)
            yield from _arrived(pool, begin, self._timeout_s, work.stops_at_error)
            group.require_open()

    def let_go(self) -> None:
        self._standby.close()

    def count(self) -> int | None:
        return None if self._policy is not None else count_of(self._reader)

    def num_taken(self, num: int) -> int | None:
        return num if self._order and self._policy is None else None

    def identity(self) -> str:
        """Return the identity of the `map_readers` that yields the same."""
        skips = "" if self._policy is None else ", on_error='skip'"
        return f"map_readers({identity_of(self._reader)}{skips})"

    def unrepeatable(self) -> str | None:
        return None if self._order else "delivers as samples are done; pass order=True"


def _read(
    source: Callable[[], AbstractContextManager[Iterator[Any]]],
    grants: Channel[int],
    number: int,
) -> Outcomes:
    """Number the samples, and read no more of them than were granted; an END comes after them."""
    try:
        with source() as samples:
            for grant in grants.drain():
                end = number + grant
                for sample in islice(samples, grant):
                    yield number, Kind.VALUE, sample
                    number += 1
                if number < end:
                    break
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - handed to the consumer's thread
        yield number, Kind.FAILURE, error


def _map(
    mapper: Callable[[int, Any], Any], samples: Channel[Outcome], on_error: Callable[[], None]
) -> Outcomes:
    while True:
        try:
            number, kind, value = samples.get()
        except EndOfChannel:
            return
        if kind == Kind.VALUE:
            try:
                value = mapper(number, value)
            except BaseException as error:  # noqa: BLE001 - handed to the consumer's thread
                on_error()
                kind, value = Kind.ERROR, error
        yield number, kind, value
        del value


def _go_on() -> None:
    """Let what is queued behind a failure be mapped."""


def _send(source: Callable[[], Outcomes], pool: Pool, end: int) -> Iterator[None]:
    """Send the samples to the workers, then tell the consumer how many there are.

    Args:
        source: Of the samples, and of the failure that may end them.
        pool: Of the workers.
        end: Number of the first sample, and then of the one behind the last.
    """
    assert pool.tasks is not None
    put, failure = pool.tasks.put, None
    try:
        with closing(source()) as outcomes:
            for number, kind, value in outcomes:
                if kind == Kind.FAILURE:
                    failure = Entry(number, kind, value)
                    break
                if not put(number, kind, value):
                    return
                end = number + 1
                del value
        pool.tell(failure or Entry(end, Kind.END, None))
        pool.end_tasks()
    except BaseException as error:  # noqa: BLE001 - handed to the consumer's thread
        pool.tell(Entry(end, Kind.FAILURE, error))
    yield from ()


def _arrived(pool: Pool, begin: int, timeout_s: float | None, ends_at_error: bool) -> Outcomes:
    """Yield what arrives from the workers, until every sample before the end, or a failure, has."""
    early: set[int] = set()
    wanted, end, is_whole = begin, sys.maxsize, True
    while wanted < end:
        arrivals = pool.receive(timeout_s)
        if not arrivals:
            return
        arrivals.reverse()
        while arrivals:
            _, (number, kind, value), _ = arrivals.pop()
            if kind == Kind.END:
                end = min(end, number)
                continue
            if number < 0:  # a worker that died between two samples, or could not begin
                number = wanted
            if kind == Kind.FAILURE or (kind == Kind.ERROR and ends_at_error):
                end, is_whole = min(end, number), False
            early.add(number)
            while wanted in early:
                early.remove(wanted)
                wanted += 1
            yield number, kind, value
            del value
    if is_whole:
        pool.finish()
