"""What does it cost to turn a list of samples into a feed, against copying the same values?

Method: one warm `DataFeeder` on the host, strict, its feeds dropped as in a training loop, against
the fastest plain NumPy way to lay the same values side by side: ``np.concatenate(rows, out=...)``
into a buffer that is there already, or ``np.fromiter`` over chained lists. A contestant feeds
`NUM_BATCHES` times a round, so that the clock's own cost does not count. Sums of all values are
compared first. Ragged batches are 256 rows of 1 to 199 int64 ids, dense ones 128 x 784 float32,
sparse ones 256 rows of 1 to 149 entries.

Not measured: conversion from other dtypes, feeds that are kept (which need fresh memory), and the
copy to a device.

Command: ``python benchmarks collate``

Last result: see README, "What it costs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from harness import Case

from gpufeed.feed import Feed
from gpufeed.feeder import DataFeeder
from gpufeed.variables import Program, data, program_guard

NUM_BATCHES = 50
DIM = 70_000

rng = np.random.default_rng(0)


def cases() -> Iterator[Case]:
    """Yield the comparisons, ragged first."""
    yield from _ragged_cases()
    yield _dense_case()
    yield _sparse_case()


def _ragged_cases() -> Iterator[Case]:
    ids: dict[str, Any] = {"name": "ids", "shape": [1], "dtype": "int64", "lod_level": 1}
    label: dict[str, Any] = {"name": "label", "shape": [1], "dtype": "int64"}
    rows = [rng.integers(0, 30_000, length) for length in rng.integers(1, 200, 256)]
    lists = [row.tolist() for row in rows]
    buffer = np.empty(sum(map(len, rows)), np.int64)
    floor = {"np.concatenate(out=)": lambda: np.concatenate(rows, out=buffer)}
    yield _case(
        "ragged rows, NumPy",
        {**floor, "feed": _feeding([(row,) for row in rows], ids)},
        target="at most 2.2 times the floor",
    )
    yield _case(
        "ragged rows, NumPy, with an integer label",
        {**floor, "feed": _feeding([(row, 1) for row in rows], ids, label)},
        target="at most 2.8 times the floor",
    )
    yield _case(
        "ragged rows, lists",
        {
            "np.fromiter(chain)": lambda: np.fromiter(chain.from_iterable(lists), np.int64),
            "feed": _feeding([(row,) for row in lists], ids),
        },
        target="at most 1.1 times the floor",
    )


def _dense_case() -> Case:
    rows = list(rng.random((128, 784), np.float32))
    buffer = np.empty(128 * 784, np.float32)
    return _case(
        "dense rows, 128 x 784 float32",
        {
            "np.concatenate(out=)": lambda: np.concatenate(rows, out=buffer),
            "feed": _feeding([(row,) for row in rows], {"name": "image", "shape": [784]}),
        },
        target="at most 2.2 times the floor",
    )


def _sparse_case() -> Case:
    lengths = rng.integers(1, 150, 256)
    pairs = [
        (rng.integers(0, DIM, length, np.int32), rng.random(length, np.float32))
        for length in lengths
    ]
    values = [row for _, row in pairs]
    indices = [row for row, _ in pairs]
    entries = [list(zip(i.tolist(), v.tolist(), strict=True)) for i, v in pairs]
    total = int(lengths.sum())
    buffers = np.empty(total, np.int32), np.empty(total, np.float32)
    tags: dict[str, Any] = {"name": "tags", "shape": [DIM], "layout": "sparse_float"}

    def concatenate_both() -> Any:
        np.concatenate(indices, out=buffers[0])
        return np.concatenate(values, out=buffers[1])

    return _case(
        "sparse rows, 256 of 1 to 149 entries",
        {
            "np.concatenate(out=) twice": concatenate_both,
            "feed, (indices, values) arrays": _feeding([(pair,) for pair in pairs], tags),
            "feed, lists of (index, value)": _feeding([(row,) for row in entries], tags),
        },
    )


def _case(name: str, contestants: dict[str, Callable[[], Any]], target: str = "") -> Case:
    return Case(
        name=name,
        contestants={label: _repeated(work) for label, work in contestants.items()},
        num_units=NUM_BATCHES,
        unit="batch",
        checksum=_sum_of_values,
        target=target,
    )


def _repeated(work: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        for _ in range(NUM_BATCHES - 1):
            work()
        return work()

    return run


def _feeding(batch: list[Any], *fields: dict[str, Any]) -> Callable[[], Feed]:
    with program_guard(Program()):
        feeder = DataFeeder([data(**field) for field in fields], "cpu")
    return lambda: feeder.feed(batch)


def _sum_of_values(result: Any) -> float:
    """Return the sum of an array, or of a feed's first field."""
    if isinstance(result, Feed):
        tensor: Any = next(iter(result.values()))
        result = tensor.values if hasattr(tensor, "values") else tensor.data
    return float(np.sum(result, dtype=np.float64))
