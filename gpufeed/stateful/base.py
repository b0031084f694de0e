"""What a stateful reader is, and how any reader becomes one: a pass that is held open.

A `ReaderBase` answers "is there more?" and "what comes next?"; a reader (`gpufeed.reader`) answers
with a whole pass. `ReaderHolder` makes the first out of the second, and so every class of this
package is a pipeline of reader decorators and one held pass over it: nothing here shuffles, batches
or prefetches by itself.

Lifetime: the held pass is opened by the first look or read, its threads too; it ends with the data,
with an error, with `ReaderBase.reinit` and `ReaderHolder.close`, or with the holder.

Threads: one lock a holder, so that several consumers share its pass, each item going to one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from gpufeed.checks import require_callable
from gpufeed.device.threads import close_iterator
from gpufeed.errors import EOFException
from gpufeed.places import Place
from gpufeed.reader import map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import count_of, open_every, open_reader
from gpufeed.reader.stage import AnyReader, identity_of

__all__ = ["OneToOne", "ReaderBase", "ReaderHolder", "unconverted"]

T = TypeVar("T")


class ReaderBase(ABC, Generic[T]):
    """The interface: `read_next`, `has_next`, `reinit`.

    Subclass it for a source that is read by a cursor. It is a reader then, too: calling it is
    ``reinit`` and a loop over ``read_next``, so that every decorator takes it.

    >>> class Countdown(ReaderBase[int]):
    ...     def __init__(self):
    ...         self.left = 3
    ...
    ...     def read_next(self):
    ...         if not self.has_next():
    ...             raise EOFException("There is no next data.")
    ...         self.left -= 1
    ...         return self.left
    ...
    ...     def has_next(self):
    ...         return self.left > 0
    ...
    ...     def reinit(self):
    ...         self.left = 3
    >>> reader = Countdown()
    >>> reader.read_next(), list(reader())
    (2, [2, 1, 0])

    Source: ``ReaderBase`` of PaddlePaddle's design of C++ data feeding.
    """

    @abstractmethod
    def read_next(self) -> T:
        """Return the next item.

        Raises:
            EOFException: There is none; the same until `reinit`.
        """

    @abstractmethod
    def has_next(self) -> bool:
        """Return whether `read_next` has something to say: an item, or an error in its place."""

    @abstractmethod
    def reinit(self) -> None:
        """Begin again: the next item is the first of a new pass."""

    def __call__(self) -> Iterator[T]:
        """Begin a new pass, and yield its items."""
        self.reinit()
        while self.has_next():
            try:
                item = [self.read_next()]
            except EOFException:  # somebody else has read it since
                return
            yield item.pop()

    def __iter__(self) -> Iterator[T]:
        return self()


class OneToOne(Reader[T]):
    """A stage whose samples are those of its one source: how they come may change, not which."""

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Return a fresh iterator over pass ``epoch`` of the source."""
        return open_reader(self.sources[0], epoch, skip)

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        """Leave it to the source to make no more samples than these."""
        return open_every(self.sources[0], epoch, skip, step)

    def count(self) -> int | None:
        """Return how many samples the source has; None where that is not known."""
        return count_of(self.sources[0])

    def num_taken(self, num: int) -> int | None:
        """Return ``num``: each sample is made of one."""
        return num

    def identity(self) -> str:
        """Return the identity of the source."""
        return identity_of(self.sources[0])


