"""Does a face of the ancestor interfaces cost more a batch than the plain decorators below it?

Method: 32,768 samples in 8 "files", each a generator over lists in memory, go through the face and
through the same decorators used by hand, into a `DataFeeder` on the host; every feed is dropped.
Small samples are the hard case: the face's own work is the same for each, whatever it holds.
Checksums (number of samples, sum of the ids) are compared before anything is timed.

- provider: ``@provider`` with a seed, a pool of 4,096 and batches of 128, against ``shuffle`` and
  ``batch`` of the same sizes over ``chain``; once all in one thread, once in order, and once with
  ``buffered`` and ``decorate_reader``, which load and feed ahead on threads of their own (and so
  are timed pass by pass, not batch by batch).
- train: `gpufeed.train` over the samples, without and with an ``event_handler``, against the loop
  over ``decorate_reader(batch(...))`` that it stands for; and `gpufeed.compat.fluid`'s feeder and
  `paddle.batch` in such a loop, against ``DataFeeder(strict=False)``. Stages run in the caller's
  thread (``prefetch=0``), every round makes its feeder, and each step adds up what it is fed.

Not measured: stateful readers and recorded operators, which have ``bench_stateful``; files, whose
reading costs the same in both, and ``check=True``.

Command: ``python benchmarks faces --rounds 31``

Last result (``results/cpu-2core-xeon.json``, virtual machine, 2 cores at rest, Python 3.11.7):
processor time over that of the decorators, by medians and by minima: ``provider`` in one thread
0.98 to 1.04 and 1.00 to 1.03, with threads 1.01 to 1.05 and 0.92 to 0.96 (pass by pass, a pass
varies by a fifth); ``train`` 1.01 and 1.02, with an event handler 1.08 and 1.05, for two events a
batch that the loop does not make; the compatible feeder 1.00 and 1.01. In order it is 1.06 for
lists of 20 numbers, 1.10 for dicts of them and 1.00 for images, by medians: rows are made one by
one there, as a sample that is there is not held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from harness import Case

from gpufeed.compat import fluid, paddle
from gpufeed.feeder import DataFeeder
from gpufeed.provider import (
    Provider,
    dense_vector,
    integer_value,
    integer_value_sequence,
    provider,
)
from gpufeed.reader import batch, buffered, chain, shuffle
from gpufeed.training import train
from gpufeed.variables import Program, Variable, data, program_guard

BATCH_SIZE = 128
POOL_SIZE = 4096
NUM_FILES = 8
NUM_A_FILE = 4096


def cases() -> Iterator[Case]:
    """Yield one case for each face and kind of sample."""
    rng = np.random.default_rng(0)
    sentences = {
        "words": integer_value_sequence(10_000),
        "label": integer_value(2),
    }
    images = {"pixel": dense_vector(784), "label": integer_value(10)}
    yield from _provider_cases(
        "20 word ids in a list, label",
        sentences,
        lambda number: (rng.integers(0, 10_000, 20).tolist(), number % 2),
    )
    yield from _provider_cases(
        "the same in a dict",
        sentences,
        lambda number: {"words": rng.integers(0, 10_000, 20).tolist(), "label": number % 2},
    )
    yield from _train_cases(
        "20 word ids in a list, label",
        lambda: [data("words", [1], "int64", 1), data("label", [1], "int64")],
        lambda number: (rng.integers(0, 10_000, 20).tolist(), number % 2),
    )
    yield from _provider_cases(
        "784 float32 in an array, label",
        images,
        lambda number: (np.full(784, number % 7, np.float32), number % 10),
    )


def _provider_cases(
    name: str, input_types: dict[str, Any], make: Callable[[int], Any]
) -> Iterator[Case]:
    files = {
        str(file): [make(file * NUM_A_FILE + number) for number in range(NUM_A_FILE)]
        for file in range(NUM_FILES)
    }

    def read(file: str) -> Iterator[Any]:
        yield from files[file]

    @provider(input_types=input_types, min_pool_size=POOL_SIZE)
    def process(settings: Any, file: str) -> Iterator[Any]:
        yield from files[file]

    face: Provider = process(list(files), is_train=True, seed=1)
    in_order: Provider = process(list(files), is_train=False)
    chained = chain(*(partial(read, file) for file in files))
    by_hand = batch(shuffle(chained, POOL_SIZE, seed=1), BATCH_SIZE)
    ahead = buffered(by_hand, POOL_SIZE // BATCH_SIZE)
    feeder = face.feeder("cpu", Program())
    shared: dict[str, Any] = {
        "num_units": NUM_FILES * NUM_A_FILE // BATCH_SIZE,
        "unit": "batch",
        "target": "at most 1.05 of the floor",
        "clock": process_time,
    }
    yield Case(
        name=f"provider, one thread: {name}",
        contestants={
            "shuffle + batch": partial(_feed, feeder, by_hand),
            "provider, prefetch=0": partial(_feed, feeder, face.batches(BATCH_SIZE, prefetch=0)),
        },
        checksum=_sum_of,
        is_stepped=True,
        **shared,
    )
    yield Case(
        name=f"provider, in order: {name}",
        contestants={
            "batch": partial(_feed, feeder, batch(chained, BATCH_SIZE)),
            "provider": partial(_feed, feeder, in_order.batches(BATCH_SIZE, prefetch=0)),
        },
        checksum=_sum_of,
        is_stepped=True,
        **shared,
    )
    yield Case(
        name=f"provider, loading and feeding ahead: {name}",
        contestants={
            "shuffle + batch + buffered": feeder.decorate_reader(ahead),
            "provider": feeder.decorate_reader(face.batches(BATCH_SIZE)),
        },
        checksum=_checksum,
        finish=_drain,
        **shared,
    )


@dataclass
class _Tally:
    """A step that adds up what it is fed, and says so."""

    tick: Callable[[], None]
    num_samples: int = 0
    total: float = 0.0

    def __call__(self, feed: Any) -> None:
        first, label = feed.values()
        self.num_samples += len(label.data)
        self.total += float(first.data.sum())
        self.tick()


def _train_cases(
    name: str, declare: Callable[[], list[Variable]], make: Callable[[int], Any]
) -> Iterator[Case]:
    samples = [make(number) for number in range(NUM_FILES * NUM_A_FILE)]
    program = Program()
    with program_guard(program):
        fields = declare()

    def read() -> Iterator[Any]:
        yield from samples

    def by_hand(
        feeder: Callable[[], DataFeeder], cut: Callable[..., Any], tick: Callable[[], None]
    ) -> _Tally:
        tally = _Tally(tick)
        for feed in feeder().decorate_reader(cut(read, BATCH_SIZE), prefetch=0)():
            tally(feed)
        return tally

    def trained(tick: Callable[[], None], **options: Any) -> _Tally:
        tally = _Tally(tick)
        mapping = {field.name: at for at, field in enumerate(fields)}
        train(
            *(read, mapping, BATCH_SIZE, 1),
            step=tally,
            feed_list=fields,
            places="cpu",
            program=program,
            prefetch=0,
            **options,
        )
        return tally

    shared: dict[str, Any] = {
        "num_units": len(samples) // BATCH_SIZE,
        "unit": "batch",
        "checksum": _sum_of,
        "target": "at most 1.05 of the floor",
        "is_stepped": True,
        "clock": process_time,
    }
    yield Case(
        name=f"train: {name}",
        contestants={
            "batch + decorate_reader": partial(
                by_hand, partial(DataFeeder, fields, "cpu", program), batch
            ),
            "train": trained,
            "train, event_handler": partial(trained, event_handler=lambda event: None),
        },
        **shared,
    )
    yield Case(
        name=f"compat: {name}",
        contestants={
            "DataFeeder(strict=False)": partial(
                by_hand, partial(DataFeeder, fields, "cpu", program, strict=False), batch
            ),
            "fluid.DataFeeder, paddle.batch": partial(
                by_hand, partial(fluid.DataFeeder, fields, fluid.CPUPlace(), program), paddle.batch
            ),
        },
        **shared,
    )


def _feed(feeder: DataFeeder, batches: Iterable[Any], tick: Callable[[], None]) -> _Tally:
    tally = _Tally(tick)
    for feed in map(feeder.feed, batches):
        tally(feed)
        del feed
    return tally


def _sum_of(tally: _Tally) -> tuple[int, float]:
    return tally.num_samples, tally.total


def _drain(feeds: Iterable[Any]) -> None:
    for feed in feeds:
        del feed


def _checksum(feeds: Iterable[Any]) -> tuple[int, float]:
    num_samples, total = 0, 0.0
    for feed in feeds:
        first, label = feed.values()
        num_samples += len(label.data)
        total += float(first.data.sum())
    return num_samples, total
