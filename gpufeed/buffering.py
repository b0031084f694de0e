"""`double_buffer`: feeds that are on the host already, sent to a device ahead of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.collate import BatchPlan
from gpufeed.columnar import Column
from gpufeed.device import backend_for
from gpufeed.device.pool import StagingPool
from gpufeed.errors import FieldError
from gpufeed.feed_options import FeedOptions
from gpufeed.kernels.checks import VALUE_DTYPES
from gpufeed.places import CUDAPlace, Place, PlaceLike, as_place
from gpufeed.prefetch import FeedReader
from gpufeed.reader.stage import identity_of
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable
from gpufeed.whole import WHOLE

__all__ = ["double_buffer"]


def double_buffer(
    reader: Callable[[], Iterable[Mapping[str, Column]]], place: PlaceLike, depth: int = 2
) -> FeedReader:
    """Copy the feeds of a reader to ``place``, up to ``depth`` steps ahead, on a thread.

    >>> import numpy as np
    >>> feeds = lambda: ({"x": np.full((2, 3), step, np.float32)} for step in range(3))
    >>> [float(feed["x"].data.sum()) for feed in double_buffer(feeds, "cpu")]
    [0.0, 6.0, 12.0]

    Each feed is copied once into page-locked memory and crosses in one transfer; sparse rows stay
    compressed. What arrives is the consumer's as long as it is kept.

    Args:
        reader: Of mappings from field name to `LoDTensor`, `SparseRows` or array, on the host:
            what a `DataFeeder` for the host, or a reader of `ColumnarBatch.columns`, yields.
        place: Where the feeds go; on the host only reading ahead is left.
        depth: Steps read and sent ahead; 0 does everything in the caller's thread.

    Raises:
        FieldError: ``depth`` is not a whole number >= 0; when iterated: a step is no such mapping.
        PlaceError: The place is not there; when iterated: a tensor is not on the host.

    Source: ``fluid.layers.double_buffer`` and ``DoubleBufferReader`` of PaddlePaddle.
    """
    where = as_place(place)
    if isinstance(where, CUDAPlace):
        backend_for(where)  # says at once if it is not there
    depth = whole_number("double_buffer.depth", depth, minimum=0)
    return _DoubleBuffer(reader, where, depth)


class _DoubleBuffer(FeedReader):
    def __init__(
        self, reader: Callable[[], Iterable[Mapping[str, Column]]], place: Place, depth: int
    ) -> None:
        options = FeedOptions(prefetch=depth, streams=[None], stage="double_buffer")
        super().__init__(reader, _plan, [place], None, StagingPool(), options)

    def identity(self) -> str:
        """It changes where feeds are, not which."""
        return identity_of(self._reader)


def _plan(feed: Any, place: Place) -> BatchPlan:
    if not isinstance(feed, Mapping) or not feed:
        raise FieldError(
            "double_buffer.reader must yield mappings from field name to tensor, "
            f"got {type(feed).__name__} {feed!r:.40}"
        )
    variables = [_declared(name, column) for name, column in feed.items()]
    return BatchPlan(variables, list(feed.values()), place, strict=True)


def _declared(name: str, column: Any) -> Variable:
    """Return the variable that takes ``column`` as it is."""
    is_whole = isinstance(column, WHOLE) and getattr(column, "ndim", 1) > 0
    if not is_whole or column.dtype not in VALUE_DTYPES:
        raise FieldError(
            f"double_buffer: field {name!r} must be a LoDTensor, SparseRows or an array of numbers "
            f"with a first axis, got {type(column).__name__} {getattr(column, 'dtype', '')}"
        )
    if isinstance(column, SparseRows):
        return Variable(
            name,
            (-1, column.dim),
            column.dtype,
            column.lod_level,
            "sparse_binary" if column.values is None else "sparse_float",
        )
    lod_level = column.lod_level if isinstance(column, LoDTensor) else 0
    return Variable(name, (-1, *column.shape[1:]), column.dtype, lod_level)
