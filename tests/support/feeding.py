"""Feeding under test: batches whose every value is known, and consumers as late as CUDA kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpufeed.device.virtual import VirtualStream
from gpufeed.feed import Feed
from gpufeed.feeder import DataFeeder
from gpufeed.prefetch import FeedReader
from gpufeed.variables import Program, data, program_guard

__all__ = [
    "LateReader",
    "assert_holds",
    "batch",
    "held",
    "make_all_slabs",
    "make_feeder",
    "make_reader",
    "num_device_slabs",
    "raw",
]

Sample = tuple[np.ndarray, int]


def make_feeder(place: Any) -> DataFeeder:
    """Return a feeder of one ragged and one plain field."""
    with program_guard(Program()):
        fields = [data("ids", [1], "int64", lod_level=1), data("label", [1], "int64")]
        return DataFeeder(fields, place)


def batch(number: int, size: int = 4, longest: int = 11) -> list[Sample]:
    """Return a ragged mini-batch, empty sequences included; no two numbers share a value."""
    lengths = [(7 * number + 3 * i) % (longest + 1) for i in range(size)]
    return [
        (np.arange(length) + 1_000_000 * number + 1000 * i, number)
        for i, length in enumerate(lengths)
    ]


def make_reader(num: int, make: Callable[[int], Any] = batch) -> Callable[[], Iterator[Any]]:
    """Return a reader of mini-batches 0 to ``num - 1``."""
    return lambda: (make(number) for number in range(num))


def _columns(samples: Iterable[Sample]) -> tuple[np.ndarray, np.ndarray]:
    ids = [row for row, _ in samples]
    flat = np.concatenate([np.empty(0, np.int64), *ids])
    return flat[:, None], np.array([label for _, label in samples], np.int64)[:, None]


def assert_holds(feed: Feed, samples: list[Sample]) -> None:
    """Check, on the host and now, that a feed holds just these samples."""
    ids, labels = _columns(samples)
    np.testing.assert_array_equal(feed["ids"].data, ids)
    np.testing.assert_array_equal(feed["label"].data, labels)
    assert feed["ids"].recursive_sequence_lengths() == [[len(row) for row, _ in samples]]


def num_device_slabs(reader: FeedReader) -> list[int]:
    """Return how many slabs each place of a feed reader has made, page-locked ones left out."""
    return [staging.rings[0].num_made for staging in reader._pool._all]


def make_all_slabs(reader: FeedReader, prefetch: int, nbytes: int) -> None:
    """Make all the slabs that a pass may need, so that none has to be made during it."""
    stagings = reader._pool.borrow(reader._places, prefetch)
    for ring in [ring for staging in stagings for ring in staging.rings]:
        for slab in [ring.acquire(nbytes) for _ in range(prefetch + 2)]:
            ring.release(slab, *slab.busy)
    reader._pool.give_back(stagings, prefetch)


def raw(array: np.ndarray) -> np.ndarray:
    """Return the memory under ``array`` as a kernel sees it: without the lease that protects it."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    memory = root.base._slab.memory
    return np.ndarray(array.shape, array.dtype, memory, array.ctypes.data - memory.ctypes.data)


class LateReader:
    """Enqueues reads of raw memory on a stream, as kernel launches are, and checks them at the end.

    It keeps nothing of the feed alive.
    """

    def __init__(self, stream: VirtualStream) -> None:
        self.stream = stream
        self._reads: list[tuple[int, np.ndarray, np.ndarray]] = []

    def read(self, feed: Feed, samples: list[Sample], number: int = 0) -> None:
        ids, labels = _columns(samples)
        lengths = [len(row) for row, _ in samples]
        wanted = [ids, labels, np.cumsum([0, *lengths])]
        arrays = [feed["ids"].data, feed["label"].data, feed["ids"].cu_seqlens()]
        for array, expected in zip(arrays, wanted, strict=True):
            self._enqueue(number, raw(array), expected)

    def _enqueue(self, number: int, memory: np.ndarray, expected: np.ndarray) -> None:
        reads = self._reads
        self.stream.call(lambda: reads.append((number, memory.copy(), expected)))

    def check(self) -> int:
        """Wait for the stream, compare all that it read, and return how many arrays that was."""
        self.stream.synchronize()
        for number, got, expected in self._reads:
            np.testing.assert_array_equal(got, expected, err_msg=f"feed {number}")
        return len(self._reads)


@contextmanager
def held(*streams: VirtualStream) -> Iterator[None]:
    """Hold all work that is enqueued on ``streams`` inside, as a long kernel would."""
    latch = threading.Event()
    for stream in streams:
        stream.call(latch.wait)
    try:
        yield
    finally:
        latch.set()
