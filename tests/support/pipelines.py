"""One of every stage, for tests that put stages on top of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from support.readers import counting

from gpufeed import reader as rd

Stage = Callable[[Any], Any]


class FailedError(Exception):
    """What a mapper raises about some samples."""


def tagged(sample: Any) -> tuple[str, Any]:
    return "mapped", sample


def drawn(sample: Any, rng: Any) -> tuple[int, Any]:
    return int(rng.integers(1000)), sample


def chosen(sample: Any) -> bool:
    """Two of three samples, whatever they are."""
    return crc32(repr(sample).encode()) % 3 != 0


def choosy(sample: Any) -> Any:
    if not chosen(sample):
        raise FailedError(sample)
    return sample


def size_of(sample: Any) -> int:
    return crc32(repr(sample).encode()) % 4 + 1


def size_of_batch(epoch: int, number: int) -> int:
    return (epoch + number) % 3 + 1


def other() -> Any:
    """A reader beside the one that is given."""
    return rd.map_readers(str, counting(4))


STAGES: dict[str, Stage] = {
    "map": lambda r: rd.map_readers(tagged, r),
    "map with rng": lambda r: rd.map_readers(drawn, r, rng=3),
    "map or skip": lambda r: rd.map_readers(choosy, r, on_error="skip"),
    "map two": lambda r: rd.map_readers(lambda a, b: (a, b), r, other()),
    "xmap": lambda r: rd.xmap_readers(tagged, r, 2, 3, order=True),
    "xmap with rng": lambda r: rd.xmap_readers(drawn, r, 2, 3, order=True, rng=True),
    "xmap or skip": lambda r: rd.xmap_readers(choosy, r, 2, 3, order=True, on_error=rd.Skip()),
    "buffered": lambda r: rd.buffered(r, 2),
    "shuffle": lambda r: rd.shuffle(r, 3, seed=5),
    "batch": lambda r: rd.batch(r, 2),
    "batch, drop last": lambda r: rd.batch(r, 3, drop_last=True),
    "batch by tokens": lambda r: rd.batch(r, max_tokens=5, length=size_of),
    "batch sorted": lambda r: rd.batch(r, 2, sort_window=4, length=size_of),
    "batch packed": lambda r: rd.batch(r, max_tokens=5, length=size_of, pack=True),
    "batch of changing size": lambda r: rd.batch(r, size_of_batch),
    "firstn": lambda r: rd.firstn(r, 5),
    "skip": lambda r: rd.skip(r, 2),
    "filter": lambda r: rd.filter(chosen, r),
    "take_while": lambda r: rd.take_while(chosen, r),
    "repeat": lambda r: rd.repeat(r, 2),
    "chain": lambda r: rd.chain(r, other(), r),
    "compose": lambda r: rd.compose(r, other(), check_alignment=False),
    "interleave": lambda r: rd.interleave(r, other(), r),
    "mix": lambda r: rd.mix([r, other()], [3, 1], seed=2),
    "shard": lambda r: rd.shard(r, 2, 1),
    "shard, equal": lambda r: rd.shard(r, 2, 0, equal=True),
    "cache": lambda r: rd.cache(r),
    "lazy cache": lambda r: rd.cache(r, lazy=True),
    "Fake": lambda r: rd.Fake()(rd.chain(r, other()), 3),
    "replay": lambda r: rd.replay(rd.chain(r, other()), 2, num_samples=5),
}
