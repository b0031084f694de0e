"""`PyReader`: a stateful reader that a Python reader feeds, with passes begun and ended by hand.

    made ──decorate──> ready ──start──> started ──(end of data: EOFException)──┐
                         ^                 └──────────────reset────────────────┤
                         └─────────────────────────────────────────────────────┘

Whatever is not an arrow above is a `ReaderError` and changes nothing: a read before ``start``, a
second ``start``, a new source while one is being read. ``reset`` is legal everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.errors import ReaderError
from gpufeed.places import Place, PlaceLike, as_place
from gpufeed.reader import buffered, map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import open_reader
from gpufeed.reader.stage import AnyReader
from gpufeed.stateful.base import ReaderHolder
from gpufeed.stateful.buffering import SentAhead
from gpufeed.stateful.tensors import Instance, TensorFields

__all__ = ["PyReader"]


class PyReader(ReaderHolder[Instance]):
    """Batches of a Python reader as tensors, up to ``capacity`` of them ahead on a thread.

    >>> reader = PyReader(4, [[-1, 1], [-1]], ["int64", "float32"], [1, 0])
    >>> reader.decorate_paddle_reader(lambda: [[([7, 8], 0.5), ([9], 1.5)]])
    >>> reader.start()
    >>> ids, weight = reader.read_next()
    >>> ids.lod(), weight.to_list(), reader.has_next()
    ([[0, 2, 3]], [0.5, 1.5], False)
    >>> reader.reset()

    Args:
        capacity: Most batches read ahead.
        shapes: Of each field, the batch dimension first.
        dtypes: Of each field.
        lod_levels: Of each field; None is 0 for all.
        name: Of the reader, in messages.
        use_double_buffer: Send batches to ``place`` ahead, too.
        place: Where batches go; None is the host, unless `bind` says otherwise.
        strict: As for `DataFeeder`; False takes tensors as they are, too.

    Raises:
        FieldError: ``capacity`` is not a whole number >= 1, or the lists do not fit each other.

    Source: ``fluid.layers.py_reader`` of PaddlePaddle 1.x, which hung where this raises.
    """

    def __init__(
        self,
        capacity: int,
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[Any],
        lod_levels: Sequence[int] | None = None,
        name: str | None = None,
        use_double_buffer: bool = True,
        *,
        place: PlaceLike | None = None,
        strict: bool = True,
    ) -> None:
        ahead = whole_number("py_reader.capacity", capacity, minimum=1)
        self.fields = TensorFields("py_reader", shapes, lod_levels, dtypes, strict=strict)
        self._called = name or "py_reader"
        self._batches = _Decorated(self._called)
        self._sends = bool(use_double_buffer)
        queued = buffered(self._batches, ahead)
        self._sent = SentAhead(queued, None if place is None else as_place(place), 2)
        super().__init__(self._sent if self._sends else queued)
        self.is_started = False

    def decorate_paddle_reader(self, reader: Callable[[], Iterable[Any]]) -> None:
        """Read mini-batches, lists of samples, as `gpufeed.batch` makes them.

        Raises:
            ReaderError: A pass is being read.
        """
        self._decorate(reader, self.fields.batch)

    def decorate_tensor_provider(self, provider: Callable[[], Iterable[Any]]) -> None:
        """Read mini-batches that are a list of one array or `LoDTensor` a field.

        Raises:
            ReaderError: A pass is being read.
        """
        self._decorate(provider, self.fields.of_arrays)

    decorate_sample_list_generator = decorate_paddle_reader  # their names since 1.3
    decorate_batch_generator = decorate_tensor_provider

    def start(self) -> None:
        """Begin a pass.

        Raises:
            ReaderError: There is nothing to read from, or the last pass was not ended by `reset`.
        """
        if self._batches.reader is None:
            raise self._error("start", "needs a source; call decorate_paddle_reader() first")
        if not self.is_started:  # or this would wait for whoever reads
            with self._lock:
                if not self.is_started:
                    self.is_started = True
                    return
        raise self._error("start", "was called already; call reset() before the next pass")

    def reset(self) -> None:
        """End the pass, wherever it is; what was read ahead of it is dropped.

        The next pass begins at the first batch again.
        """
        with self._lock:
            self.is_started = False
            self._drop()

    def reinit(self) -> None:
        """Do `reset` and `start`, unless nothing of a started pass was read yet."""
        with self._lock:
            if self.is_started:
                super().reinit()
            else:
                self.start()

    def read_next(self) -> Instance:
        """Return the next batch.

        Raises:
            EOFException: There is none; the same until `reset`.
            ReaderError: The pass was not started.
        """
        self._require_started("read_next")
        return super().read_next()

    def has_next(self) -> bool:
        """Return whether there is another batch, waiting for it; or an error to raise.

        Raises:
            ReaderError: The pass was not started.
        """
        self._require_started("has_next")
        return super().has_next()

    def open(self, epoch: int, skip: int) -> Iterator[Instance]:
        """Return an iterator over a pass, for what is decorated on top of this.

        Raises:
            ReaderError: The pass was not started.
        """
        self._require_started("read_next")
        return super().open(epoch, skip)

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[Instance]:
        """Return an iterator over a part of a pass, as `open` does over all of it."""
        self._require_started("read_next")
        return super().open_every(epoch, skip, step)

    def bind(self, place: Place) -> None:
        """Send to ``place``, if nobody said where to."""
        if self._sent.place is None:
            self._sent.place = place

    def _decorate(self, reader: Callable[[], Iterable[Any]], make: Callable[[Any], Any]) -> None:
        if self.is_started:
            raise self._error("decorate_*", "is not possible in a pass; call reset() first")
        self._batches.reader = map_readers(make, reader)

    def _require_started(self, method: str) -> None:
        if not self.is_started:
            raise self._error(method, "needs a started pass; call start() first")

    def _error(self, method: str, rule: str) -> ReaderError:
        return ReaderError(f"{self._called}.{method} {rule}")


class _Decorated(Reader[Instance]):
    """The source of a `PyReader`, which comes later than the reader itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reader: AnyReader[Instance] | None = None

    def open(self, epoch: int, skip: int) -> Iterator[Instance]:
        if self.reader is None:
            raise ReaderError(f"{self.name} needs a source; call decorate_paddle_reader() first")
        return open_reader(self.reader, epoch, skip)
