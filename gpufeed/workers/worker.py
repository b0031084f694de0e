"""The worker process: what it runs, and how it ends.

It is given everything over one socket, on whose other end the parent lives: when that end closes,
for whatever reason, the worker ends too, if necessary in the middle of the user's own code.

Ctrl-C is the parent's to handle. A worker is in a session of its own, so the terminal does not tell
it, and it ignores who does.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from gpufeed.checks import samples_of
from gpufeed.errors import ReaderError
from gpufeed.workers.boxes import Inbox, Outbox
from gpufeed.workers.frames import Entry, Kind
from gpufeed.workers.payload import Payload
from gpufeed.workers.records import RECORD_NBYTES, Record, Returns
from gpufeed.workers.segment import Segment

__all__ = [
    "CLOSE_GRACE_S",
    "STATUS_HUNG_UP",
    "Ends",
    "MapSamples",
    "ReadSamples",
    "Setup",
    "main",
    "numbered",
    "open_plain",
    "send_setup",
]

# How long a worker that is no longer wanted may take to end by itself.
CLOSE_GRACE_S = 0.1

# The exit status of a worker whose parent has hung up.
STATUS_HUNG_UP = 1

# Of what is sent: the length, and how many descriptors go with it.
_HEAD = struct.Struct("<qq")
_MAX_ENDS = 6


class Setup(NamedTuple):
    """What a worker is told of a pass.

    Attributes:
        argv: The parent's, for code that looks at it.
        sender: The worker's number in its pool.
        max_entries: Most samples that it sends at once.
        payload: What to run, pickled; calling it with the tasks and an outbox is the whole work.
        modules: See `Payload`.
        max_views: Most slots of tasks that what it makes of them may keep.
    """

    argv: list[str]
    sender: int
    max_entries: int
    payload: bytes
    modules: set[str]
    max_views: int


class Ends(NamedTuple):
    """What a worker is given for a pass: descriptors, by number.

    Attributes:
        segment: For what it sends.
        records: The pipe to tell the parent of it.
        returns: The pipe by which slots come back.
        tasks: The pipe that tells of samples to map, the segment they are in, and the pipe to
            give their slots back; none for a worker that reads.
    """

    segment: int
    records: int
    returns: int
    tasks: Sequence[int]


def send_setup(control: socket.socket, setup: Setup, ends: Ends) -> None:
    """Tell a worker what it is to do."""
    data = pickle.dumps(tuple(setup))
    *three, tasks = ends
    socket.send_fds(control, [_HEAD.pack(len(data), 3 + len(tasks))], [*three, *tasks])
    control.sendall(data)


def _receive_setup(control: socket.socket) -> tuple[Setup, Ends] | None:
    """Return what the parent sends; None once it has hung up."""
    close_on_exec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    head, fds, *_ = socket.recv_fds(control, _HEAD.size, _MAX_ENDS, close_on_exec)
    if len(head) < _HEAD.size:
        return None
    nbytes, num_ends = _HEAD.unpack(head)
    left = memoryview(data := bytearray(nbytes))
    while left:
        num_received = control.recv_into(left)
        if not num_received:
            return None
        left = left[num_received:]
    if len(fds) < num_ends:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return Setup(*pickle.loads(data)), Ends(fds[0], fds[1], fds[2], fds[3:])


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
    """Run what the parent asks for, pass after pass; the whole life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whatever the parent does with its children
    parent = _Parent(socket.socket(fileno=control_fd))
    while (told := parent.setups.get()) is not None:
        try:
            _run(*told, parent)
        except (OSError, ReaderError) as error:  # of what it would need to say so to the parent
            sys.exit(f"worker {os.getpid()} ends: {error}")
        del told


class _Parent:
    """What is heard of the parent, on a thread.

    Attributes:
        setups: What there is to do; None once the parent has hung up.
        outbox: What is sent to it.
    """

    def __init__(self, control: socket.socket) -> None:
        self.setups: SimpleQueue[tuple[Setup, Ends] | None] = SimpleQueue()
        self.outbox: Outbox | None = None
        self._control = control
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Pass on what is to be done; then end, if the main thread does not do it first."""
        try:
            with suppress(ConnectionResetError):
                while (told := _receive_setup(self._control)) is not None:
                    self.setups.put(told)
                    del told
            self.setups.put(None)
            if self.outbox is not None:
                self.outbox.refuse()
            # A command that a reader waits for would outlive this process, which runs no exit
            # hooks.
            if (threads := sys.modules.get("gpufeed.device.threads")) is not None:
                threads.close_live_channels()
            time.sleep(CLOSE_GRACE_S)
        except OSError as error:
            print(f"worker {os.getpid()} ends: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(STATUS_HUNG_UP)


def _run(setup: Setup, ends: Ends, parent: _Parent) -> None:
    """Do what there is to do in one pass."""
    sys.argv[:] = setup.argv
    parent.outbox = outbox = Outbox(
        segment := Segment(ends.segment),
        ends.records,
        Returns(ends.returns),
        sender=setup.sender,
        max_entries=setup.max_entries,
        encode=Payload(b"", setup.modules).encode,
    )
    try:
        work = _unpickled(setup.payload)
        outbox.say_ready()
        work(_tasks(setup, ends), outbox)
    except BaseException as error:  # noqa: BLE001 - handed to the consumer
        outbox.put(-1, Kind.FAILURE, error, is_last=True)
    outbox.put(-1, Kind.DONE, None, is_last=True)
    outbox.close()
    segment.close()
    for fd in (ends.records, ends.returns, *ends.tasks):
        os.close(fd)


def _unpickled(payload: bytes) -> Work:
    try:
        work: Work = pickle.loads(payload)
    except BaseException as error:
        error.add_note("while a worker process unpickled what it is to run")
        raise
    return work


def _tasks(setup: Setup, ends: Ends) -> Iterator[tuple[Entry, bool]]:
    """Yield what there is to map, each with whether it is the last for now."""
    if not ends.tasks:
        return
    records_fd, segment_fd, returns_fd = ends.tasks
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
