"""``fluid.io.DataLoader`` and ``fluid.io.PyReader``: two names of one class.

Iterable, which is the default, they are read by a ``for`` loop and yield lists of feeds, one a
place, also where there is one place only. With ``iterable=False`` they are a `py_reader` that sets
the variables of their ``feed_list``, between ``start`` and ``reset``, in each run of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpufeed.columnar import ColumnarBatch
from gpufeed.compat.paddle.fluid.data_feeder import DataFeeder
from gpufeed.compat.paddle.fluid.layers import create_py_reader_by_data, read_file
from gpufeed.errors import FieldError, ReaderError
from gpufeed.places import CPUPlace, Place, PlaceLike
from gpufeed.reader.aligned import map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.batch import batch
from gpufeed.reader.parallel import buffered
from gpufeed.stateful.variable import ReaderVariable
from gpufeed.variables import Variable, default_main_program

__all__ = ["DataLoader", "PyReader"]

Places = PlaceLike | Sequence[PlaceLike]
AnySource = Callable[[], Iterable[Any]]


class DataLoader:
    """What sets the variables of ``feed_list``, read ahead; made by `from_generator`.

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
        iterable: Be read by a ``for`` loop, and not by the program.

    Raises:
        FieldError: ``feed_list`` or ``capacity`` is None, or names no variables of the program.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str] | None,
        capacity: int | None,
        *,
        use_double_buffer: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
        iterable: bool = True,
    ) -> None:
        if feed_list is None or capacity is None:
            raise FieldError(
                f"{type(self).__name__} needs a feed_list and a capacity, "
                f"got {feed_list!r} and {capacity!r}"
            )
        self._program = default_main_program()
        block = self._program.global_block()
        self._feed_list = [block.var(each) if isinstance(each, str) else each for each in feed_list]
        self._capacity = capacity
        self._prefetch = 2 if use_double_buffer else 0
        self._return_list = return_list
        self._drop_last = drop_last
        self._steps: Reader[Any] | None = None
        self._recorded: ReaderVariable | None = None
        if not iterable:
            self._recorded = create_py_reader_by_data(
                capacity, self._feed_list, use_double_buffer=use_double_buffer
            )
            read_file(self._recorded, out=self._feed_list)

    @property
    def iterable(self) -> bool:
        """Whether a ``for`` loop reads this, and not the program."""
        return self._recorded is None

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
        """Return a loader that still has to be given a generator."""
        return DataLoader(
            feed_list,
            capacity,
            use_double_buffer=use_double_buffer,
            return_list=return_list,
            drop_last=drop_last,
            iterable=iterable,
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
        """Read mini-batches, lists of samples.

        ``places`` None is the host; where a program reads, it is the executor that has places.
        """
        if self._recorded is not None:
            self._recorded.decorate_paddle_reader(reader)
            return self
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
        if self._recorded is not None:
            self._recorded.decorate_tensor_provider(reader)
            return self
        return self.set_sample_list_generator(map_readers(self._columns, reader), places)

    def start(self) -> None:
        """Begin a pass of a program that reads.

        Raises:
            ReaderError: This is iterable, has no generator yet, or its last pass was not ended.
        """
        self._read_by_program("start").start()

    def reset(self) -> None:
        """End the pass of a program that reads, as after an `EOFException`.

        Raises:
            ReaderError: This is iterable.
        """
        self._read_by_program("reset").reset()

    def __call__(self) -> Iterator[Any]:
        """Start a pass.

        Raises:
            ReaderError: There is no generator yet, or the program reads.
        """
        if self._recorded is not None:
            raise ReaderError(
                f"{type(self).__name__}: the program reads it, between start() and reset(); "
                "pass iterable=True for a loop"
            )
        if self._steps is None:
            raise ReaderError(
                f"{type(self).__name__}: set_sample_list_generator() or its kin must come first"
            )
        return self._steps()

    def __iter__(self) -> Iterator[Any]:
        return self()

    def _columns(self, arrays: Sequence[Any]) -> ColumnarBatch:
        names = [each.name for each in self._feed_list]
        if len(arrays) != len(names):
            raise FieldError(
                f"{type(self).__name__}.set_batch_generator: a batch must be one array for each of "
                f"{names}, got {len(arrays)}"
            )
        return ColumnarBatch(dict(zip(names, arrays, strict=True)))

    def _read_by_program(self, method: str) -> ReaderVariable:
        if self._recorded is None:
            raise ReaderError(
                f"{type(self).__name__}.{method} is for iterable=False; a loop needs none"
            )
        # In its time it was made at once, and scripts may have run the startup program before.
        self._recorded.make()
        return self._recorded


class PyReader(DataLoader):
    """`DataLoader` under its older name; ``fluid.layers.py_reader`` is another thing.

    Args:
        feed_list: As for `DataLoader`, and the others.
        capacity: Batches read ahead.
        use_double_buffer: Send batches ahead, too.
        iterable: Be read by a ``for`` loop, and not by the program; until 1.5 that was False.
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
        super().__init__(
            feed_list,
            capacity,
            use_double_buffer=use_double_buffer,
            return_list=return_list,
            iterable=iterable,
        )

    decorate_sample_generator = DataLoader.set_sample_generator
    decorate_sample_list_generator = DataLoader.set_sample_list_generator
    decorate_batch_generator = DataLoader.set_batch_generator


def _tensors(feeds: list[Any]) -> list[list[Any]]:
    return [list(feed.values()) for feed in feeds]
