"""The worker process: what it runs, and how it ends.

It is given everything over one socket, on whose other end the parent lives: when that end closes,
for whatever reason, the worker ends too, if necessary in the middle of the user's own code.

Ctrl-C is the parent's to handle. A worker is in a session of its own, so the terminal does not tell
it, and it ignores who does.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

from gpufeed.checks import samples_of
from gpufeed.workers.boxes import Inbox, Outbox
from gpufeed.workers.frames import Entry, Kind
from gpufeed.workers.payload import Payload
from gpufeed.workers.records import RECORD_NBYTES, Record, Returns
from gpufeed.workers.segment import Segment

__all__ = [
    "CLOSE_GRACE_S",
    "STATUS_HUNG_UP",
    "MapSamples",
    "ReadSamples",
    "Setup",
    "main",
    "numbered",
    "open_plain",
    "pack_setup",
]

# How long a worker that is no longer wanted may take to end by itself.
CLOSE_GRACE_S = 0.1

# The exit status of a worker whose parent has hung up.
STATUS_HUNG_UP = 1

_LENGTH = struct.Struct("<q")


class Setup(NamedTuple):
    """What a worker is told first; descriptors are those that it inherits.

    Attributes:
        argv: The parent's, for code that looks at it.
        sender: The worker's number in its pool.
        segment: For what it sends.
        records: The pipe to tell the parent of it.
        returns: The pipe by which slots come back.
        tasks: The pipe that tells of samples to map, the segment they are in, and the pipe to
            give their slots back; None for a worker that reads.
        max_entries: Most samples that it sends at once.
        payload: What to run, pickled; calling it with the tasks and an outbox is the whole work.
        modules: See `Payload`.
        max_views: Most slots of tasks that what it makes of them may keep.
    """

    argv: list[str]
    sender: int
    segment: int
    records: int
    returns: int
    tasks: tuple[int, int, int] | None
    max_entries: int
    payload: bytes
    modules: set[str]
    max_views: int


def pack_setup(setup: Setup) -> bytes:
    """Return what is sent to a worker to tell it what it is to do."""
    data = pickle.dumps(tuple(setup))
    return _LENGTH.pack(len(data)) + data


def _receive_setup(control_fd: int) -> Setup | None:
    """Return what the parent sends; None if it has nothing to do after all."""
    with open(control_fd, "rb", closefd=False) as stream:
        head = stream.read(_LENGTH.size)
        if len(head) == _LENGTH.size:
            data = stream.read(*_LENGTH.unpack(head))
            if len(data) == _LENGTH.unpack(head)[0]:
                return Setup(*pickle.loads(data))
    return None


class Work(Protocol):
    """What a payload is, unpickled."""

    def __call__(self, tasks: Iterator[tuple[Entry, bool]], outbox: Outbox) -> None:
        """Do it all."""


class MapSamples(NamedTuple):
    """Maps the samples that come as tasks.

    Attributes:
        mapper: The user's function.
        generators: None, or makes of a sample's number the generator that ``mapper`` takes too.
        stops_at_error: Whether the first error ends the work.
    """

    mapper: Callable[..., Any]
    generators: Callable[[], Callable[[int], Any]] | None
    stops_at_error: bool

    def __call__(self, tasks: Iterator[tuple[Entry, bool]], outbox: Outbox) -> None:
        """Map what comes, until nothing more does."""
        mapper = numbered(self.mapper, None if self.generators is None else self.generators())
        for (number, kind, value), is_last in tasks:
            if kind == Kind.VALUE:
                outbox.begin(number)
                try:
                    value = mapper(number, value)
                except BaseException as error:  # noqa: BLE001 - handed to the consumer
                    kind, value = Kind.ERROR, error
            is_over = kind == Kind.ERROR and self.stops_at_error
            if not outbox.put(number, kind, value, is_last=is_last or is_over) or is_over:
                return
            del value


def numbered(
    mapper: Callable[..., Any], generator_of: Callable[[int], Any] | None
) -> Callable[[int, Any], Any]:
    """Return ``mapper`` as a function of a sample's number and the sample.

    >>> numbered(str.upper, None)(17, "a")
    'A'
    """
    if generator_of is None:
        return lambda number, sample: mapper(sample)
    return lambda number, sample: mapper(sample, generator_of(number))


class ReadSamples(NamedTuple):
    """Reads a reader, as far ahead as it may.

    Attributes:
        open_at: Returns an iterator over the samples from a number on.
        skip: The number to begin at.
        window: Most samples that are sent and not yet received.
        max_nbytes: Most bytes of them; one sample may always pass.
        finds_length: Whether to count the samples if there are fewer than ``skip``.
        telling: Returns what was counted since it was last called, if anything was.
    """

    open_at: Callable[[int], Iterable[Any]]
    skip: int
    window: int
    max_nbytes: int
    finds_length: bool
    telling: Callable[[], Any] | None

    def __call__(self, tasks: Iterator[tuple[Entry, bool]], outbox: Outbox) -> None:
        """Read until the end, or until the parent is gone."""
        number = self.skip
        try:
            outbox.begin(number)
            source = iter(self.open_at(number))
            try:
                while self._has_room(number, outbox):
                    outbox.begin(number)
                    for sample in islice(source, 1):
                        self._report(number, outbox)
                        if not outbox.put(number, Kind.VALUE, sample):
                            return
                        del sample
                        break
                    else:
                        self._report(number, outbox)
                        if self.finds_length and number == self.skip:
                            number = self._length()
                        break
                    number += 1
            finally:
                if hasattr(source, "close"):
                    source.close()
        except BaseException as error:  # noqa: BLE001 - handed to the consumer
            self._report(number, outbox)
            outbox.put(number, Kind.ERROR, error, is_last=True)
        else:
            outbox.put(number, Kind.END, None, is_last=True)

    def _report(self, number: int, outbox: Outbox) -> None:
        if self.telling is not None and (told := self.telling()):
            outbox.put(number, Kind.REPORT, told)

    def _has_room(self, number: int, outbox: Outbox) -> bool:
        """Wait until another sample may be read; False once the parent is gone."""
        returns = outbox.returns
        is_there = True
        while is_there and (
            number - self.skip - returns.num_samples >= self.window
            or outbox.nbytes - returns.nbytes >= self.max_nbytes
        ):
            outbox.send()
            is_there = returns.read(wait=True)
        return is_there

    def _length(self) -> int:
        """Return how many samples there are: the reader may have ended before it got to `skip`."""
        num = sum(1 for _ in islice(iter(self.open_at(0)), self.skip))
        if self.telling is not None:
            self.telling()  # to nobody, since it was counted before
        return num


def open_plain(reader: Callable[[], Iterable[Any]], skip: int) -> Iterator[Any]:
    """Return an iterator over a plain function's samples from number ``skip`` on."""
    samples = samples_of(reader)
    deque(islice(samples, skip), maxlen=0)
    return samples


