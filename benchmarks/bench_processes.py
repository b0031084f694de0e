"""What does it cost to have samples made in other processes?

Method: every contestant of a case is started before it is timed, and then asked for so many more
samples of an endless pass. (1) One process yields the same array of 1 MiB again and again, through
`isolate` and through `multiprocessing.Queue`; the floor copies it in this process. (2) A mapper
that holds the GIL runs in two processes; the floor is two bare processes that run the same function
and send nothing. (3) A mapper makes an array of 256 KiB, against torch's DataLoader with as many
workers. (4) From calling a reader to its first sample, in its first pass and in a later one, for
which its process has waited; the floor starts a Python that does nothing and ends. (5) The same,
and then leaving the loop while the process is inside code that never returns; the column "- floor"
is the time until it is gone. (1) to (3) are told in processor time of all processes too, which says
more than wall time where other programs want the same cores.

Not measured: more workers than cores, samples of many small objects, and the copy to a GPU after.

Command: ``python benchmarks processes``

Last result (virtual machine, 2 cores at rest, Python 3.11.7): first sample after 41 ms from
`isolate`, 42 ms from one process of `xmap_readers`, 43 ms from two, and 96 ms where the process
imports NumPy to make an array, but 2.3 ms in a later pass; a Python that does nothing took 35 ms.
Leaving takes 156 ms, of which 100 are the grace that a worker has to end by itself. A batch of
1 MiB takes 109 us, 3.1 times a copy (missed) and 22 times less than `multiprocessing.Queue`; in
processor time it is 102 us, of both processes, to 35 of the copy. A mapper that holds the GIL takes
1.24 times the two bare processes with 64 samples ahead and 1.16 to 1.2 with 256, so 0.9 of the
floor is missed. Arrays of 256 KiB take 52 us, torch's DataLoader 17 times as long.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from harness import Case, Timed

from gpufeed.reader import isolate, xmap_readers

drain: Callable[[Iterable[Any]], object] = partial(deque, maxlen=0)
NUM_PROCESSES = 2
BUFFER_SIZE = 64
BATCH_NBYTES = 1 << 20
ARRAY_NBYTES = 1 << 18


def cases() -> Iterator[Case]:
    """Yield the comparisons; what a case needs runs while it is measured."""
    yield _start_case()
    yield _leave_case()
    for case in (_transport_case, _busy_case, _array_case):
        with ExitStack() as stack:
            made = case(stack)
            yield made
            if Path("/proc/self/task").exists():
                yield _in_processor_time(made)


def _in_processor_time(case: Case) -> Case:
    return replace(
        case,
        name=f"{case.name}: processor time",
        contestants={
            name: partial(_processor_time, contestant)
            for name, contestant in case.contestants.items()
        },
        checksum=lambda result: result,
        finish=None,
        target="",
    )


def _processor_time(contestant: Callable[[], Iterable[Any]]) -> Timed:
    before = _processor_us()
    drain(contestant())
    return Timed(_processor_us() - before, None)


def _processor_us() -> float:
    """Return the processor time that this process and its children have had so far."""
    children = Path("/proc/self/task").glob("*/children")
    pids = [os.getpid(), *(int(pid) for file in children for pid in file.read_text().split())]
    # The number of a process's clock: the system's MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED).
    return sum(time.clock_gettime_ns(~pid << 3 | 2) for pid in pids) / 1e3


def _start_case() -> Case:
    def first(reader: Callable[[], Any]) -> Timed:
        begin = time.perf_counter()
        with closing(reader()) as samples:
            sample = next(samples)
            timed = Timed((time.perf_counter() - begin) * 1e6, sample)
            drain(samples)  # or no process would wait for the next pass
            return timed

    waiting = isolate(lambda: [np.zeros(9)])
    drain(waiting())
    return Case(
        name="first sample of a worker process",
        contestants={
            "python -c pass (floor)": lambda: subprocess.run([sys.executable, "-c", "0"]) and 0,
            "isolate": lambda: first(isolate(partial(range, 1))),
            "xmap_readers, one process": lambda: first(_mapped(abs, 1, partial(range, 1))),
            "xmap_readers, two processes": lambda: first(_mapped(abs, 2, partial(range, 2))),
            "isolate, an array": lambda: first(isolate(lambda: [np.zeros(9)])),
            "isolate, an array, a later pass": lambda: first(waiting),
        },
        num_units=1,
        unit="start",
        checksum=lambda sample: float(np.sum(sample)),
        target="at most 150,000 us",
    )


def _leave_case() -> Case:
    def hangs_after_one() -> Iterator[int]:
        yield 0
        threading.Event().wait()

    def take_one_and_leave(reader: Callable[[], Iterator[int]]) -> int:
        with closing(isolate(reader)()) as samples:
            return next(samples)

    return Case(
        name="leaving a loop",
        contestants={
            "one that has ended (floor)": partial(take_one_and_leave, partial(range, 1)),
            "one that never returns": partial(take_one_and_leave, hangs_after_one),
        },
        num_units=1,
        unit="pass",
        checksum=lambda sample: sample,
        target="at most 200,000 us over the floor",
    )


def _transport_case(stack: ExitStack) -> Case:
    batch = np.arange(BATCH_NBYTES // 4, dtype=np.float32)
    place = np.empty_like(batch)

    def copied() -> Iterator[np.ndarray]:
        for _ in range(num):
            np.copyto(place, batch)
            yield place

    num = 500
    isolated = stack.enter_context(closing(isolate(partial(itertools.repeat, batch))()))
    queued = stack.enter_context(_queued(batch))
    return Case(
        name="batches of one 1 MiB array from one process",
        contestants={
            "memcpy in this process (floor)": copied,
            "isolate": lambda: islice(isolated, num),
            "multiprocessing.Queue": lambda: islice(queued, num),
        },
        num_units=num,
        unit="batch",
        checksum=lambda batches: sum(float(array[-1]) for array in batches),
        finish=drain,
        target="isolate: 2 times the floor, and 20 times faster than multiprocessing.Queue",
    )


@contextmanager
def _queued(batch: np.ndarray) -> Iterator[Iterator[np.ndarray]]:
    """What one would write by hand."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue(8)

    def fill() -> None:
        while True:
            queue.put(batch)

    process = context.Process(target=fill, daemon=True)
    process.start()
    yield map(queue.get, itertools.repeat(True))
    process.kill()
    process.join()
    queue.close()


