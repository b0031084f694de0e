"""Collation elsewhere without the other process: what it would send, through the same frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from gpufeed.collate import BatchPlan, CollatedBatch
from gpufeed.device.sources import PageLocks
from gpufeed.feeder import DataFeeder
from gpufeed.isolation import _Collated, _Collating
from gpufeed.workers.frames import Kind, encode, read_entries

__all__ = ["carried", "collated"]


def carried(value: object) -> Any:
    """Return a value as it arrives: written into a frame, and read from there."""
    encoded = encode(value)
    frame = memoryview(bytearray(encoded.nbytes))
    encoded.write(frame, 0, 0, Kind.VALUE)
    (entry,) = read_entries(frame, 1, lambda begin, end: frame[begin:end])
    if entry.kind != Kind.VALUE:
        raise entry.value
    return entry.value


def collated(
    feeder: DataFeeder,
    batches: Iterable[Any],
    places: Sequence[Any] | None = None,
    locks: Callable[[], PageLocks] = PageLocks,
) -> Iterator[CollatedBatch]:
    """Yield batches as a feeder's parent process gets them."""
    plan = partial(BatchPlan, feeder._variables, strict=feeder._strict)
    where = places or feeder.places
    blocks = _Collating(lambda: batches, plan, feeder._fields, where).open(0, 0)
    yield from _Collated(lambda: map(carried, blocks), plan, where, locks)
