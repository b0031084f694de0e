"""Static feeds: every batch at the same addresses, for graphs that are captured once and replayed.

A captured graph knows addresses and shapes, and no batch. So each batch is written into arrays of
the largest size that was declared, and what it does not fill is padding: zeros behind the rows, and
behind the offsets their last value again, which makes sequences that are empty.

    slab (leased, as ever)          static arrays, one address for the life of the reader
    ┌───────────┬─────────┐         ┌───────────┬───────────┐┌─────────┬─────────────┐
    │ rows      │ offsets │ ──────> │ rows      │ 0 0 0 … 0 ││ offsets │ n n n … n   │
    └───────────┴─────────┘         └───────────┴───────────┘└─────────┴─────────────┘

Only the batch itself crosses to the device; it is copied there, on the consumer's own stream. So
the copy comes after everything that the consumer has enqueued, replays included, and before what it
enqueues next; other streams that read the arrays are waited for if they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from gpufeed.checks import whole_number
from gpufeed.device import backend_for
from gpufeed.device.backend import Array, Stream
from gpufeed.device.host import aligned_bytes, root_view, view_at
from gpufeed.device.slabs import Lease, Slab
from gpufeed.device.staging import MakeArray
from gpufeed.errors import FieldError, PlaceError
from gpufeed.feed import Feed
from gpufeed.layout import Section, lay_out
from gpufeed.lod import Offsets
from gpufeed.places import CUDAPlace, Place
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable

__all__ = ["StaticBounds", "StaticFeed", "StaticSlot", "StaticTensor", "static_bounds"]

StaticBounds = Mapping[str, int | Sequence[int]]

_OFFSETS = np.dtype(np.int32)
_LARGEST = 2**31 - 1  # what int32 offsets can say


class StaticFeed(Feed):
    """The one feed of a static reader: its values change with each step, its arrays never move.

    Attributes:
        num_samples: In the present step; what stands behind them is padding.
    """

    __slots__ = ("num_samples",)

    num_samples: int


class StaticTensor(LoDTensor):
    """Rows cut by a LoD, with room for more of both.

    ``data`` has room for the most rows and `cu_seqlens` for the most sequences there can be. The
    LoD on the host is the present batch's, and so are length, items, slices and all that is made
    of it; ``tensor[:]`` is the batch without padding, for as long as the step lasts.
    """

    __slots__ = ()

    def _num_rows(self) -> int:
        return int(self._lod[-1][-1])

    def _window(self, begin: int, end: int, lod: Sequence[Offsets]) -> Any:
        rows = self._data[begin:end]
        return LoDTensor._assemble(rows, lod, self._place, lease=self._lease)

    def _gather(self, rows: Offsets, lod: Sequence[Offsets]) -> Any:
        return self[:]._gather(rows, tuple(lod))

    def _sequences(
        self, sequences: Offsets, lod: Sequence[Offsets], *, is_reversed: bool = False
    ) -> Any:
        return self[:]._sequences(sequences, tuple(lod), is_reversed=is_reversed)

    def to(self, place: Any) -> LoDTensor:
        """Return the batch on another place, as a copy; on its own place, itself."""
        there: LoDTensor = self[:].to(place)
        return self if there.place == self.place else there

    def to_padded(
        self, pad_value: float = 0, max_length: int | None = None, **options: Any
    ) -> tuple[Array, Array]:
        """Return the batch's sequences as a rectangle, and their lengths."""
        padded: tuple[Array, Array] = self[:].to_padded(pad_value, max_length, **options)
        return padded

    def save(self, file: Any) -> None:
        """Write the batch in the byte format of PaddlePaddle 1.x and 2.x."""
        self[:].save(file)

    def to_torch_nested(self) -> Any:
        """Return the batch's sequences as a jagged torch tensor that shares their memory."""
        return self[:].to_torch_nested()

    def to_arrow(self) -> Any:
        """Return the batch's samples as a pyarrow array over the same memory."""
        return self[:].to_arrow()

    def to_awkward(self) -> Any:
        """Return the batch's samples as an awkward array over the same memory."""
        return self[:].to_awkward()

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = self[:].__reduce__()
        return reduced


