"""`chaos`: a reader that goes wrong at one sample, to see what a pipeline makes of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError, ReaderError
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import reading
from gpufeed.reader.stage import AnyReader

__all__ = ["Fault", "chaos"]

T = TypeVar("T")

Fault = (
    BaseException
    | type[BaseException]
    | Callable[[Any], Any]
    | Literal["kill", "segfault", "exit", "hang"]
)

# What a worker process may die of, or never come back from.
_DEATHS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": partial(os._exit, 3),
    "hang": lambda: threading.Event().wait(),
}


def chaos(reader: AnyReader[T], at: int, fault: Fault) -> Reader[T]:
    """Yield the samples of ``reader``, but go wrong where number ``at`` would come.

    >>> broken = chaos(lambda: "abc", at=1, fault=OSError("disk gone"))
    >>> for sample in broken:
    ...     print(sample)
    Traceback (most recent call last):
        ...
    OSError: disk gone
    >>> list(chaos(lambda: "abc", at=1, fault=lambda sample: None))
    ['a', None, 'c']

    Args:
        reader: Of samples.
        at: Number of the sample, from 0, in every pass.
        fault: An exception to raise; or a function that is called with the sample and returns
            another in its place, or does as it likes; or what befalls the process: ``"kill"``
            (SIGKILL), ``"segfault"``, ``"exit"`` (status 3) or ``"hang"`` for ever. These are for
            readers in worker processes, and refuse to happen in the one that made the reader.

    Raises:
        FieldError: ``at`` is not a whole number >= 0, or ``fault`` is something else.
        ReaderError: On iteration: a process fault would have hit the process of the test.
    """
    return _Chaos(reader, at, fault)


class _Chaos(Reader[T]):
    def __init__(self, reader: AnyReader[T], at: int, fault: Fault) -> None:
        self._at = whole_number("chaos.at", at, minimum=0)
        self._strike = _as_function(fault)
        name = fault if isinstance(fault, str) else getattr(fault, "__name__", repr(fault))
        super().__init__("chaos", reader, at=self._at, fault=name)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        with reading(self._reader, epoch, skip) as source:
            for number, sample in enumerate(source, skip):
                yield self._strike(sample) if number == self._at else sample


def _as_function(fault: Any) -> Callable[[Any], Any]:
    if isinstance(fault, str) and fault in _DEATHS:
        return partial(_befall, fault, os.getpid())
    if isinstance(fault, BaseException) or (
        isinstance(fault, type) and issubclass(fault, BaseException)
    ):
        return partial(_raise, fault)
    if callable(fault):
        replace: Callable[[Any], Any] = fault
        return replace
    names = ", ".join(map(repr, _DEATHS))
    raise FieldError(
        f"chaos.fault must be an exception, a function or one of {names}, got {fault!r}"
    )


def _raise(error: BaseException | type[BaseException], sample: object) -> None:
    raise error


def _befall(death: str, spared: int, sample: object) -> None:
    if os.getpid() == spared:
        raise ReaderError(
            f"chaos.fault must strike in a worker process, got {death!r} in the one that made the "
            "reader: read it through multiprocess_reader or isolate"
        )
    _DEATHS[death]()
