"""Do stateful readers and recorded operators cost more a batch than the plain decorators?

Method: 8,192 samples in 8 files of a format that yields lists in memory, in shuffled batches of
128. The floor is ``creator.open``, ``shuffle``, ``batch`` and a `DataFeeder` on the host, written
by hand; the contestants are the same pipeline held open and asked ``has_next`` and ``read_next``,
and recorded and run by an `Executor`. A small sample is the hard case, as the face's own work is
the largest part of it. Checksums (number of samples, sum of the ids) are compared before anything
is timed.

- in order: files one after the other;
- tensors: records that are tensors already, whose batches are merged and not collated.

All of it happens in one thread, so that it can be timed batch by batch.

Not measured: real files, whose reading costs the same in all; ``open_files``, which puts a thread
between files and batches, as `gpufeed.reader.buffered` does.

Command: ``python benchmarks stateful --rounds 31``

Last result (virtual machine, 2 cores beside other work, Python 3.11.7), medians in processor time:
by hand 154 to 195, 196 to 283 and 572 to 605 us a batch; ``has_next`` and ``read_next`` 1.00 to
1.06, 1.02 to 1.05 and 1.02 to 1.03 times that, an `Executor` 0.98 to 1.09, 1.03 to 1.08 and 1.04
times. What differs is from process to process, by where its memory lies; over eight of them the
first case is 1.03 and 1.04. A loop of nothing but runs takes 1.2 us each: the rest is code that has
left the caches while a batch was made. Checking what tensors have been declared is part of the
third case only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from harness import Case

from gpufeed import creator, formats, layers
from gpufeed.errors import EOFException
from gpufeed.executor import Executor
from gpufeed.feeder import DataFeeder
from gpufeed.reader import batch, map_readers, shuffle
from gpufeed.stateful import BatchReader, FileReader, ReaderBase, ReaderHolder, ShuffleReader
from gpufeed.stateful.tensors import TensorFields
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard

BATCH_SIZE = 128
BUFFER_SIZE = 1024
NUM_FILES = 8
NUM_A_FILE = 1024

Declared = tuple[list[list[int]], list[int], list[str]]


def cases() -> Iterator[Case]:
    """Yield one case for each kind of sample."""
    rng = np.random.default_rng(0)
    yield _case(
        "in order: 20 word ids in a list, label",
        ([[1], [1]], [1, 0], ["int64", "int64"]),
        lambda number: (rng.integers(0, 10_000, 20).tolist(), number % 2),
        collated=True,
    )
    yield _case(
        "in order: 784 float32 in an array, label",
        ([[784], [1]], [0, 0], ["float32", "int64"]),
        lambda number: (np.full(784, number % 7, np.float32), number % 10),
        collated=True,
    )
    yield _case(
        "tensors: 20 word ids, label",
        ([[1], [1]], [1, 0], ["int64", "int64"]),
        lambda number: (
            LoDTensor(rng.integers(0, 10_000, (20, 1)), [[0, 20]]),
            LoDTensor(np.array([[number % 2]])),
        ),
        collated=False,
    )


def _case(name: str, declared: Declared, make: Callable[[int], Any], *, collated: bool) -> Case:
    samples = [[make(f * NUM_A_FILE + n) for n in range(NUM_A_FILE)] for f in range(NUM_FILES)]
    formats.register("memory", lambda source: iter(samples[int(Path(source.path).stem)]))
    folder = TemporaryDirectory()
    for number in range(NUM_FILES):
        Path(folder.name, f"{number}.mem").touch()
    spec = f"memory:{folder.name}/*.mem"

    batches = batch(shuffle(creator.open(spec), BUFFER_SIZE, seed=1), BATCH_SIZE)
    by_hand = map_readers(_feed(declared) if collated else _merge, batches)

    def held() -> ReaderHolder[Any]:
        return BatchReader(
            ShuffleReader(FileReader(spec, *declared), BUFFER_SIZE, seed=1), BATCH_SIZE
        )

    return Case(
        name=name,
        contestants={
            "by hand": partial(_sum, partial(by_hand.open, 0, 0)),
            "has_next, read_next": partial(_sum, partial(_ask, held(), folder)),
            "Executor.run": partial(_sum, partial(_run, *_record(held(), declared))),
        },
        num_units=NUM_FILES * NUM_A_FILE // BATCH_SIZE,
        unit="batch",
        checksum=tuple,
        target="at most 1.05 of the floor",
        is_stepped=True,
        clock=process_time,
    )


def _feed(declared: Declared) -> Callable[[list[Any]], Any]:
    with program_guard(Program()):
        variables = [
            data(f"x{number}", shape, dtype, lod_level)
            for number, (shape, lod_level, dtype) in enumerate(zip(*declared, strict=True))
        ]
        feeder = DataFeeder(variables, "cpu")
    return lambda batch: tuple(feeder.feed(batch).values())


def _merge(batch: list[Any]) -> Any:
    return tuple(LoDTensor.merge(parts) for parts in zip(*batch, strict=True))


def _ask(held: ReaderBase[Any], _files: object) -> Iterator[Any]:
    held.reinit()
    while held.has_next():
        yield held.read_next()


def _record(
    held: ReaderHolder[Any], declared: Declared
) -> tuple[Program, layers.ReaderVariable, list[Any]]:
    main = Program()
    reader = layers.ReaderVariable("held", TensorFields("held", *declared).variables, held)
    reader.make()
    with program_guard(main):
        variables = layers.read_file(reader)
    return main, reader, variables if isinstance(variables, list) else [variables]


def _run(main: Program, reader: layers.ReaderVariable, variables: list[Any]) -> Iterator[Any]:
    executor = Executor("cpu")
    reader.reset()
    try:
        while True:
            yield executor.run(main, fetch_list=variables, return_numpy=False)
    except EOFException:
        return


def _sum(instances: Callable[[], Iterator[Any]], tick: Callable[[], None]) -> tuple[int, float]:
    num_samples, total = 0, 0.0
    for first, label in instances():
        num_samples += len(label.data)
        total += float(first.data.sum())
        del first, label
        tick()
    return num_samples, total