def static_bounds(
    variables: Sequence[Variable], static: bool | StaticBounds
) -> dict[str, tuple[int, ...]]:
    """Return the largest sizes of each field: entries of every LoD level, then rows.

    >>> from gpufeed.variables import Program, data, program_guard
    >>> with program_guard(Program()):
    ...     fields = [data("ids", [1], "int64", lod_level=1), data("label", [32, 1], "int64",
    ...               append_batch_size=False)]
    >>> static_bounds(fields, {"ids": (32, 4096)})
    {'ids': (32, 4096), 'label': (32,)}

    Args:
        variables: The fields.
        static: Name to a number, or to one for each level and one for the rows; fields without a
            LoD whose declared shape says how many rows they have need none, and True is none.

    Raises:
        FieldError: A field has no largest size, or one that does not fit it, or stays compressed.
    """
    if not isinstance(static, (bool, Mapping)):
        raise FieldError(f"decorate_reader.static must be True or a mapping, got {static!r}")
    given = dict(static) if isinstance(static, Mapping) else {}
    bounds = {
        variable.name: _bounds(variable, given.pop(variable.name, None)) for variable in variables
    }
    if given:
        raise FieldError(
            f"decorate_reader.static must name fields of the feeder, got {', '.join(given)}"
        )
    return bounds


def _bounds(variable: Variable, given: object) -> tuple[int, ...]:
    name = f"decorate_reader.static[{variable.name!r}]"
    if variable.is_sparse and not variable.densify:
        raise FieldError(f"{name} must be a field that is dense on the device; use densify=True")
    if -1 in variable.item_shape:
        raise FieldError(
            f"{name} must be a field whose rows have one shape, got {variable.item_shape}"
        )
    if given is None and variable.shape[0] >= 0:
        given = variable.shape[0]
    wanted = ("sequences", *("sub-sequences",) * (variable.lod_level - 1))[: variable.lod_level]
    names = ", ".join(f"most {kind}" for kind in (*wanted, "rows"))
    numbers = list(given) if isinstance(given, (list, tuple)) else [given]
    if given is None or len(numbers) != variable.lod_level + 1:
        raise FieldError(f"{name} must be ({names}), got {given!r}")
    bounds = tuple(whole_number(name, number, minimum=0) for number in numbers)
    if max(bounds) > _LARGEST:
        raise FieldError(f"{name} must be at most {_LARGEST}, got {max(bounds)}")
    return bounds