def main(control_fd: int) -> None:
    """Run what the parent asks for; the whole life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whatever the parent does with its children
    setup = _receive_setup(control_fd)
    if setup is None:
        return
    sys.argv[:] = setup.argv
    outbox = Outbox(
        Segment(setup.segment),
        setup.records,
        Returns(setup.returns),
        sender=setup.sender,
        max_entries=setup.max_entries,
        encode=Payload(b"", setup.modules).encode,
    )
    threading.Thread(target=_end_with_parent, args=(control_fd, outbox), daemon=True).start()
    try:
        work = _unpickled(setup.payload)
        outbox.say_ready()
        work(_tasks(setup), outbox)
    except BaseException as error:  # noqa: BLE001 - handed to the consumer
        outbox.put(-1, Kind.FAILURE, error, is_last=True)
    outbox.put(-1, Kind.DONE, None, is_last=True)
    outbox.close()


def _unpickled(payload: bytes) -> Work:
    try:
        work: Work = pickle.loads(payload)
    except BaseException as error:
        error.add_note("while a worker process unpickled what it is to run")
        raise
    return work


def _tasks(setup: Setup) -> Iterator[tuple[Entry, bool]]:
    """Yield what there is to map, each with whether it is the last for now."""
    if setup.tasks is None:
        return
    records_fd, segment_fd, returns_fd = setup.tasks
    inbox = Inbox([Segment(segment_fd)], [returns_fd], max_views=setup.max_views)
    while data := os.read(records_fd, RECORD_NBYTES):
        (record,) = Record.unpack(data)
        if not record.num_entries:
            return
        entries = inbox.open(record)
        inbox.give_back()
        entries.reverse()
        while entries:
            yield entries.pop(), len(entries) == 0
        inbox.give_back()


def _end_with_parent(control_fd: int, outbox: Outbox) -> None:
    """Wait until the parent closes its end; then end, if the main thread does not do it first."""
    os.read(control_fd, 1)
    outbox.refuse()
    try:
        # A command that a reader waits for would outlive this process, which runs no exit hooks.
        if (threads := sys.modules.get("gpufeed.device.threads")) is not None:
            threads.close_live_channels()
        time.sleep(CLOSE_GRACE_S)
    finally:
        os._exit(STATUS_HUNG_UP)
