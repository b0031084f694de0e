"""``fluid.io``: loaders, and the reader decorators, where releases from 1.6 on had them."""

from __future__ import annotations

from gpufeed.compat.paddle.fluid.reader import DataLoader, PyReader
from gpufeed.compat.paddle.reader import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from gpufeed.reader.batch import batch

__all__ = [
    "ComposeNotAligned",
    "DataLoader",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]
