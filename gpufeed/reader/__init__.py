"""Reader decorators: functions that take readers and return a `Reader`.

A reader is a zero-argument callable that returns an iterable of samples. Every value is legal
data, None and arrays included. An exception in a reader or mapper arrives with its own type and
traceback after the samples before it, and no thread outlives the loop that needed it.
"""

from __future__ import annotations

from gpufeed.errors import ComposeNotAligned
from gpufeed.reader.aligned import combine, compose, map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.batch import batch
from gpufeed.reader.cache import Fake, cache
from gpufeed.reader.chaining import chain, repeat
from gpufeed.reader.decorators import (
    filter,  # noqa: A004 - the public name
    firstn,
    skip,
    take_while,
)
from gpufeed.reader.mixing import interleave, mix
from gpufeed.reader.parallel import buffered, xmap_readers
from gpufeed.reader.pipe import PipeReader
from gpufeed.reader.processes import isolate, multiprocess_reader
from gpufeed.reader.replay import replay
from gpufeed.reader.shard import shard
from gpufeed.reader.sharding import Shard
from gpufeed.reader.shuffle import shuffle
from gpufeed.reader.skipping import Skip

__all__ = [
    "ComposeNotAligned",
    "Fake",
    "PipeReader",
    "Reader",
    "Shard",
    "Skip",
    "batch",
    "buffered",
    "cache",
    "chain",
    "combine",
    "compose",
    "filter",
    "firstn",
    "interleave",
    "isolate",
    "map_readers",
    "mix",
    "multiprocess_reader",
    "repeat",
    "replay",
    "shard",
    "shuffle",
    "skip",
    "take_while",
    "xmap_readers",
]
