"""A bounded channel between threads that either side may close.

Backpressure: `Channel.put` waits while ``capacity`` items are queued. A waiting consumer is woken
by the first item, so nothing is held back; a waiting producer only once the queue has fallen to
half, so that two busy threads change places once per half queue and not once per item.

Lifetime: producers end a channel with `Channel.finish`, after which the queued items still arrive.
The consumer ends it with `Channel.close`, which drops them and wakes everybody. ``close`` takes no
lock, because a finalizer may call it in the middle of any other method, on any thread.

Ordering: the fast paths take no lock either, and need no GIL. Each deque method is atomic, so two
of them on one deque are ordered, and what a thread wrote before the first is seen after the second.
Hence a consumer queues its waiter *before* the ``popleft`` that may fail, and a producer looks for
waiters *after* its ``append``: either the item or the waiter is seen. The slow paths hold the lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat, starmap
from typing import Any, Generic, TypeVar

from gpufeed.errors import ReaderTimeout

__all__ = ["Channel", "ChannelStatistics", "EndOfChannel"]

T = TypeVar("T")


class EndOfChannel(Exception):  # noqa: N818 - as StopIteration, a signal and not a failure
    """No item is queued and none will come; never reaches the user."""


@dataclass(frozen=True)
class ChannelStatistics:
    """What a channel holds and who waits for it, at one moment.

    Attributes:
        num_items: Queued items.
        capacity: Most items that may be queued; 0 when unbounded.
        num_waiting_producers: Threads inside `Channel.put` that wait for room.
        num_waiting_consumers: Threads that wait for an item.
        is_closed: Whether `Channel.close` was called.
    """

    num_items: int
    capacity: int
    num_waiting_producers: int
    num_waiting_consumers: int
    is_closed: bool


_NOTHING: Any = object()

# Each waiting thread sleeps on a lock of its own; whoever removes it from the deque releases it.
_Waiters = deque[threading.Lock]


class Channel(Generic[T]):
    """First-in, first-out hand-over between threads, at most ``capacity`` items deep.

    >>> channel = Channel(capacity=2)
    >>> channel.put("a"), channel.put("b")
    (True, True)
    >>> channel.finish()
    >>> list(channel.drain())
    ['a', 'b']

    Args:
        capacity: Most items that may be queued; 0 or less is unbounded.
        num_producers: How many times `finish` is called before the channel is at its end.
        name: Of the stage, for the message of `ReaderTimeout`.
    """

    def __init__(self, capacity: int = 0, *, num_producers: int = 1, name: str = "channel") -> None:
        self._name = name
        self._capacity = max(0, capacity)
        self._limit = capacity if capacity > 0 else sys.maxsize
        self._half = self._limit // 2
        self._num_unfinished = num_producers
        self._queue: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._producers: _Waiters = deque()
        self._consumers: _Waiters = deque()

    def put(self, item: T) -> bool:
        """Queue ``item``, waiting for room; False once the consumer has closed the channel.

        Several producers that find room at the same moment may each put one item into it.
        """
        if len(self._queue) >= self._limit and not self._wait_for_room():
            return False
        self._queue.append(item)
        if self._consumers:
            _wake_one(self._consumers)
        return True

    def fill(self, source: Iterable[T]) -> None:
        """Put every item of ``source``, until it ends or the consumer closes the channel.

        The same as a loop over `put`, without a call for each item.
        """
        queue, consumers = self._queue, self._consumers
        append = queue.append
        for item in source:
            if len(queue) >= self._limit and not self._wait_for_room():
                return
            append(item)
            if consumers:
                _wake_one(consumers)
            # While the source makes the next item, this one is the consumer's alone.
            del item

    def get(self, timeout_s: float | None = None) -> T:
        """Return the oldest item, waiting for one.

        Args:
            timeout_s: How long to wait for an item; None is for ever.

        Raises:
            EndOfChannel: The channel is finished and empty, or closed.
            ReaderTimeout: No item came within ``timeout_s``.
            BaseException: What a producer gave to `finish`, once, after all items.
        """
        with self._lock:
            return self._pop(timeout_s)

    def is_empty(self) -> bool:
        """Return whether `get` would have to wait now, or has an end or an error to tell."""
        return not self._queue

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `get` has something to say: an item, the end or an error; False if too late.

        For a channel that has one consumer.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            is_late = False
            while not (self._queue or self._is_closed or self._num_unfinished <= 0 or is_late):
                waiter = _queue_waiter(self._consumers)
                try:
                    is_late = not self._queue and not self._sleep(waiter, deadline)
                finally:
                    _forget_waiter(self._consumers, waiter)
            return bool(self._queue) or not is_late

    def drain(self, timeout_s: float | None = None) -> Iterator[T]:
        """Yield items until the end; for a channel that has one consumer.

        Raises as `get` does, except that the end is the end of the iteration. The lock is taken
        only where another thread may have to be woken: between two such places the queue belongs
        to its one consumer, and ``deque.popleft`` is safe beside ``deque.append``.
        """
        popleft = self._queue.popleft
        while True:
            try:
                with self._lock:
                    # A list that is emptied as it yields: no variable here may keep the item.
                    first = [self._pop(timeout_s)]
                    num_queued = len(self._queue)
            except EndOfChannel:
                return
            yield first.pop()
            # Going below half wakes a producer, which `_pop` does; below half none can sleep.
            num_unlocked = num_queued - self._half - 1 if num_queued > self._half else num_queued
            try:
                yield from starmap(popleft, repeat((), num_unlocked))
            except IndexError:  # closed by another thread since we looked
                return

    def finish(self, error: BaseException | None = None) -> None:
        """Say that this producer puts nothing more, and why if it failed.

        Of several producers' errors the first is kept.
        """
        with self._lock:
            self._num_unfinished -= 1
            if error is not None and self._error is None and not self._is_closed:
                self._error = error
            if self._num_unfinished == 0:
                _wake_all(self._consumers)

    def close(self) -> None:
        """Drop what is queued and wake everybody; idempotent, from any thread."""
        self._is_closed = True
        self._limit = 0  # no room, ever: what `put` and `fill` look at
        self._error = None
        self._queue.clear()
        _wake_all(self._producers)
        _wake_all(self._consumers)

    def statistics(self) -> ChannelStatistics:
        """Return what is queued and who waits, without disturbing either."""
        return ChannelStatistics(
            num_items=len(self._queue),
            capacity=self._capacity,
            num_waiting_producers=len(self._producers),
            num_waiting_consumers=len(self._consumers),
            is_closed=self._is_closed,
        )

    def _pop(self, timeout_s: float | None) -> T:
        """Take the oldest item, waiting for one, and wake producers at half; holds the lock."""
        try:
            item = self._queue.popleft()
        except IndexError:
            item = _NOTHING
        if item is _NOTHING:  # not in the handler, or a producer's error would get its context
            item = self._wait_for_item(timeout_s)
        if self._producers and len(self._queue) <= self._half:
            _wake_all(self._producers)
        return item

    def _wait_for_item(self, timeout_s: float | None) -> T:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            waiter = _queue_waiter(self._consumers)
            try:
                with suppress(IndexError):
                    return self._queue.popleft()
                self._raise_at_end()
                is_late = not self._sleep(waiter, deadline)
            finally:
                was_woken = not _forget_waiter(self._consumers, waiter)
                if was_woken and self._queue:
                    _wake_one(self._consumers)  # it may have been meant for an item still queued
            if is_late and not self._queue:
                raise ReaderTimeout(f"{self._name}: no sample arrived in {timeout_s} s")

    def _wait_for_room(self) -> bool:
        """Wait until the queue is below its limit; False once the channel is closed."""
        with self._lock:
            while len(self._queue) >= self._limit and not self._is_closed:
                waiter = _queue_waiter(self._producers)
                try:
                    self._sleep(waiter)
                finally:
                    _forget_waiter(self._producers, waiter)
            return not self._is_closed

    def _raise_at_end(self) -> None:
        if self._is_closed:
            raise EndOfChannel
        if self._num_unfinished > 0:
            return
        error, self._error = self._error, None
        if error is None:
            raise EndOfChannel
        try:
            raise error
        finally:
            del error  # the traceback holds this frame, and the frame must not hold the error

    def _sleep(self, waiter: threading.Lock, deadline: float | None = None) -> bool:
        """Give up the lock until woken or closed; False when ``deadline`` passed first."""
        timeout_s = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        self._lock.release()
        try:
            # `close` sets the flag before it wakes, so a waiter that it missed sees the flag.
            return self._is_closed or waiter.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        finally:
            self._lock.acquire()


def _queue_waiter(waiters: _Waiters) -> threading.Lock:
    waiter = threading.Lock()
    waiter.acquire()
    waiters.append(waiter)
    return waiter


def _forget_waiter(waiters: _Waiters, waiter: threading.Lock) -> bool:
    """Take ``waiter`` out of the queue; False if somebody has woken it already."""
    try:
        waiters.remove(waiter)
    except ValueError:
        return False
    return True


def _wake_one(waiters: _Waiters) -> None:
    # Empty after all when another thread woke the last one since the caller looked.
    with suppress(IndexError):
        waiters.popleft().release()


def _wake_all(waiters: _Waiters) -> None:
    while waiters:
        _wake_one(waiters)
