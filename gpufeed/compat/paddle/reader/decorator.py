"""``paddle.reader.decorator``: the names that `gpufeed.reader` has for them, too."""

from __future__ import annotations

from typing import Any

from gpufeed.errors import ComposeNotAligned
from gpufeed.reader.aligned import compose, map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.cache import Fake, cache
from gpufeed.reader.chaining import chain
from gpufeed.reader.decorators import firstn
from gpufeed.reader.parallel import buffered, xmap_readers
from gpufeed.reader.pipe import PipeReader
from gpufeed.reader.processes import multiprocess_reader
from gpufeed.reader.shuffle import shuffle
from gpufeed.reader.stage import AnyReader

__all__ = [
    "ComposeNotAligned",
    "Fake",
    "PipeReader",
    "buffered",
    "cache",
    "chain",
    "combine",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]


def combine(*readers: AnyReader[Any]) -> Reader[tuple[Any, ...]]:
    """Join one sample of each reader into a tuple, until the shortest ends.

    >>> list(combine(lambda: [(1, 2), (3, 4)], lambda: iter(int, 1)))
    [(1, 2, 0), (3, 4, 0)]

    The name of ``compose`` in the oldest design, which knew no check of alignment: its example
    joins images of a data set with readers that never end.
    """
    return compose(*readers, check_alignment=False)