class StaticSlot:
    """The static feed of one place, and how a batch gets into it.

    Args:
        variables: The fields.
        bounds: Of each, as `static_bounds` returns them.
        place: Where the arrays are.

    Raises:
        PlaceError: There is no room for them.
    """

    def __init__(
        self, variables: Sequence[Variable], bounds: Mapping[str, tuple[int, ...]], place: Place
    ) -> None:
        self._bounds = bounds
        sections: list[Section] = []
        for variable in variables:
            *levels, rows = bounds[variable.name]
            sections.append(((rows, *variable.item_shape), np.dtype(variable.dtype)))
            sections += [((level + 1,), _OFFSETS) for level in levels]
        placed, nbytes = lay_out(sections, 0)
        self._slab, self._lease, make = _allocate(place, nbytes)
        arrays = iter([make(*each) for each in placed])
        tensors = []
        for variable in variables:
            data, *offsets = [next(arrays) for _ in bounds[variable.name]]
            kind = StaticTensor if offsets else LoDTensor
            lod = [np.zeros(1, np.int64) for _ in offsets]
            tensor = kind._assemble(data, lod, place, offsets or None, self._lease)
            tensors.append((variable.name, tensor))
        self.feed = StaticFeed(tensors, place=place)
        self.feed.num_samples = 0
        # How many rows of each field may be other than 0: at first, all.
        self._num_dirty = {name: numbers[-1] for name, numbers in bounds.items()}

    def update(self, feed: Feed, consumers: Sequence[Stream]) -> StaticFeed:
        """Copy a feed into the static one, in the order of its consumers' streams.

        Args:
            feed: Of the same fields, complete once what ``consumers`` have enqueued is done.
            consumers: Streams that the static feed is used on next; none for the host.

        Raises:
            FieldError: It is larger than declared.
            PlaceError: A stream that reads the static feed is being captured.
        """
        for name, tensor in feed.items():
            self._require_room(name, tensor)
        self._wait_for_readers(consumers)
        copy = partial(_copy, [move for name in feed for move in self._moves(name, feed[name])])
        if consumers:
            first, *others = consumers
            first.call(copy)
            for other in others:
                other.wait(first.record())
        else:
            copy()
        for name, tensor in feed.items():
            self.feed[name]._lod = tensor._lod
        self.feed.num_samples = len(next(iter(feed.values())))
        return self.feed

    def _require_room(self, name: str, tensor: Any) -> None:
        sizes = [*(len(level) - 1 for level in tensor._lod), len(tensor.data)]
        kinds = [*("sequences",) * len(tensor._lod), "rows"]
        for kind, size, bound in zip(kinds, sizes, self._bounds[name], strict=True):
            if size > bound:
                raise FieldError(
                    f"field {name!r}: expected at most {bound} {kind} of a static feed, got {size}"
                )

    def _wait_for_readers(self, consumers: Sequence[Stream]) -> None:
        """Order the copy behind the streams that read the last batch."""
        for reader in self._slab.streams:
            if reader in consumers:
                continue
            if reader.is_capturing():
                raise PlaceError(
                    f"{self.feed.place}: a stream that reads a static feed must not be captured "
                    f"when the next one is taken, got {reader!r}"
                )
            read = reader.record()
            for consumer in consumers:
                consumer.wait(read)
            if not consumers:
                read.synchronize()
        self._slab.streams = list(consumers)

    def _moves(self, name: str, tensor: Any) -> list[_Move]:
        static: Any = self.feed[name]
        num_dirty, num_rows = self._num_dirty[name], len(tensor.data)
        self._num_dirty[name] = num_rows
        moves: list[_Move] = [(static.data, tensor.data, max(num_dirty, num_rows), 0)]
        for target, level in zip(static._lod_on_place or (), tensor._lod, strict=True):
            moves.append((target, _offsets_of(tensor, level), len(target), int(level[-1])))
        return moves


# Into the first array, from the second; then fill up to an index with a value.
_Move = tuple[Array, Array, int, int]


def _copy(moves: Sequence[_Move]) -> None:
    for target, source, end, fill in moves:
        num = len(source)
        target[:num] = source
        if num < end:
            target[num:end] = fill


def _offsets_of(tensor: LoDTensor, level: Offsets) -> Array:
    """Return the offsets of one level where the tensor is."""
    on_place = tensor._lod_on_place
    if on_place is None:
        return level
    number = next(number for number, each in enumerate(tensor._lod) if each is level)
    return on_place[number]


def _allocate(place: Place, nbytes: int) -> tuple[Slab[Any], Lease, MakeArray]:
    """Return memory for static arrays, what holds it, and how arrays are made of it."""
    make: Callable[..., Array]
    if isinstance(place, CUDAPlace):
        backend = backend_for(place)
        slab: Slab[Any] = Slab(backend.device_memory(nbytes))
        lease = Lease(slab, SimpleQueue(), backend.as_stream)
        make = partial(backend.array, backend.view(slab.memory, lease))
    else:
        slab = Slab(aligned_bytes(nbytes))
        lease = Lease(slab, SimpleQueue(), lambda stream: None)
        make = partial(view_at, root_view(lease))
    return slab, lease, make
