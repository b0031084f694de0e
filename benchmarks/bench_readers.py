"""What do reader decorators cost a sample, on top of the source they read?

Method: a generator of 200,000 to 1,000,000 small tuples is the floor; each contestant is the same
generator behind one decorator (or ``shuffle`` and ``batch``), drained into nothing. The columns
"- floor" are the decorator's own cost. Sums of the samples are compared before anything is timed.
Ordered ``xmap_readers`` is measured against unordered, with a mapper that does next to nothing
(the worst case for the hand-over) and with one that releases the GIL. Skipping is what resuming a
pipeline costs over a source that cannot seek; the floor drains the generator by itself.

Not measured: how well a stage overlaps with training (the source here does no waiting), samples
large enough for memory to matter, and more than 2 mapping threads.

Command: ``python benchmarks readers``

Last result (virtual machine, 2 cores of an AMD EPYC, Python 3.11.7, four runs beside other work),
microseconds a sample over the floor: shuffle + batch 0.09 to 0.10, 0.10 to 0.12 and 0.40 to 0.56
with buffers of 1,000, 10,000 and 1,000,000; buffered 0.21 to 0.45 with a size of 1,000 and 0.44 to
1.3 with 100, where nearly all of it is waking the other thread once a buffer (the low figures are
both threads on one core); ordered xmap_readers 0.98 to 1.08 times unordered. Skipping
takes 1.00 times as long as draining by hand, through six stages 1.05; rng=True costs 0.53 us a
sample, a new generator for each 9.3 (twice these beside much other work).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
from harness import Case

from gpufeed.reader import (
    Reader,
    batch,
    buffered,
    firstn,
    map_readers,
    shard,
    shuffle,
    xmap_readers,
)

Sample = tuple[int, float]

drain: Callable[[Iterable[Any]], object] = partial(deque, maxlen=0)


def cases() -> Iterator[Case]:
    """Yield the comparisons, cheapest stages first."""
    yield from _shuffle_cases(num=1_000_000)
    yield from _buffered_cases(num=200_000)
    yield from _xmap_cases(num=50_000)
    yield _skip_case(num=1_000_000)
    yield _rng_case(num=100_000)


def _shuffle_cases(num: int) -> Iterator[Case]:
    samples = [(number, float(number)) for number in range(num)]
    for buf_size, target in ((1_000, 0.15), (10_000, 0.15), (1_000_000, 0.6)):
        yield Case(
            name=f"shuffle({buf_size}) + batch(128)",
            contestants={
                "list, no decorator (floor)": lambda: iter(samples),
                "batch": batch(lambda: samples, 128),
                "shuffle + batch": batch(shuffle(lambda: samples, buf_size, seed=1), 128),
            },
            num_units=num,
            unit="sample",
            checksum=_sum_of_numbers,
            finish=drain,
            target=f"at most {target} us over the floor",
        )


def _buffered_cases(num: int) -> Iterator[Case]:
    def source() -> Iterator[Sample]:
        for number in range(num):
            yield number, 0.5

    for size, target in ((100, 0.8), (1_000, 0.3)):
        yield Case(
            name=f"buffered({size})",
            contestants={
                "generator (floor)": source,
                "buffered": buffered(source, size),
                "thread and queue.Queue": partial(_through_queue, source, size),
            },
            num_units=num,
            unit="sample",
            checksum=_sum_of_numbers,
            finish=drain,
            target=f"at most {target} us over the floor",
        )


def _through_queue(source: Callable[[], Iterator[Any]], size: int) -> Iterator[Any]:
    """What one would write by hand; it hangs if the source fails or the loop is left."""
    queue: Queue[Any] = Queue(size)
    end = object()

    def fill() -> None:
        for sample in source():
            queue.put(sample)
        queue.put(end)

    Thread(target=fill, daemon=True).start()
    yield from iter(queue.get, end)


def _xmap_cases(num: int) -> Iterator[Case]:
    block = bytes(64 * 1024)

    def identity(number: int) -> int:
        return number

    def digest(number: int) -> int:
        return hashlib.sha256(block).digest()[0] + number  # hashing releases the GIL

    for mapper, num_samples in ((identity, num), (digest, num // 10)):
        source = partial(range, num_samples)
        yield Case(
            name=f"xmap_readers({mapper.__name__}), 2 threads, buffer 100",
            contestants={
                "unordered (floor)": xmap_readers(mapper, source, 2, 100),
                "ordered": xmap_readers(mapper, source, 2, 100, order=True),
                "map_readers, no threads": map_readers(mapper, source),
            },
            num_units=num_samples,
            unit="sample",
            checksum=sum,
            finish=drain,
            target="ordered within 1.2 of unordered",
        )


def _skip_case(num: int) -> Case:
    def source() -> Iterator[Sample]:
        for number in range(num + 1_000):
            yield number, 0.5

    def bare() -> Iterator[Sample]:
        samples = source()
        drain(islice(samples, num))
        return samples

    def pipeline() -> Reader[list[Sample]]:
        mapped = map_readers(lambda sample: sample, buffered(source, 100))
        return batch(shuffle(shard(mapped, 1, 0), 1_000, seed=1), 100)

    return Case(
        name=f"skip({num}) over a generator",
        contestants={
            "the generator, drained bare (floor)": bare,
            "one stage": lambda: firstn(source, None).open(0, num),
            "buffered, mapped, sharded, shuffled, batched": lambda: pipeline().open(0, num // 100),
        },
        num_units=num,
        unit="sample",
        checksum=_sum_of_numbers,
        finish=drain,
        target="no slower than the floor",
    )


def _rng_case(num: int) -> Case:
    def plain(sample: int) -> float:
        return sample * 0.0

    def reseated(sample: int, rng: np.random.Generator) -> float:
        return sample * 0.0

    def made(sample: int) -> float:
        np.random.Generator(np.random.Philox(key=[1, 2], counter=[0, sample, 0, 0]))
        return sample * 0.0

    return Case(
        name="map_readers, with a generator for each sample",
        contestants={
            "none (floor)": map_readers(plain, partial(range, num)),
            "rng=True": map_readers(reseated, partial(range, num), rng=True),
            "a new one each": map_readers(made, partial(range, num)),
        },
        num_units=num,
        unit="sample",
        checksum=sum,
        finish=drain,
        target="rng=True at most 0.8 us over the floor",
    )


def _sum_of_numbers(result: Iterable[Any]) -> int:
    """The sum of the samples' numbers, whether they come one by one or in batches."""
    batches = (part if isinstance(part, list) else [part] for part in result)
    return sum(number for samples in batches for number, _ in samples)
