"""Items on their way: read by a thread, and sent to a device, before they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

from gpufeed.buffering import double_buffer
from gpufeed.device.threads import run_ahead
from gpufeed.errors import FieldError
from gpufeed.places import CUDAPlace, Place
from gpufeed.prefetch import FeedReader
from gpufeed.reader import map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import open_reader, reading
from gpufeed.reader.stage import AnyReader
from gpufeed.stateful.base import OneToOne
from gpufeed.stateful.tensors import Instance
from gpufeed.tensor import LoDTensor

__all__ = ["SentAhead"]

T = TypeVar("T")


class SentAhead(OneToOne[T]):
    """The items of a reader, up to ``depth`` of them ahead, on ``place``.

    On the host any item is handed on as it is; to a device go tuples of tensors, by
    `gpufeed.double_buffer`.

    Args:
        reader: Called and iterated on the thread.
        place: Where items go; None is the host. May be set until a pass begins.
        depth: Most items read and not yet taken.
    """

    def __init__(self, reader: AnyReader[T], place: Place | None, depth: int) -> None:
        super().__init__("double_buffer", reader, depth=depth)
        self.place = place
        self._reader = reader
        self._depth = depth
        self._feeds: FeedReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_feeds": None}

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Start the thread with the first item taken."""
        source, places = partial(open_reader, self._reader, epoch, skip), self._places_below()
        if isinstance(self.place, CUDAPlace) and self.place not in places:
            return self._sent(self.place, epoch, skip)
        if places:
            # Ahead already; and a device's tensors are ordered for the stream of who reads them,
            # which is the consumer's only as long as no other thread takes them in between.
            return source()
        return run_ahead("double-buffer", source, self._depth)

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        """Read and send all, and pass on these."""
        return Reader.open_every(self, epoch, skip, step)

    def _places_below(self) -> list[CUDAPlace]:
        """Return the devices that stages below send to."""
        below = [stage for stage in self.stages() if isinstance(stage, SentAhead)]
        places = [stage.place for stage in below if stage is not self]
        return [place for place in places if isinstance(place, CUDAPlace)]

    def _sent(self, place: Place, epoch: int, skip: int) -> Iterator[Any]:
        if self._feeds is None:  # kept, as its page-locked memory serves pass after pass
            self._feeds = double_buffer(map_readers(_as_feed, self._reader), place, self._depth)
        with reading(self._feeds, epoch, skip) as feeds:
            # Not a loop, whose variable would keep a feed that the consumer has dropped.
            yield from map(_as_instance, feeds)


def _as_feed(item: Any) -> dict[str, LoDTensor]:
    if not isinstance(item, tuple) or not all(isinstance(each, LoDTensor) for each in item):
        raise FieldError(
            "DoubleBufferReader.reader must read tuples of tensors to send them to a device, got "
            f"{type(item).__name__} {item!r:.40}; gpufeed.double_buffer sends feeds"
        )
    return {f"field_{number}": tensor for number, tensor in enumerate(item)}


def _as_instance(feed: Any) -> Instance:
    return tuple(feed.values())