class ReaderHolder(OneToOne[T], ReaderBase[T]):
    """Any reader as a `ReaderBase`.

    >>> held = ReaderHolder(lambda: "ab")
    >>> held.read_next(), held.has_next(), held.read_next(), held.has_next()
    ('a', True, 'b', False)
    >>> held.reinit()
    >>> held.read_next()
    'a'

    Each held pass is the next epoch of the reader. Calling the holder starts a pass of its own,
    which takes nothing away from the held one. `state_dict` and its kin mean the last pass that was
    started; an item that `has_next` has seen and nobody has read is not delivered yet.

    An error of the reader comes where the item would have come, so `has_next` is True before it;
    after it the pass is at its end.

    Args:
        reader: What is held.
        convert: Applied to each sample when it is read; None hands samples out as they are.
            Decorators that only move samples about work on those that are not converted yet.

    Attributes:
        samples: The reader that was given.
        convert: As given.

    Raises:
        TypeError: ``reader`` is not callable, or ``convert`` is neither that nor None.

    Source: ``ReaderHolder`` of PaddlePaddle's design of C++ data feeding.
    """

    def __init__(self, reader: AnyReader[Any], convert: Callable[[Any], T] | None = None) -> None:
        self.samples = reader
        if convert is not None:
            require_callable(f"{type(self).__name__}.convert", convert)
        self.convert = convert
        # Not this object: a pass keeps its reader alive, and the holder keeps the pass.
        self._reader: Reader[T]
        self._reader = _Own(reader) if convert is None else map_readers(convert, reader)
        super().__init__(type(self).__name__, self._reader)
        self._lock = threading.RLock()
        self._held: _HeldPass[T] | None = None

    def read_next(self) -> T:
        """Return the next item of the held pass.

        Raises:
            EOFException: There is none; the same until `reinit`.
        """
        with self._lock:
            return (self._held or self._pass()).read_next()

    def has_next(self) -> bool:
        """Return whether the held pass has another item, waiting for it; or an error to raise."""
        with self._lock:
            return self._pass().has_next()

    def reinit(self) -> None:
        """End the held pass; what it has read ahead is dropped. The next read begins the next one.

        A pass of which nothing was read is as good as a new one, and stays. While another thread
        reads, this waits for it.
        """
        with self._lock:
            if self._held is not None and not self._held.is_fresh:
                self._drop()

    def bind(self, place: Place) -> None:
        """Take ``place`` for what works on a place and was given none; most readers do not."""

    def __call__(self) -> Iterator[T]:
        """Start a pass of its own, the epoch after the last one that was started."""
        return self._reader()

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last pass that was started; see `Reader.state_dict`."""
        with self._lock:
            state = self._reader.state_dict()
            if self._held is not None:
                state["delivered"] -= self._held.num_ahead
                state["over"] = state["over"] and not self._held.num_ahead
            return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass begin where ``state`` was taken; ends the held one."""
        with self._lock:
            self._reader.load_state_dict(state)
            self._drop()

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be number ``epoch``; ends the held one."""
        with self._lock:
            self._reader.set_epoch(epoch)
            self._drop()

    def skipped(self) -> dict[str, Any]:
        """Return how many samples the stages below skipped; see `Reader.skipped`."""
        return self._reader.skipped()

    def close(self) -> None:
        """End every pass that still runs, with its threads; the held one is then at its end.

        Raises:
            ReaderError: Another thread is taking a sample.
        """
        self._reader.close()
        if self._held is not None:
            self._held.close()

    def __getstate__(self) -> dict[str, Any]:
        # The held pass stays with this object, as all passes do.
        return {**super().__getstate__(), "_held": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_lock": threading.RLock()})

    def _pass(self) -> _HeldPass[T]:
        if self._held is None:
            self._held = _HeldPass(self._reader())
        return self._held

    def _drop(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


class _Own(OneToOne[T]):
    """The same samples, counted apart from everybody else who reads them."""

    def __init__(self, reader: AnyReader[T]) -> None:
        super().__init__("ReaderHolder", reader)

    def __repr__(self) -> str:
        (reader,) = self.sources
        return str(getattr(reader, "__name__", None) or repr(reader))


class _HeldPass(Generic[T]):
    """One pass, read item by item, of which one may be looked at in advance.

    Attributes:
        is_fresh: Whether it has said nothing yet: no item, no error, no end.
    """

    def __init__(self, samples: Iterator[T]) -> None:
        self.is_fresh = True
        self._samples = samples
        self._ahead: list[T] = []
        self._error: list[Exception] = []

    @property
    def num_ahead(self) -> int:
        """Items that were looked at and not read."""
        return len(self._ahead)

    def has_next(self) -> bool:
        if not self._ahead and not self._error:
            try:
                self._ahead.append(next(self._samples))
            except StopIteration:
                self.is_fresh = False
                return False
            except Exception as error:  # noqa: BLE001 - raised by `read_next`, after the items before it
                self._error.append(error)
        return True

    def read_next(self) -> T:
        self.is_fresh = False
        if self._ahead:
            return self._ahead.pop()
        if self._error:
            raise self._error.pop()
        try:
            return next(self._samples)
        except StopIteration:
            raise EOFException("There is no next data.") from None

    def close(self) -> None:
        """Drop what was looked at, and be at the end."""
        self.is_fresh = False
        self._ahead.clear()
        self._error.clear()
        close_iterator(self._samples)


def unconverted(reader: AnyReader[T]) -> tuple[AnyReader[Any], Callable[[Any], T] | None]:
    """Return a reader's samples as they come from their source, and what makes items of them."""
    if isinstance(reader, ReaderHolder) and reader.convert is not None:
        return reader.samples, reader.convert
    return reader, None
