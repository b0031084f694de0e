"""``fluid.io.DataLoader`` and ``fluid.io.PyReader``, as far as a ``for`` loop reads them.

Both yield lists of feeds, one a place, also where there is one place only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpufeed.columnar import ColumnarBatch
from gpufeed.compat.paddle.fluid.data_feeder import DataFeeder
from gpufeed.errors import FieldError, ReaderError
from gpufeed.places import CPUPlace, Place, PlaceLike
from gpufeed.reader.aligned import map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.batch import batch
from gpufeed.reader.parallel import buffered
from gpufeed.variables import Variable, default_main_program

__all__ = ["DataLoader", "PyReader"]

Places = PlaceLike | Sequence[PlaceLike]
AnySource = Callable[[], Iterable[Any]]


class DataLoader:
    """Feeds for the variables of ``feed_list``, read ahead; made by `from_generator`.

    >>> from gpufeed.compat import fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 1], "int64")
    ...     loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=4)
    ...     samples = lambda: [(1,), (2,), (3,)]
    ...     _ = loader.set_sample_generator(samples, 2, drop_last=False, places=fluid.CPUPlace())
    >>> [[feed["x"].to_list() for feed in feeds] for feeds in loader()]
    [[[[1], [2]]], [[[3]]]]

    Args:
        feed_list: Variables, or their names, of the default main program.
        capacity: Batches read ahead on the host.
        use_double_buffer: Send batches ahead, too.
        return_list: Yield lists of tensors in place of feeds.
        drop_last: Drop the last batches where they are fewer than the places; False yields them.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str],
        capacity: int,
        *,
        use_double_buffer: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
    ) -> None:
        self._feed_list, self._program = feed_list, default_main_program()
        self._capacity = capacity
        self._prefetch = 2 if use_double_buffer else 0
        self._return_list = return_list
        self._drop_last = drop_last
        self._steps: Reader[Any] | None = None

    @staticmethod
    def from_generator(
        feed_list: Sequence[Variable | str] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> DataLoader:
        """Return a loader that still has to be given a generator.

        Raises:
            FieldError: ``iterable`` is False, ``feed_list`` or ``capacity`` None.
        """
        fields, ahead = _given("DataLoader", feed_list, capacity, iterable)
        return DataLoader(
            fields,
            ahead,
            use_double_buffer=use_double_buffer,
            return_list=return_list,
            drop_last=drop_last,
        )

    def set_sample_generator(
        self,
        reader: AnySource,
        batch_size: int,
        drop_last: bool = True,
        places: Places | None = None,
    ) -> DataLoader:
        """Read samples, and make batches of them."""
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(
        self, reader: AnySource, places: Places | None = None
    ) -> DataLoader:
        """Read mini-batches, lists of samples; ``places`` None is the host."""
        where = [CPUPlace()] if places is None else places
        feeder = DataFeeder(
            self._feed_list,
            [where] if isinstance(where, (Place, str)) else where,
            self._program,
        )
        feeds = feeder.decorate_reader(
            buffered(reader, self._capacity),
            multi_devices=True,
            remainder=None if self._drop_last else "partial",
            prefetch=self._prefetch,
        )
        self._steps = map_readers(_tensors, feeds) if self._return_list else feeds
        return self

    def set_batch_generator(self, reader: AnySource, places: Places | None = None) -> DataLoader:
        """Read mini-batches that are a list of one array or tensor a field."""
        return self.set_sample_list_generator(map_readers(self._columns, reader), places)

    def __call__(self) -> Iterator[Any]:
        """Start a pass.

        Raises:
            ReaderError: There is no generator yet.
        """
        if self._steps is None:
            raise ReaderError("DataLoader: set_sample_list_generator() or its kin must come first")
        return self._steps()

    def __iter__(self) -> Iterator[Any]:
        return self()

    def _columns(self, arrays: Sequence[Any]) -> ColumnarBatch:
        names = (each if isinstance(each, str) else each.name for each in self._feed_list)
        return ColumnarBatch(dict(zip(names, arrays, strict=True)))


class PyReader(DataLoader):
    """`DataLoader` under its older name; ``fluid.layers.py_reader`` is another thing.

    Args:
        feed_list: As for `DataLoader`, and the others.
        capacity: Batches read ahead.
        use_double_buffer: Send batches ahead, too.
        iterable: Has to be True.
        return_list: Yield lists of tensors.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        fields, ahead = _given("PyReader", feed_list, capacity, iterable)
        super().__init__(
            fields, ahead, use_double_buffer=use_double_buffer, return_list=return_list
        )

    decorate_sample_generator = DataLoader.set_sample_generator
    decorate_sample_list_generator = DataLoader.set_sample_list_generator
    decorate_batch_generator = DataLoader.set_batch_generator


def _given(
    owner: str,
    feed_list: Sequence[Variable | str] | None,
    capacity: int | None,
    iterable: bool,
) -> tuple[Sequence[Variable | str], int]:
    if not iterable:
        raise FieldError(f"{owner}.iterable must be True, got {iterable!r}; use layers.py_reader")
    if feed_list is None or capacity is None:
        raise FieldError(
            f"{owner} needs a feed_list and a capacity, got {feed_list!r} and {capacity!r}"
        )
    return feed_list, capacity


def _tensors(feeds: list[Any]) -> list[list[Any]]:
    return [list(feed.values()) for feed in feeds]
