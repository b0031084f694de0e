"""Worker threads and their lifetime: every thread that runs a reader or a mapper.

Lifetime: a `ThreadGroup` belongs to the consumer, usually to the frame of a generator, and ends its
threads by closing their channels: at the end of the data, on ``close()``, when the consumer is
garbage collected, and at interpreter exit. Its threads know their source and their channel and
nothing of the consumer, so they never keep it alive.

A stage that is closed while its consumer waits in it, on another thread, raises `closed_early`
there: the consumer learns from whoever closed it whether that is an end.

Threads are daemons, because the interpreter joins the others before it runs exit hooks; one exit
hook closes the groups that still live. A thread inside the user's own code cannot be stopped: it
ends when that call returns, and whoever closes waits `CLOSE_TIMEOUT_S` for it and then warns.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from inspect import CO_GENERATOR
from types import FrameType, GeneratorType
from typing import Protocol, TypeVar, cast
from weakref import WeakSet

from gpufeed.device.channel import Channel

__all__ = [
    "Closable",
    "ClosedEarly",
    "ThreadGroup",
    "close_iterator",
    "close_live_channels",
    "close_within",
    "closed_early",
    "run_ahead",
]

T = TypeVar("T")


class ClosedEarly(GeneratorExit):
    """Raised in a stage that was closed from outside: its source has not come to its end.

    Stages above must not take it for the end, which a cache for one would remember. It never
    reaches the user: whoever closed the stage has closed what its samples were for, and a pass that
    `Reader.close` ends on another thread ends there like any other.
    """


def closed_early() -> ClosedEarly | SystemExit:
    """Return what a stage raises that was closed from outside.

    At interpreter exit that ends, in silence, a thread of the user's which still takes samples.
    """
    return SystemExit() if _is_exiting else ClosedEarly()


CLOSE_TIMEOUT_S = 1.0

_is_exiting = False
_live: WeakSet[ThreadGroup] = WeakSet()
_ending: WeakSet[Generator[object, None, None]] = WeakSet()  # by `close_within`
# Reentrant: the garbage collector may run a finalizer that starts a pass while this is held.
_live_lock = threading.RLock()


def close_iterator(iterator: object) -> None:
    """Close ``iterator`` now if it can be closed, instead of when it is garbage collected."""
    close = getattr(iterator, "close", None)
    if callable(close):
        close()


class Closable(Protocol):
    """What a thread can wait on, and be woken from for good."""

    def close(self) -> None:
        """Wake whoever waits; idempotent, from any thread."""


class ThreadGroup:
    """The threads of one stage of one pass, and the channels that end them.

    >>> channel = Channel(capacity=8)
    >>> with ThreadGroup("squares", channel) as group:
    ...     group.start("squares", lambda: (n * n for n in range(4)), channel)
    ...     list(channel.drain())
    [0, 1, 4, 9]

    The groups of stages that are read on its threads are closed with it.

    Args:
        stage: What the user calls this stage; named in the warning of `close`.
        channels: Everything that a thread of this group may wait on: what has a ``close()`` that
            wakes it.
    """

    def __init__(self, stage: str, *channels: Closable) -> None:
        self._stage = stage
        self._channels = channels
        self._threads: list[threading.Thread] = []
        self._owner = threading.current_thread()
        self._process = os.getpid()
        self._is_closed = False
        self._generators = _waiting_generators()
        with _live_lock:
            _live.add(self)
            is_late = any(_frame_of(each) in self._generators for each in _ending)
        if is_late:
            self._close_channels()

    def start(self, role: str, open_source: Callable[[], Iterable[T]], channel: Channel[T]) -> None:
        """Run ``open_source()`` on a new thread, item by item into ``channel``.

        The thread opens the source, iterates it and closes it. An exception of any of the three
        is given to ``channel.finish``.

        Args:
            role: The thread is called ``gpufeed-<role>``.
            open_source: Makes the iterator; must not refer to the consumer.
            channel: One of this group's channels.
        """
        thread = threading.Thread(
            target=_pump, args=(open_source, channel), name=f"gpufeed-{role}", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """End the threads and wait for them, at most `CLOSE_TIMEOUT_S`; idempotent.

        Warns:
            RuntimeWarning: A thread is still inside the user's own code.
        """
        self._close_channels()
        self._join(time.monotonic() + CLOSE_TIMEOUT_S)

    def require_open(self) -> None:
        """Tell a stage that has nothing more to yield whether that is the end.

        Raises:
            ClosedEarly: It is not; another thread has closed this group.
        """
        if self._is_closed:
            raise closed_early()

    def stacks(self) -> str:
        """Return where each thread is right now, as a traceback would say it.

        With it what worker processes do, and the threads of the stages that these threads read.
        """
        frames = sys._current_frames()
        told = [
            f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}".rstrip()
            for thread in self._threads
            if thread.ident in frames
        ]
        told += [channel.describe() for channel in self._channels if hasattr(channel, "describe")]
        return "\n".join(told + [group.stacks() for group in self._inner()])

    def _inner(self) -> list[ThreadGroup]:
        """Return the groups of the stages that run on this group's threads."""
        with _live_lock:
            return [group for group in _live if group._owner in self._threads]

    def _close_channels(self) -> None:
        self._is_closed = True
        if os.getpid() != self._process:
            return  # a fork, which has none of the threads, and may have a lock that one held
        inner = self._inner()
        for channel in self._channels:
            channel.close()
        # A thread of this group may wait for a stage below it, and must be woken there.
        for group in inner:
            group._close_channels()

    def _join(self, deadline: float) -> None:
        threads, self._threads = self._threads, []
        # A garbage collection on a worker thread itself may be what closes this group.
        others = [thread for thread in threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        busy = [thread.name for thread in others if thread.is_alive()]
        if busy:
            warnings.warn(
                f"{self._stage}: {', '.join(busy)} still {self._busy_with()} "
                f"{CLOSE_TIMEOUT_S:g} s after close(), and ends when that call returns",
                RuntimeWarning,
                stacklevel=3,
            )

    def _busy_with(self) -> str:
        for channel in self._channels:
            if hasattr(channel, "busy_with") and (said := channel.busy_with()):
                return str(said)
        return "runs the reader's or mapper's own code"

    def __enter__(self) -> ThreadGroup:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def run_ahead(stage: str, open_source: Callable[[], Iterable[T]], capacity: int) -> Iterator[T]:
    """Yield what ``open_source()`` yields, read up to ``capacity`` items ahead by a thread.

    The thread starts with the first ``next`` and ends with this iterator, however that ends.

    >>> list(run_ahead("letters", lambda: "abc", capacity=2))
    ['a', 'b', 'c']

    Args:
        stage: Names the thread and the warning of a slow close.
        open_source: Makes the iterator, on the thread; must not refer to the consumer.
        capacity: Most items read and not yet yielded; 0 or less is unbounded.

    Raises:
        BaseException: What the source raised, with its traceback, after the items before it.
    """
    channel: Channel[T] = Channel(capacity, name=stage)
    with ThreadGroup(stage, channel) as group:
        group.start(stage, open_source, channel)
        yield from channel.drain()
        group.require_open()


def _pump(open_source: Callable[[], Iterable[T]], channel: Channel[T]) -> None:
    """Move items from a source into a channel until either ends."""
    try:
        source = iter(open_source())
        try:
            channel.fill(source)
        finally:
            close_iterator(source)
    except BaseException as error:  # noqa: BLE001 - handed to the consumer's thread
        channel.finish(error)
    else:
        channel.finish()


def _waiting_generators() -> set[int]:
    """Return the ids of the frames of all generators that called whoever calls this."""
    frame: FrameType | None = sys._getframe(1)
    found = set()
    while frame is not None:
        if frame.f_code.co_flags & CO_GENERATOR:
            found.add(id(frame))
        frame = frame.f_back
    return found


def close_within(generator: Generator[object, None, None], ended: threading.Event) -> bool:
    """Close what was opened while ``generator`` ran, which runs on another thread.

    A stage that had just come to its end wakes nobody: what is opened after it is closed, too. So
    where nothing is open yet, because workers are being started, this waits for the generator to
    end, at most `CLOSE_TIMEOUT_S`.

    Args:
        generator: What that thread is inside of.
        ended: Set by the generator when it ends.

    Returns:
        Whether there was anything to close: else that thread is in the user's own code.
    """
    frame = _frame_of(generator)
    with _live_lock:
        groups = [group for group in _live if frame in group._generators]
        _ending.add(generator)
    for group in groups:
        group._close_channels()
    if groups or (frame not in _waiting_generators() and ended.wait(CLOSE_TIMEOUT_S)):
        return True
    with _live_lock:
        _ending.discard(generator)
    return False


def _frame_of(generator: Generator[object, None, None]) -> int:
    return id(cast("GeneratorType[object, None, None]", generator).gi_frame)


def close_live_channels() -> list[ThreadGroup]:
    """Wake every thread for good, and end what it waits for; return the groups that live."""
    with _live_lock:
        groups = list(_live)
    for group in groups:
        group._close_channels()
    return groups


@atexit.register
def _close_live_groups() -> None:
    global _is_exiting
    _is_exiting = True
    groups = close_live_channels()
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    for group in groups:
        group._join(deadline)
