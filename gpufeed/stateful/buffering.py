"""Items on their way: read by a thread, and sent to a place, before they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

from gpufeed.device.threads import run_ahead
from gpufeed.places import Place
from gpufeed.reader.base import AnyReader, Reader, reading
from gpufeed.stateful.base import OneToOne
from gpufeed.tensor import LoDTensor

__all__ = ["SentAhead"]

T = TypeVar("T")


class SentAhead(OneToOne[T]):
    """The items of a reader, up to ``depth`` of them ahead, their tensors on ``place``.

    Args:
        reader: Called and iterated on the thread.
        place: Where tensors go; None leaves them where they are. May be set until a pass begins.
        depth: Most items read and not yet taken.
    """

    def __init__(self, reader: AnyReader[T], place: Place | None, depth: int) -> None:
        super().__init__("double_buffer", reader, depth=depth)
        self.place = place
        self._reader = reader
        self._depth = depth

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Start the thread with the first item taken."""
        source = partial(_sent, self._reader, epoch, skip, self.place)
        return run_ahead("double-buffer", source, self._depth)

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        """Read and send all, and pass on these."""
        return Reader.open_every(self, epoch, skip, step)


def _sent(reader: AnyReader[Any], epoch: int, skip: int, place: Place | None) -> Iterator[Any]:
    """Yield the items with their tensors on ``place``; runs on the thread."""
    with reading(reader, epoch, skip) as source:
        for item in source:
            yield item if place is None else _to(place, item)
            del item  # while the next one is read, this one is the consumer's alone


def _to(place: Place, item: Any) -> Any:
    if isinstance(item, LoDTensor):
        return item.to(place)
    if isinstance(item, (tuple, list)):
        return type(item)(each.to(place) if isinstance(each, LoDTensor) else each for each in item)
    return item
