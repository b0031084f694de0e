"""Readers that fail, block and keep count, for the tests of whatever reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class BrokenError(Exception):
    """What the readers and mappers of these tests raise."""


def counting(num: int) -> Callable[[], Iterator[int]]:
    """A reader of 0, 1, ... ``num - 1``, as a generator."""

    def read() -> Iterator[int]:
        yield from range(num)

    return read


def failing(at: int, error: BaseException | None = None) -> Callable[[], Iterator[int]]:
    """A reader of 0, 1, ... that raises where sample ``at`` would come."""

    def read_until_broken() -> Iterator[int]:
        yield from range(at)
        raise error or BrokenError(at)

    return read_until_broken


def taken_until(samples: Iterable[Any]) -> tuple[list[Any], BaseException | None]:
    """What arrives of ``samples``, and the error that ends them, if one does."""
    taken: list[Any] = []
    try:
        for sample in samples:
            taken.append(sample)  # noqa: PERF402 - what came before the error is wanted
    except Exception as error:  # noqa: BLE001 - returned
        return taken, error
    return taken, None


def function_names(error: BaseException) -> list[str]:
    """The functions in an exception's traceback, outermost first."""
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return names


class Watched:
    """A reader that counts what it gave and tells when its iterator was closed.

    Attributes:
        num_read: Samples given so far, over all passes.
        num_open: Iterators that are begun and not yet closed.
    """

    def __init__(self, num: int) -> None:
        self.num = num
        self.num_read = 0
        self.num_open = 0
        self._changed = threading.Condition()

    def __call__(self) -> Iterator[int]:
        with self._changed:
            self.num_open += 1
        try:
            for sample in range(self.num):
                with self._changed:
                    self.num_read += 1
                    self._changed.notify_all()
                yield sample
        finally:
            with self._changed:
                self.num_open -= 1

    def wait_until_read(self, num: int, timeout_s: float = 10.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_read >= num, timeout_s), self.num_read


class Gate:
    """A mapper or reader stops here until the test opens it.

    >>> gate = Gate()
    >>> gate.open()
    >>> gate.wait()
    """

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self._has_arrived = threading.Event()

    def wait(self) -> None:
        self._has_arrived.set()
        assert self._is_open.wait(timeout=30), "the test never opened this gate"

    def wait_for_arrival(self) -> None:
        assert self._has_arrived.wait(timeout=10), "nobody came to this gate"

    def open(self) -> None:
        self._is_open.set()
