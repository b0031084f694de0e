"""Stateful readers over other readers: each is a reader decorator, held open.

Those that only move samples about (shuffle, batch, repeat) work on the samples of their source
before these become tensors, so that a batch is collated once and not sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from gpufeed.checks import whole_number
from gpufeed.places import Place, PlaceLike, as_place
from gpufeed.reader import batch, repeat, shuffle
from gpufeed.reader.base import Reader
from gpufeed.reader.stage import AnyReader
from gpufeed.stateful.base import ReaderHolder, unconverted
from gpufeed.stateful.buffering import SentAhead
from gpufeed.stateful.tensors import batched

__all__ = [
    "BatchReader",
    "DecoratedReader",
    "DoubleBufferReader",
    "MultiPassReader",
    "ShuffleReader",
]

T = TypeVar("T")


class DecoratedReader(ReaderHolder[T]):
    """Any reader decorator, held open.

    >>> from gpufeed.reader import firstn
    >>> reader = DecoratedReader(lambda: "abc", partial(firstn, n=2))
    >>> reader.read_next(), reader.read_next(), reader.has_next()
    ('a', 'b', False)

    Its passes are its own: reading it takes nothing away from whoever reads ``reader`` directly.

    Args:
        reader: Any reader; a `ReaderBase` is one.
        decorate: Makes a reader of it.
        convert: Applied to what comes out, when it is read.

    Raises:
        TypeError: One of them, or what ``decorate`` returns, is not callable.
    """

    def __init__(
        self,
        reader: AnyReader[Any],
        decorate: Callable[[AnyReader[Any]], AnyReader[Any]],
        convert: Callable[[Any], T] | None = None,
    ) -> None:
        if not callable(decorate):
            raise TypeError(f"DecoratedReader.decorate must be callable, got {decorate!r:.80}")
        super().__init__(decorate(reader), convert)


class ShuffleReader(DecoratedReader[T]):
    """`gpufeed.reader.shuffle`, held open.

    >>> reader = ShuffleReader(lambda: range(6), 3, seed=1)
    >>> sorted(reader.read_next() for _ in range(3))
    [0, 1, 2]

    Args:
        reader: Any reader.
        buffer_size: Samples a block.
        seed: Makes the order a function of (seed, epoch).

    Raises:
        FieldError: ``buffer_size`` is not a whole number >= 1, or ``seed`` not one >= 0.
    """

    def __init__(self, reader: AnyReader[T], buffer_size: int, *, seed: int | None = None) -> None:
        size = whole_number("ShuffleReader.buffer_size", buffer_size, minimum=1)
        samples, convert = unconverted(reader)
        super().__init__(samples, partial(shuffle, buf_size=size, seed=seed), convert)


class BatchReader(DecoratedReader[Any]):
    """`gpufeed.reader.batch`, held open: instances become one instance.

    >>> from gpufeed.tensor import LoDTensor
    >>> parts = [(LoDTensor([7, 8], [[0, 2]]),), (LoDTensor([9, 6, 5], [[0, 1, 3]]),)]
    >>> (ids,) = BatchReader(lambda: parts, batch_size=2).read_next()
    >>> ids.lod()
    [[0, 2, 3, 5]]

    Samples that are no tensors stay a list, as `gpufeed.batch` makes it.

    Args:
        reader: Any reader; of tuples of tensors, as a rule.
        batch_size: Samples a batch.
        drop_last: Whether a last batch of fewer samples is left out.

    Raises:
        FieldError: ``batch_size`` is not a whole number >= 1. When read: samples do not fit each
            other.
        LoDError: When read: they differ in their number of LoD levels.

    Source: ``BatchReader`` of PaddlePaddle, whose LoD was wrong where an instance had several
    sequences.
    """

    def __init__(self, reader: AnyReader[Any], batch_size: int, *, drop_last: bool = False) -> None:
        size = whole_number("BatchReader.batch_size", batch_size, minimum=1)
        samples, convert = unconverted(reader)
        decorate = partial(batch, batch_size=size, drop_last=drop_last)
        super().__init__(samples, decorate, batched(convert))


class MultiPassReader(DecoratedReader[T]):
    """`gpufeed.reader.repeat`, held open: several passes without an end between them.

    >>> reader = MultiPassReader(lambda: "ab", pass_num=2)
    >>> [reader.read_next() for _ in range(4)], reader.has_next()
    (['a', 'b', 'a', 'b'], False)

    Args:
        reader: Any reader.
        pass_num: Passes of it that are one of this.

    Raises:
        FieldError: ``pass_num`` is not a whole number >= 1.
    """

    def __init__(self, reader: AnyReader[T], pass_num: int) -> None:
        passes = whole_number("MultiPassReader.pass_num", pass_num, minimum=1)
        samples, convert = unconverted(reader)
        super().__init__(samples, partial(repeat, num_passes=passes), convert)


class DoubleBufferReader(DecoratedReader[T]):
    """`gpufeed.double_buffer`, held open: items read and sent to a place ahead of who reads them.

    >>> DoubleBufferReader(lambda: "ab", "cpu").read_next()
    'a'

    Args:
        reader: Any reader; for a device one of tuples of tensors.
        place: Where to; None is the host, unless `bind` says otherwise. On the host only reading
            ahead is left; what its source has sent to a device stays there.
        depth: Items ahead.

    Raises:
        FieldError: ``depth`` is not a whole number >= 1; when read: an item cannot be sent.
        PlaceError: ``place`` is none; when read: it is not there.
    """

    def __init__(
        self, reader: AnyReader[T], place: PlaceLike | None = None, depth: int = 2
    ) -> None:
        ahead = whole_number("DoubleBufferReader.depth", depth, minimum=1)
        target = None if place is None else as_place(place)
        self._sent: SentAhead[T] = SentAhead(reader, target, ahead)
        super().__init__(reader, self._decorate)

    @property
    def place(self) -> Place | None:
        """Where items are sent."""
        return self._sent.place

    def bind(self, place: Place) -> None:
        """Send to ``place``, if nobody said where to."""
        if self._sent.place is None:
            self._sent.place = place

    def _decorate(self, reader: AnyReader[T]) -> Reader[T]:
        return self._sent
