"""Readers that run in processes of their own: one of them, or several merged.

Backpressure: a process reads as far ahead as its window lets it, in samples and in bytes, and the
window moves on as samples are delivered: what has arrived and waits for its turn counts as ahead.

Order: merged in turn, a reader at a time, the order is a function of the readers alone, so a pass
can be resumed. A reader that ends leaves the round; how many samples each has given after ``n``
then depends on who has ended, which the process of a reader finds out when it is told to skip more
samples than there are.

Counts: what the stages of a reader count in its process comes with its samples, see `counters`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from gpufeed.checks import positive_s, whole_number
from gpufeed.device.threads import ThreadGroup, closed_early
from gpufeed.errors import FieldError
from gpufeed.reader.base import Reader
from gpufeed.reader.counters import Changes, Counter, Telling, count_changes
from gpufeed.reader.opening import count_of, counted_by_now, counters_of, drain, made_by
from gpufeed.reader.stage import AnyReader, Stage, identity_of
from gpufeed.workers.frames import Entry, Kind
from gpufeed.workers.payload import pack
from gpufeed.workers.pool import Pool
from gpufeed.workers.standby import Standby
from gpufeed.workers.worker import ReadSamples, open_plain

__all__ = ["isolate", "multiprocess_reader"]

T = TypeVar("T")

# A process reads no further ahead than this, but for one sample.
MAX_NBYTES_AHEAD = 64 << 20


def isolate(
    reader: AnyReader[T], *, buffer_size: int = 64, timeout_s: float | None = None
) -> Reader[T]:
    """Run a whole reader in one process of its own, so that reading leaves training the GIL.

    >>> list(isolate(lambda: "abc"))
    ['a', 'b', 'c']

    The process starts with the first pass, and begins at its epoch and sample. The reader is
    pickled, by value if it is defined in ``__main__``; samples come through shared memory, and an
    array that arrives is the receiver's to keep or change.

    It takes as long to start as Python does, about 50 ms, and what its code imports, which with
    NumPy is twice that. After a whole pass the process waits for the next, which then begins within
    a few milliseconds: it keeps what it has imported, and is sent the reader anew. It ends with the
    reader, or its ``close()``, where a pass is left or fails, and with the interpreter. Where the
    environment, the folder or ``sys.path`` has changed, or in an interactive session the source of
    a module that is loaded, the next pass starts another.

    Args:
        reader: Called and iterated in the process.
        buffer_size: Most samples read and not yet taken; of large ones fewer, 64 MiB of them.
        timeout_s: How long a sample may take; None is for ever.

    Raises:
        FieldError: ``buffer_size`` is not a whole number >= 1, or ``timeout_s`` not above 0.
        ReaderError: On iteration: ``reader`` cannot be pickled, or shared memory is short.
        WorkerDied: On iteration, after the samples before: the process was killed or ended itself.
        ReaderTimeout: On iteration: nothing arrived for ``timeout_s``.
    """
    window = whole_number("isolate.buffer_size", buffer_size, minimum=1)
    return _Isolated(reader, window, positive_s("isolate.timeout_s", timeout_s))


class _Isolated(Reader[T]):
    def __init__(self, reader: AnyReader[T], window: int, timeout_s: float | None) -> None:
        super().__init__("isolate", reader, buffer_size=window)
        self._reader, self._window, self._timeout_s = reader, window, timeout_s
        self._standby = Standby()

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        with _reading(self, self._standby, [skip], epoch, self._window, self._timeout_s) as streams:
            while (entry := streams.take(0)).kind != Kind.END:
                # A list that is emptied as it yields: no variable here may keep the sample.
                value = [entry.value]
                del entry
                yield value.pop()

    def let_go(self) -> None:
        self._standby.close()

    def count(self) -> int | None:
        return count_of(self._reader)

    def num_taken(self, num: int) -> int | None:
        return num

    def identity(self) -> str:
        return identity_of(self._reader)


def multiprocess_reader(
    readers: Sequence[AnyReader[T]],
    use_pipe: bool = True,
    queue_size: int = 1000,
    *,
    order: bool = False,
    timeout_s: float | None = None,
) -> Reader[T]:
    """Run each reader in a process of its own, and yield the samples of all of them.

    >>> list(multiprocess_reader([lambda: "ac", lambda: "bd"], order=True))
    ['a', 'b', 'c', 'd']

    As for `isolate`, readers are pickled and never run the script again, and processes wait for the
    next pass.

    Args:
        readers: At least one.
        use_pipe: Either way samples come through shared memory; both spellings are the same.
        queue_size: Most samples read and not yet taken, of all readers together, but one of each.
        order: Take a sample of each reader in turn, those that have ended left out; else as they
            come. Only with it can a pipeline be resumed.
        timeout_s: How long a sample may take; None is for ever.

    Raises:
        FieldError: There is no reader, ``queue_size`` is not a whole number >= 1, or
            ``timeout_s`` not above 0.
        ReaderError: On iteration: a reader cannot be pickled, or shared memory is short.
        WorkerDied: On iteration, after the samples before: a process was killed or ended itself.
        ReaderTimeout: On iteration: nothing arrived for ``timeout_s``.

    Source: ``paddle.reader.multiprocess_reader``; here any sample that can be pickled is data,
    None among them, and errors arrive.
    """
    del use_pipe
    given = readers
    if callable(given) or not isinstance(given, Iterable) or not (readers := list(given)):
        raise FieldError(
            f"multiprocess_reader.readers must be a list of at least one reader, got {given!r:.80}"
        )
    size = whole_number("multiprocess_reader.queue_size", queue_size, minimum=1)
    timeout_s = positive_s("multiprocess_reader.timeout_s", timeout_s)
    return _Merged(readers, size, order=bool(order), timeout_s=timeout_s)


class _Merged(Reader[T]):
    def __init__(
        self, readers: Sequence[AnyReader[T]], size: int, *, order: bool, timeout_s: float | None
    ) -> None:
        super().__init__("multiprocess_reader", *readers, queue_size=size, order=order)
        self._window = max(1, size // len(readers))
        self._order, self._timeout_s = order, timeout_s
        self._standby = Standby()

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        num = len(self.sources)
        skips = _places(skip, [None] * num) if self._order else [0] * num
        with _reading(self, self._standby, skips, epoch, self._window, self._timeout_s) as streams:
            if self._order:
                go_back = counted_by_now(made_by(self))
                _go_to(streams, skip)
                go_back()
                yield from _in_turn(streams)
            else:
                samples = _as_they_come(streams)
                drain(samples, skip, self)
                yield from samples

    def let_go(self) -> None:
        self._standby.close()

    def count(self) -> int | None:
        counts = [count_of(source) for source in self.sources]
        return None if None in counts else sum(count or 0 for count in counts)

    def identity(self) -> str:
        """Return the identity of the `interleave` that yields the same in order."""
        return f"interleave({', '.join(map(identity_of, self.sources))})"

    def unrepeatable(self) -> str | None:
        return None if self._order else "delivers samples as they come; pass order=True"


class _Streams:
    """What comes from each process, and how far it has been taken.

    Attributes:
        places: Of each, how many samples of the pass have been taken or skipped.
    """

    def __init__(
        self,
        pool: Pool,
        places: Sequence[int],
        counters: Sequence[Sequence[Counter]],
        window: int,
        timeout_s: float | None,
    ) -> None:
        self.places = list(places)
        self._pool = pool
        self._counters = counters
        # A process is told of half a window at a time, so that one that waits is woken as often.
        self._step = max(1, window // 2)
        self._timeout_s = timeout_s
        self._queues: list[deque[tuple[Entry, int, Changes]]] = [deque() for _ in places]
        # What has arrived in front of an entry that has not.
        self._early: list[tuple[int, Changes]] = [(0, [])] * len(places)
        self._num_taken = [0] * len(places)
        self._nbytes_taken = [0] * len(places)

    def take(self, index: int) -> Entry:
        """Return what comes next from one process: a sample or the END.

        Raises:
            BaseException: What came instead.
        """
        queue = self._queues[index]
        while not queue:
            self.receive()
        entry, nbytes, changes = queue.popleft()
        count_changes(self._counters[index], changes)
        if entry.kind == Kind.END:
            queue.append((entry, 0, []))  # and it stays at its end
            return entry
        if entry.kind != Kind.VALUE:
            try:
                raise entry.value
            finally:
                del entry  # as in `Channel`: the error's traceback holds this frame
        self.places[index] += 1
        self._num_taken[index] += 1
        self._nbytes_taken[index] += nbytes
        num, nbytes = self._num_taken[index], self._nbytes_taken[index]
        if num >= self._step or nbytes >= MAX_NBYTES_AHEAD // 2:
            self._pool.took(index, num, nbytes)
            self._num_taken[index] = self._nbytes_taken[index] = 0
        return entry

    def receive(self) -> list[int]:
        """Wait for more; return from whom it came, entry by entry."""
        arrivals = self._pool.receive(self._timeout_s)
        if not arrivals:
            raise closed_early()  # by the stage that reads this one on a thread, or at exit
        arrived = []
        for index, entry, nbytes in arrivals:
            if entry.kind == Kind.REPORT:
                self._early[index] = nbytes, entry.value
                continue
            early, changes = self._early[index]
            self._early[index] = 0, []
            self._queues[index].append((entry, early + nbytes, changes))
            arrived.append(index)
        return arrived

    def length(self, index: int) -> int | None:
        """Return how many samples a reader has, if its end comes next; wait to know."""
        queue = self._queues[index]
        while not queue:
            self.receive()
        entry, _, _ = queue[0]
        return entry.number if entry.kind == Kind.END else None


@contextmanager
def _reading(
    stage: Reader[Any],
    standby: Standby,
    skips: Sequence[int],
    epoch: int,
    window: int,
    timeout_s: float | None,
) -> Generator[_Streams, None, None]:
    """Read every source of a stage in a process, from sample ``skips`` on."""
    counters = [counters_of(source) for source in stage.sources]
    pool = Pool(stage.name, len(skips), standby, max_entries=max(1, window // 4))
    with pool, ThreadGroup(stage.name, pool):
        payloads = []
        for reader, skip, counted in zip(stage.sources, skips, counters, strict=True):
            work = ReadSamples(
                _opener(reader, epoch),
                skip,
                window=window,
                max_nbytes=MAX_NBYTES_AHEAD,
                finds_length=len(skips) > 1,
                telling=Telling(counted) if counted else None,
            )
            payloads.append(pack(stage.name, work, {"reader": reader}))
        pool.give_work(payloads)
        yield _Streams(pool, skips, counters, window, timeout_s)
        pool.finish()


def _opener(reader: AnyReader[T], epoch: int) -> Callable[[int], Iterator[T]]:
    # Not `open_reader`: with the module that it is in, a process would import NumPy.
    if isinstance(reader, Stage):
        return partial(reader.open, epoch)
    return partial(open_plain, reader)


def _as_they_come(streams: _Streams) -> Iterator[Any]:
    num_open = len(streams.places)
    while num_open:
        for index in streams.receive():
            entry = streams.take(index)
            if entry.kind == Kind.END:
                num_open -= 1
            else:
                yield entry.value
            del entry


def _in_turn(streams: _Streams) -> Iterator[Any]:
    """Yield a sample of each reader in turn, first those that are behind the others."""
    places = streams.places
    going = list(range(len(places)))
    while going:
        turn = min(places[index] for index in going)
        for index in [index for index in going if places[index] == turn]:
            entry = streams.take(index)
            if entry.kind == Kind.END:
                going.remove(index)
            else:
                yield entry.value
            del entry


def _go_to(streams: _Streams, skip: int) -> None:
    """Leave out ``skip`` samples, of which the processes have skipped what all had to."""
    lengths: list[int | None] = [None] * len(streams.places)
    is_there = skip == 0
    while not is_there:
        is_there = True
        for index, place in enumerate(_places(skip, lengths)):
            if lengths[index] is None:
                lengths[index] = _advance(streams, index, place)
                is_there = is_there and lengths[index] is None


def _advance(streams: _Streams, index: int, place: int) -> int | None:
    """Bring one reader to a place; return its length if that is less."""
    while streams.places[index] < place and streams.length(index) is None:
        streams.take(index)
    length = streams.length(index)
    if length is None or length >= place:
        return None
    streams.places[index] = length
    return length


def _places(num: int, lengths: Sequence[int | None]) -> list[int]:
    """Return how many of the first ``num`` samples, taken in turn, are each reader's.

    >>> _places(7, [None, 1, None])
    [3, 1, 3]

    Args:
        num: Of samples.
        lengths: Of the readers, None where it is more than matters.
    """
    places = [0] * len(lengths)
    going = [index for index, length in enumerate(lengths) if length != 0]
    while num and going:
        rounds = num // len(going)
        for index in going:
            length = lengths[index]
            if length is not None:
                rounds = min(rounds, length - places[index])
        if rounds == 0:
            going, rounds = going[:num], 1
        num -= rounds * len(going)
        for index in going:
            places[index] += rounds
        going = [index for index in going if places[index] != lengths[index]]
    return places
