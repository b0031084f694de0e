"""`ReaderVariable`: a stateful reader by the name that programs know it by.

The functions of `gpufeed.layers` make it; its reader is there once the startup program has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

from gpufeed.errors import ReaderError
from gpufeed.places import Place, PlaceLike, as_place
from gpufeed.stateful.base import ReaderHolder
from gpufeed.stateful.py_reader import PyReader
from gpufeed.variables import Variable

__all__ = ["ReaderVariable"]


class ReaderVariable:
    """A reader of a program; the functions of this module make it.

    Attributes:
        name: Unique in the startup and the main program.
        fields: What one read sets, in order.
        persistable: True: the reader stays from run to run.
    """

    persistable = True

    def __init__(
        self,
        name: str,
        fields: Sequence[Variable],
        reader: ReaderHolder[Any],
        source: ReaderVariable | None = None,
    ) -> None:
        self.name = name
        self.fields = tuple(fields)
        self._reader = reader
        self._is_made = False
        self._source = source
        # Weak, or a program that is dropped would keep its readers and their threads for a while.
        self._decorated: WeakSet[ReaderVariable] = WeakSet()
        if source is not None:
            source._decorated.add(self)

    @property
    def reader(self) -> ReaderHolder[Any]:
        """The stateful reader itself.

        Raises:
            ReaderError: The startup program has not run.
        """
        if not self._is_made:
            raise ReaderError(
                f"reader {self.name!r} is not made yet; run the startup program first"
            )
        return self._reader

    def has_next(self) -> bool:
        """Return whether there is another item, waiting for it; or an error to raise."""
        return self.reader.has_next()

    def reset(self) -> None:
        """Begin again, with every reader that is made of this one.

        A reader that is made of a `py_reader` resets that one, which then has to be started again.
        What was read ahead is dropped.

        Raises:
            ReaderError: The startup program has not run.
        """
        _ = self.reader
        root = self._root()
        (root if isinstance(root._reader, PyReader) else self)._reinit()

    def start(self) -> None:
        """Begin a pass of the `py_reader` that this reader is, or is made of.

        Raises:
            ReaderError: It has no source, or its last pass was not ended by `reset`, or the
                startup program has not run.
        """
        _ = self.reader
        self._py_reader("start").start()
        for variable in self._root()._decorated:
            variable._reinit()  # those that were read before the start, and failed

    def decorate_paddle_reader(self, reader: Callable[[], Iterable[Any]]) -> None:
        """Give the `py_reader` mini-batches to read; see `PyReader.decorate_paddle_reader`."""
        self._py_reader("decorate_paddle_reader").decorate_paddle_reader(reader)

    def decorate_tensor_provider(self, provider: Callable[[], Iterable[Any]]) -> None:
        """Give the `py_reader` tensors to read; see `PyReader.decorate_tensor_provider`."""
        self._py_reader("decorate_tensor_provider").decorate_tensor_provider(provider)

    decorate_sample_list_generator = decorate_paddle_reader  # their names since 1.3
    decorate_batch_generator = decorate_tensor_provider

    def __repr__(self) -> str:
        return f"ReaderVariable(name={self.name!r}, reader={self._reader!r})"

    def make(self, place: PlaceLike = "cpu") -> Sequence[Any]:
        """Do what the startup program does; a second time changes nothing.

        Args:
            place: Where readers send ahead that were not told where to.
        """
        if not self._is_made:
            self._reader.bind(as_place(place))
            self._is_made = True
        return ()

    def _root(self) -> ReaderVariable:
        return self if self._source is None else self._source._root()

    def _reinit(self) -> None:
        for variable in self._decorated:
            variable._reinit()
        if isinstance(self._reader, PyReader):
            self._reader.reset()
        else:
            self._reader.reinit()

    def _py_reader(self, method: str) -> PyReader:
        reader = self._root()._reader
        if not isinstance(reader, PyReader):
            raise ReaderError(f"{self.name}.{method} is for py_reader; others are read at once")
        return reader

    def _read(self, place: Place) -> Sequence[Any]:
        reader = self._reader if self._is_made else self.reader
        tensors: Sequence[Any] = reader.read_next()
        for tensor in tensors:
            if tensor.place != place:
                return [each.to(place) for each in tensors]
        return tensors  # as most are, there already; `to` would say so too, but at a price
