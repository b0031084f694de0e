"""What does double buffering cost a training loop, and what does it hide?

Method: (1) ``next()`` of a feed reader whose buffer is full: between two calls the loop's thread
sleeps, off the GIL, while the producer fills the buffer again; the median and the 99th percentile
of `NUM_STEPS` calls, on the host and on a device whose current stream is not the host (a virtual
one, where there is no GPU). (2) The host time to issue a batch of 64 small ragged fields that is
written already: one copy of a slab, against 64 copies of page-locked values and 64 of offsets; with
the 128 arrays and 64 tensors over them, and without. (3) The processor time that a batch costs the
loop's process, all threads together (a virtual device's copies too), where its lines of numbers are
parsed and collated by a thread there, and where ``isolate=True`` leaves that to another process. On
a GPU also: (4) a step whose kernel takes as long as its copy, against the copies alone; (5) a
ragged data set from end to end, against torch's DataLoader with pinned memory and a side stream,
and ``cupy.asarray`` field by field.

Not measured: reading, but in (3); batches are made before.

Command: ``python benchmarks prefetch``

Last result (virtual machine, 2 cores of an AMD EPYC shared with other work, load 2 to 4, Python
3.11.7; no GPU): ``next()`` on the host takes 18 to 36 us in the median and 170 to 250 at the 99th
percentile (both missed; 6.7 us where calls follow each other, and a ``next()`` of a list grows from
0.05 to 2 us by the sleep before it, too). Of 17 us after a sleep, with marks in the code, taking
back the last feed's slab takes 5, the channel 4, delivering 3, adding up times 3, and no lock is
waited for; called in a row, all of it takes less than half as long. On the virtual device it wakes
a thread and takes 60 to 70 us. Issuing 64 ragged fields takes 310 us, nearly all for tensors, and
905 us array by array (missed by the tensors; the copy alone takes 6 us against 535). Of the loop's
process, a batch of parsed lines takes 430 us with ``isolate=True`` and 2060 us with a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import median, quantiles
from typing import Any

import numpy as np
from harness import Case, Skip, Timed

from gpufeed.collate import BatchPlan
from gpufeed.device import num_cuda_devices, virtual_devices, virtual_stream
from gpufeed.device.staging import DeviceStaging
from gpufeed.feeder import DataFeeder
from gpufeed.places import CUDAPlace
from gpufeed.variables import Program, data, program_guard

NUM_STEPS = 200
PAUSE_S = 2e-3  # what a step computes; the producer needs a tenth of it
NUM_FIELDS = 64
NUM_ISSUES = 100
PLACE = CUDAPlace(0)

rng = np.random.default_rng(0)


def cases() -> Iterator[Case]:
    """Yield what any machine can do first."""
    yield _next_case("cpu", nullcontext)
    if num_cuda_devices():
        yield from _on_a_device(nullcontext)
        yield _overlap_case()
        yield _end_to_end_case()
    else:
        with virtual_devices(1):
            yield from _on_a_device(lambda: virtual_stream(PLACE))
        raise Skip("no CUDA device: the rest needs one, and what came before ran on a virtual one")


def _on_a_device(current: Callable[[], AbstractContextManager[object]]) -> Iterator[Case]:
    yield _next_case(PLACE, current)
    yield _issue_case()
    yield _isolate_case()


def _next_case(place: Any, current: Callable[[], AbstractContextManager[object]]) -> Case:
    feeder = _feeder(place, "ids")
    batches = [_ragged(8, 20) for _ in range(NUM_STEPS)]

    def calls_us(source: Iterable[Any]) -> list[float]:
        times = []
        with current():
            steps = iter(source)
            next(steps)
            for _ in range(NUM_STEPS - 1):
                time.sleep(PAUSE_S)
                begin = time.perf_counter()
                step = next(steps)
                times.append((time.perf_counter() - begin) * 1e6)
                del step
            for _ in steps:
                pass
        return times

    def measured(source: Callable[[], Iterable[Any]], pick: Callable[[list[float]], float]) -> Any:
        return lambda: Timed(pick(calls_us(source())), NUM_STEPS)

    def worst(times: list[float]) -> float:
        return quantiles(times, n=100)[-1]

    reader = feeder.decorate_reader(lambda: batches, prefetch=4)
    return Case(
        name=f"next() with a full buffer, place {place}",
        contestants={
            "next() of a list, median": measured(lambda: batches, median),
            "next() of a feed reader, median": measured(reader, median),
            "next() of a feed reader, p99": measured(reader, worst),
        },
        num_units=1,
        unit="step",
        checksum=lambda steps: steps,
        target="median at most 15 us, p99 at most 60 us",
    )


def _issue_case() -> Case:
    names = [f"field_{number}" for number in range(NUM_FIELDS)]
    feeder = _feeder(PLACE, *names)
    samples = [tuple(row for _ in names) for (row,) in _ragged(16, 20)]
    staging = DeviceStaging(PLACE)
    plan = feeder._plan(samples, PLACE)
    plan.write = lambda wire: None  # type: ignore[method-assign] # is there already
    arrays = [
        array
        for tensor in feeder.feed(samples).values()
        for array in (tensor.data, tensor.cu_seqlens())  # type: ignore[union-attr]
    ]
    issues = {
        "one slab, copy alone": _copying(staging, [plan.nbytes]),
        "one slab, with its tensors": lambda: _issue_slab(staging, plan),
        "a copy an array, copies alone": _copying(staging, [array.nbytes for array in arrays]),
        "a copy an array, with the arrays": _copying_into_arrays(staging, arrays),
    }

    def timed(issue: Callable[[], object]) -> Timed:
        begin = time.perf_counter()
        for _ in range(NUM_ISSUES):
            issue()
        us = (time.perf_counter() - begin) * 1e6
        staging.copy_stream.synchronize()
        return Timed(us, len(arrays))

    return Case(
        name=f"issuing {NUM_FIELDS} small ragged fields",
        contestants={name: partial(timed, issue) for name, issue in issues.items()},
        num_units=NUM_ISSUES,
        unit="batch",
        checksum=lambda num: num,
        target="a copy an array takes 10 times as long",
    )


def _issue_slab(staging: DeviceStaging, plan: BatchPlan) -> None:
    staging.recycle()
    staging.deliver(staging.stage(plan))


def _copying(staging: DeviceStaging, sizes: list[int]) -> Callable[[], object]:
    """Return what enqueues a copy from page-locked memory for each size, and one event."""
    backend, stream = staging.backend, staging.copy_stream
    pairs = [(backend.host_memory(size), backend.device_memory(size), size) for size in sizes]

    def issue() -> None:
        for source, target, size in pairs:
            backend.copy_to_device(source, target, size, stream)
        stream.record()

    return issue


def _copying_into_arrays(staging: DeviceStaging, like: list[Any]) -> Callable[[], object]:
    """Return what copies each array and makes it an array, as views of a slab are made."""
    backend, ring = staging.backend, staging.device_ring
    copy = _copying(staging, [array.nbytes for array in like])
    owners = [ring.lease(ring.acquire(array.nbytes)) for array in like]

    def issue() -> list[Any]:
        copy()
        return [
            backend.array(backend.view(owner._slab.memory, owner), 0, array.shape, array.dtype)
            for owner, array in zip(owners, like, strict=True)
        ]

    return issue


def _isolate_case() -> Case:
    line = " ".join(map(str, range(200)))

    def batches() -> Iterator[Any]:
        for _ in range(NUM_STEPS + NUM_STEPS // 10):
            yield [([int(word) for word in line.split()],) for _ in range(64)]

    def cpu_us(**options: Any) -> Timed:
        steps = _feeder(PLACE, "ids").decorate_reader(batches, **options)()
        for _ in range(NUM_STEPS // 10):  # until the process, if there is one, has started
            next(steps)
        begin = time.process_time()
        num = sum(len(feed["ids"]) for feed in steps)
        return Timed((time.process_time() - begin) * 1e6, num)

    return Case(
        name="64 lines of 200 numbers a batch, processor time of the loop's process",
        contestants={
            "isolate=True": lambda: cpu_us(isolate=True),
            "a thread": cpu_us,
        },
        num_units=NUM_STEPS,
        unit="batch",
        checksum=lambda num: num,
    )


def _overlap_case() -> Case:
    """Return steps of 32 MiB whose kernel spins for as long as the copy takes."""
    import cupy

    spin = cupy.RawKernel(
        r"""
        extern "C" __global__ void spin(long long ns) {
            long long begin, now;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
            do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - begin < ns);
        }
        """,
        "spin",
    )
    rows = [np.zeros(1 << 20, np.int64)] * 4
    feeder = _feeder(PLACE, "ids")
    reader = feeder.decorate_reader(lambda: [[(row,) for row in rows]] * 40, prefetch=2)
    host, device = cupy.cuda.alloc_pinned_memory(32 << 20), cupy.empty(32 << 20, cupy.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(3):
        begin.record(stream)
        device.data.copy_from_host_async(host.ptr, 32 << 20, stream)
        end.record(stream)
        end.synchronize()
    copy_ns = int(cupy.cuda.get_elapsed_time(begin, end) * 1e6)

    def copies() -> int:
        for _ in range(40):
            device.data.copy_from_host_async(host.ptr, 32 << 20, stream)
        stream.synchronize()
        return 40

    def compute() -> int:
        for _ in range(40):
            spin((1,), (1,), (np.int64(copy_ns),), stream=stream)
        stream.synchronize()
        return 40

    def both() -> int:
        steps = reader()
        for _ in steps:
            spin((1,), (1,), (np.int64(copy_ns),))
        cupy.cuda.get_current_stream().synchronize()
        return reader.state_dict()["delivered"]

    return Case(
        name="a step of 32 MiB whose kernel takes as long as its copy",
        contestants={"the copies": copies, "the kernels": compute, "a loop over feeds": both},
        num_units=40,
        unit="step",
        checksum=lambda num: num,
        target="at most 1.05 of the longer",
    )


def _end_to_end_case() -> Case:
    """Return a pass over 200 ragged batches whose values are added up on the GPU."""
    import cupy

    batches = [_ragged(256, 200) for _ in range(200)]
    feeder = _feeder(PLACE, "ids")
    reader = feeder.decorate_reader(lambda: batches, prefetch=2)

    def feeds() -> int:
        total = cupy.zeros((), cupy.int64)
        for feed in reader:
            total += feed["ids"].data.sum()
        return int(total)

    def field_by_field() -> int:
        total = cupy.zeros((), cupy.int64)
        for batch in batches:
            rows = [cupy.asarray(row) for (row,) in batch]
            total += cupy.concatenate(rows).sum()
        return int(total)

    contestants: dict[str, Callable[[], int]] = {
        "feeds": feeds,
        "cupy.asarray, row by row": field_by_field,
    }
    if (loader := _torch_loader(batches)) is not None:
        contestants["DataLoader, pinned, side stream"] = loader
    return Case(
        name="200 ragged batches, 256 rows of 1 to 199 ids",
        contestants=contestants,
        num_units=200,
        unit="batch",
        checksum=lambda total: total,
        target="DataLoader takes 2 times as long, cupy.asarray 5 times",
    )


def _torch_loader(batches: list[Any]) -> Callable[[], int] | None:
    """Return torch's usual way: collate, pin in a thread, copy on a side stream one batch ahead."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None

    def collate(batch: list[Any]) -> Any:
        lengths = torch.tensor([0, *(len(row) for (row,) in batch)])
        return torch.from_numpy(np.concatenate([row for (row,) in batch])), lengths.cumsum(0)

    def run() -> int:
        loader = torch.utils.data.DataLoader(
            batches, batch_size=None, collate_fn=collate, pin_memory=True
        )
        side, total = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device="cuda")
        ahead = None
        for batch in _with_end(loader):
            upcoming = None
            if batch is not None:
                with torch.cuda.stream(side):
                    upcoming = [part.to("cuda", non_blocking=True) for part in batch]
            if ahead is not None:
                torch.cuda.current_stream().wait_stream(side)
                for part in ahead:
                    part.record_stream(torch.cuda.current_stream())
                total += ahead[0].sum()
            ahead = upcoming
        return int(total)

    return run


def _with_end(loader: Iterable[Any]) -> Iterator[Any]:
    yield from loader
    yield None


def _feeder(place: Any, *names: str) -> DataFeeder:
    with program_guard(Program()):
        return DataFeeder([data(name, [1], "int64", lod_level=1) for name in names], place)


def _ragged(num_rows: int, longest: int) -> list[tuple[np.ndarray]]:
    lengths = rng.integers(1, longest, num_rows)
    return [(rng.integers(0, 30_000, length),) for length in lengths]