def _busy(number: int) -> int:
    """About 150 us of Python."""
    total = number
    for digit in range(3000):
        total ^= digit * number
    return total & 0xFF


def _busy_case(stack: ExitStack) -> Case:
    num = 10_000
    bare = [stack.enter_context(_bare_process(num // NUM_PROCESSES)) for _ in range(NUM_PROCESSES)]
    mapped = {
        f"xmap_readers, {'in order' if order else 'as done'}, {size} ahead": stack.enter_context(
            closing(_mapped(_busy, NUM_PROCESSES, itertools.count, order, size)())
        )
        for order in (True, False)
        for size in (BUFFER_SIZE, 4 * BUFFER_SIZE)
    }

    def run_bare() -> Iterator[int]:
        for pipe in bare:
            pipe.send(None)
        yield from (pipe.recv() for pipe in bare)

    return Case(
        name="a mapper of 150 us that holds the GIL, in two processes",
        contestants={
            "two bare processes (floor)": run_bare,
            **{name: partial(islice, samples, num) for name, samples in mapped.items()},
        },
        num_units=num,
        unit="sample",
        checksum=lambda results: len(list(results)) and None,
        finish=drain,
        target="at most 1.11 times the floor",
    )


@contextmanager
def _bare_process(num: int) -> Iterator[Any]:
    """Yield a pipe to a process that, whenever told, runs the mapper so many times."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def work() -> None:
        while True:
            theirs.recv()
            theirs.send(sum(map(_busy, range(num))))

    process = context.Process(target=work, daemon=True)
    process.start()
    yield ours
    process.kill()
    process.join()


def _array(number: int) -> np.ndarray:
    return np.full(ARRAY_NBYTES // 4, number, np.float32)


def _array_case(stack: ExitStack) -> Case:
    num = 4_000
    arrays = stack.enter_context(closing(_mapped(_array, NUM_PROCESSES, itertools.count)()))
    contestants = {"xmap_readers (floor)": partial(islice, arrays, num)}
    try:
        import torch
    except ImportError:
        print("  without torch, which is not installed")
    else:
        contestants["torch DataLoader"] = partial(islice, _torch_loader(torch), num)
    return Case(
        name="a mapper that makes 256 KiB, in two processes",
        contestants=contestants,
        num_units=num,
        unit="sample",
        checksum=lambda samples: sum(sample.nbytes for sample in samples),
        finish=drain,
        target="torch at least 3 times the floor",
    )


def _torch_loader(torch: Any) -> Iterator[Any]:
    class Arrays(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, number: int) -> Any:
            return torch.from_numpy(_array(number))

    loader = torch.utils.data.DataLoader(Arrays(), batch_size=None, num_workers=NUM_PROCESSES)
    return iter(loader)


def _mapped(
    mapper: Callable[[Any], Any],
    num_processes: int,
    source: Callable[[], Iterable[Any]],
    order: bool = True,
    buffer_size: int = BUFFER_SIZE,
) -> Any:
    return xmap_readers(mapper, source, num_processes, buffer_size, order, processes=True)
