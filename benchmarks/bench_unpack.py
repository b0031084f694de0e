"""What does it cost the host to have a batch of eight fields unpacked?

Method: four fields of bytes to scale, two to widen and two sparse ones to densify, small, so that
the host's time is what counts. On the host: one kernel call a field, as a user would write it,
against the table (`gpufeed.kernels.jobs`) and the one call that does what it says. On a GPU, the
host's time until everything is enqueued: a launch a field, one launch by numba's dispatcher, the
prepared launch that feeds use, the same kernel by CuPy's launcher, and the prepared launch as a
captured graph. The device catches up between rounds, and that is not timed; sums are compared
first. Then the GPU's own time for one launch and for a launch a field, of larger fields.

Not measured: the transfer (``transfer``), and collating what is sent (``collate``).

Command: ``python benchmarks unpack``

Last result (2 shared cores of an Intel Xeon, load 2 to 3, Python 3.11.7; no GPU): on the host 82
us a batch by a call a field, 56 by a table and one call, of which the table is 11. On a GPU it has
not been run. With numba-cuda's calls of the driver and of cuda.core left out, a launch takes 70 us
(``convert_values``) to 180 us (``densify_rows``) of the host's time, one of ``unpack_fields`` 60,
on arrays that were wrapped before 15, and a prepared one 0.3.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from devices import require_cupy, timed_by_events
from harness import Case, Timed

from gpufeed.kernels import convert_values, densify_rows, prepare_unpack, unpack_fields
from gpufeed.kernels.jobs import (
    FAULT_WORDS,
    convert_job,
    densify_job,
    table_shape,
    write_table,
)
from gpufeed.layout import Placed, lay_out

NUM_BATCHES = 100  # a round; a GPU's queue takes them all without making the host wait
FIELDS, ROWS, DIM, ENTRIES = 8, 64, 100, 4


class Batch:
    """Eight fields in one slab: bytes to float32, int32 to int64, and sparse rows."""

    def __init__(self, width: int, rows: int = ROWS) -> None:
        values = ((rows, width), np.dtype(np.uint8)), ((rows, width), np.dtype(np.float32))
        ids = ((rows, width), np.dtype(np.int32)), ((rows, width), np.dtype(np.int64))
        factor = ((1,), np.dtype(np.float32))
        csr = ((rows + 1,), np.dtype(np.int32)), ((rows * ENTRIES,), np.dtype(np.int32))
        dense = ((rows, DIM * width), np.dtype(np.float32))
        sections = [(table_shape(FIELDS), np.dtype(np.int64))]
        sections += [*values, factor, factor] * 4 + [*ids] * 2 + [*csr, dense] * 2
        (self.table, *placed), nbytes = lay_out(sections, 0)
        self.slab = np.zeros(nbytes, np.uint8)
        self.scaled = [placed[i : i + 4] for i in range(0, 16, 4)]
        self.widened = [placed[16:18], placed[18:20]]
        self.sparse = [placed[20:23], placed[23:26]]
        rng = np.random.default_rng(0)
        for source, _, scale, shift in self.scaled:
            self.view(source)[...] = rng.integers(0, 256, source[1])
            self.view(scale)[...], self.view(shift)[...] = 0.5, 1.0
        for source, _ in self.widened:
            self.view(source)[...] = rng.integers(0, 1000, source[1])
        for offsets, indices, _ in self.sparse:
            self.view(offsets)[...] = np.arange(rows + 1) * ENTRIES
            self.view(indices)[...] = rng.integers(0, DIM * width, indices[1])
        self.write_table()

    def view(self, placed: Placed) -> Any:
        """Return an array of the slab."""
        start, shape, dtype = placed
        return np.ndarray(shape, dtype, self.slab, start)

    def write_table(self) -> None:
        """Write what is to be done."""
        jobs = [
            convert_job(source, scale, shift, out, out[1][0] * out[1][1])
            for source, out, scale, shift in self.scaled
        ]
        jobs += [convert_job(source, None, None, out) for source, out in self.widened]
        jobs += [densify_job(offsets, indices, None, out) for offsets, indices, out in self.sparse]
        write_table(self.view(self.table), list(enumerate(jobs)))

    def by_field(self, view: Callable[[Placed], Any], stream: Any = None) -> None:
        """Do it one field after the other."""
        for source, out, _, _ in self.scaled:
            convert_values(view(source), 0.5, 1.0, view(out), stream=stream)
        for source, out in self.widened:
            convert_values(view(source), None, None, view(out), stream=stream)
        for offsets, indices, out in self.sparse:
            densify_rows(view(offsets), view(indices), None, view(out), stream=stream)

    def total(self, slab: Any) -> int:
        """Return a sum of what was made."""
        host = slab if isinstance(slab, np.ndarray) else slab.get()
        made = [field[1] for field in self.scaled + self.widened]
        made += [field[2] for field in self.sparse]
        return int(sum(np.ndarray(p[1], p[2], host, p[0]).sum(dtype=np.float64) for p in made))


def cases() -> Iterator[Case]:
    """Yield the comparisons: on the host, then on a GPU."""
    yield _host_case()
    cupy = require_cupy()
    yield _launch_case(cupy)
    yield _device_case(cupy)


def _host_case() -> Case:
    batch, fault = Batch(8), np.zeros(FAULT_WORDS, np.int64)
    unpack = prepare_unpack(batch.slab, fault)

    def by_field() -> Any:
        for _ in range(NUM_BATCHES):
            batch.by_field(batch.view)
        return batch.slab

    def by_table() -> Any:
        for _ in range(NUM_BATCHES):
            batch.write_table()
            unpack(False)
        return batch.slab

    def table_alone() -> Any:
        for _ in range(NUM_BATCHES):
            batch.write_table()
        return batch.slab

    return Case(
        name=f"host: {FIELDS} small fields",
        contestants={
            "a call a field": by_field,
            "a table, and one call": by_table,
            "the table alone": table_alone,
        },
        num_units=NUM_BATCHES,
        unit="batch",
        checksum=batch.total,
    )


def _launch_case(cupy: Any) -> Case:
    batch = Batch(8)
    slab, fault = cupy.asarray(batch.slab), cupy.zeros(FAULT_WORDS, cupy.int64)
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.synchronize()
    prepared = prepare_unpack(slab, fault, stream=stream)

    def view(placed: Placed) -> Any:
        start, shape, dtype = placed
        return cupy.ndarray(shape, dtype, slab.data + start)

    with stream:
        stream.begin_capture()
        prepared(False)
        graph = stream.end_capture()

    def timed(enqueue: Callable[[], object]) -> Callable[[], Timed]:
        def run() -> Timed:
            enqueue()
            stream.synchronize()
            begin = time.perf_counter()
            for _ in range(NUM_BATCHES):
                enqueue()
            us = (time.perf_counter() - begin) * 1e6
            stream.synchronize()
            return Timed(us, slab)

        return run

    works: dict[str, Callable[[], object]] = {
        "a prepared launch": lambda: prepared(False),
        "a launch by numba": lambda: unpack_fields(slab, fault, stream=stream),
        "a launch a field by numba": lambda: batch.by_field(view, stream),
        "a captured graph": lambda: graph.launch(stream),
    }
    try:
        works["a launch by CuPy"] = _by_cupy(cupy, slab, fault, stream)
    except cupy.cuda.driver.CUDADriverError as error:  # of a driver older than the compiler
        print(f"without a launch by CuPy, which cannot load the kernel: {error}")
    return Case(
        name=f"GPU: host time to enqueue {FIELDS} small fields",
        contestants={name: timed(work) for name, work in works.items()},
        num_units=NUM_BATCHES,
        unit="batch",
        checksum=batch.total,
        target="10 us a batch for the prepared launch",
    )


def _by_cupy(cupy: Any, slab: Any, fault: Any, stream: Any) -> Callable[[], object]:
    """Return the launch of the same kernel, as numba compiled it, by CuPy's launcher."""
    from numba import cuda, types

    from gpufeed.kernels.cuda_launch import flat_launch
    from gpufeed.kernels.cuda_unpack import _unpack

    signature = types.Array(types.uint8, 1, "C"), types.int64, types.Array(types.int64, 1, "C")
    ptx, _ = cuda.compile_ptx_for_current_device(_unpack.py_func, signature)
    module = cupy.cuda.function.Module()
    module.load(ptx.encode())
    kernel = module.get_function(re.search(r"\.entry (\w+)", ptx)[1])
    grid, block, _ = flat_launch(None)

    def words(array: Any) -> tuple[int, ...]:
        """Return an array as numba's kernels take it."""
        return (0, 0, array.size, array.itemsize, array.data.ptr, array.size, array.itemsize)

    arguments = (*words(slab), 0, *words(fault))
    return lambda: kernel((grid,), (block,), arguments, stream=stream)


def _device_case(cupy: Any) -> Case:
    batch = Batch(64, rows=2048)
    slab, fault = cupy.asarray(batch.slab), cupy.zeros(FAULT_WORDS, cupy.int64)
    stream = cupy.cuda.get_current_stream()
    other = cupy.zeros_like(slab)
    prepared = prepare_unpack(slab, fault, stream=stream)

    def view(placed: Placed) -> Any:
        start, shape, dtype = placed
        return cupy.ndarray(shape, dtype, slab.data + start)

    def memset() -> Any:
        other.data.memset_async(0, other.nbytes)
        return slab

    def fused() -> Any:
        prepared(False)
        return slab

    def by_field() -> Any:
        batch.by_field(view, stream)
        return slab

    fused()
    works = {"memset of the slab": memset, "one launch": fused, "a launch a field": by_field}
    return Case(
        name=f"GPU: its own time for {FIELDS} fields, {batch.slab.nbytes / 1e6:.0f} MB",
        contestants={name: timed_by_events(work) for name, work in works.items()},
        num_units=batch.slab.nbytes / 1e6,
        unit="MB",
        checksum=batch.total,
    )
