"""What does it cost to make dense rows of sparse ones, against zeroing the dense rows alone?

Method: ``densify_rows`` into an output that is used again, with other entries each time (four CSR
batches in turn, made before), against the memset ``out.fill(0)`` of that output, SciPy's
``toarray`` (new memory, and into the given), PyTorch's and TensorFlow's ``to_dense``, and NumPy's
fill and fancy assignment. Of each contestant `NUM_REPEATS` calls are timed at once, on an output of
its own, so that all find the caches as they left them themselves. "by what was written" is
dirty-slot reuse (``previous=``). First the sums of all outputs, weighted by column and by row, are
compared with those of the entries. Every value is 1, as in binary rows. Shapes are (rows, dim,
entries a row), float32, int32 indices without duplicates; then time against density, rows and dim.
"in threads" is with ``NUMBA_NUM_THREADS`` set, where the output is large enough to be shared out.

Then the same on a GPU, by events: the memset, CuPy's ``toarray``, PyTorch's ``to_dense``.

Not measured: reading the output afterwards, duplicates, other dtypes, and the copy to a device.

Command: ``python benchmarks densify --json out.json && python benchmarks/plots.py out.json plots``

Last result (``results/cpu-2core-xeon.json``, a virtual machine, 2 cores that share one core's
bandwidth, at rest): of the memset's time fresh rows took 1.35, 0.42 and 0.40 at the shapes with a
target, and 0.90, 0.12 and 0.21 by what was written; two threads 0.33 and 0.28 from 39 MiB up.
SciPy's ``toarray`` took 1.07 to 1.24 times as long as gpufeed at 16 MiB, where the fastest memset
alone takes two thirds of SciPy's time, and 2.5 and 2.4 times at 39 and 64 MiB (into the given
output 2.1 and 2.7). TensorFlow, in a run before, took 2.5 to 3.1 times as long.

At 4 MiB some 20 us are checks of arguments and 20 more the rest of the Python, whose code a memset
of that size leaves in no near cache: the compiled loops alone took 0.8 to 0.95 of it, and 0.5 by
what was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
from devices import require_cupy, timed_by_events
from harness import Case, repeated
from numba import config

from gpufeed.kernels import densify_rows
from gpufeed.kernels.cpu_launch import PART_NBYTES

NUM_BATCHES = 4
NUM_REPEATS = 8
SHAPES = {
    (1024, 1000, 20): "at most 1.1 times the memset; by what was written at most 0.5",
    (1024, 10_000, 50): "at most 0.7 times the memset; by what was written at most 0.125",
    (4096, 4096, 40): "at most 0.95 times the memset; by what was written at most 0.5",
}
DENSITIES = [(1024, 4096, entries) for entries in (4, 41, 410)]
ROWS = [(rows, 4096, 40) for rows in (64, 256)]
DIMS = [(1024, dim, 40) for dim in (256, 65_536)]
GPU_SHAPES = [(4096, 4096, 40), (16_384, 10_000, 50)]

Csr = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
rng = np.random.default_rng(0)


def cases() -> Iterator[Case]:
    """Yield the comparisons: on the host, then on a GPU."""
    for shape, target in SHAPES.items():
        yield _host_case(shape, target)
    for shape in DENSITIES + ROWS + DIMS:
        yield _host_case(shape)
    cupy = require_cupy()
    for shape in GPU_SHAPES:
        yield _device_case(shape, cupy)


def _batches(rows: int, dim: int, entries: int) -> list[Csr]:
    offsets = np.arange(rows + 1, dtype=np.int32) * entries
    step = dim // entries  # one column out of each step, so that no two are equal
    made = []
    for _ in range(NUM_BATCHES):
        indices = rng.integers(0, step, (rows, entries)) + step * np.arange(entries)
        values = np.ones(rows * entries, np.float32)
        made.append((offsets, indices.ravel().astype(np.int32), values))
    return made


def _sums(result: Any) -> tuple[float, ...]:
    """Return the sum of dense rows, by column number and by row number; or that of CSR rows."""
    if isinstance(result, tuple):
        offsets, indices = result
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return float(len(indices)), float(indices.sum(dtype=np.int64)), float(rows.sum())
    dense = np.asarray(result)
    columns, rows = (dense.sum(axis, dtype=np.float64) for axis in (0, 1))
    by_column, by_row = columns @ np.arange(columns.size), rows @ np.arange(rows.size)
    return float(rows.sum()), float(by_column), float(by_row)


def _host_case(shape: tuple[int, int, int], target: str = "") -> Case:
    rows, dim, entries = shape
    batches = _batches(*shape)
    return Case(
        name=f"{rows} x {dim}, {entries} a row ({rows * dim * 4 / 2**20:.1f} MiB)",
        contestants={
            "out.fill(0)": _repeated(_Memset(shape, batches)),
            "gpufeed": _repeated(_Densify(shape, batches)),
            "gpufeed, assume_unique": _repeated(_Densify(shape, batches, assume_unique=True)),
            "gpufeed, binary": _repeated(_Densify(shape, batches, binary=True)),
            "gpufeed, by what was written": _repeated(_Again(shape, batches)),
            "NumPy fill, out[rows, indices]": _repeated(_NumPy(shape, batches)),
            **_threaded_contestants(shape, batches),
            **_scipy_contestants(shape, batches),
            **_torch_contestants(shape, batches),
            **_tensorflow_contestants(shape, batches),
        },
        num_units=NUM_REPEATS,
        unit="batch",
        checksum=_sums,
        target=target,
    )


class _Work:
    """One contestant on the host, with an output and a turn of its own."""

    def __init__(self, shape: tuple[int, int, int], batches: list[Csr], **options: Any) -> None:
        self.out = np.ones(shape[:2], np.float32)
        self.batches = cycle(batches)
        self.options = options

    def __call__(self) -> Any:
        raise NotImplementedError


class _Memset(_Work):
    """The floor: it makes nothing, and returns what should have been made."""

    def __call__(self) -> Any:
        self.out.fill(0)
        return next(self.batches)[:2]


class _Densify(_Work):
    def __call__(self) -> Any:
        offsets, indices, values = next(self.batches)
        given = None if self.options.get("binary") else values
        unique = bool(self.options.get("assume_unique"))
        densify_rows(offsets, indices, given, self.out, assume_unique=unique)
        return self.out


class _Again(_Work):
    previous: Any = None

    def __call__(self) -> Any:
        offsets, indices, values = next(self.batches)
        densify_rows(offsets, indices, values, self.out, previous=self.previous)
        self.previous = offsets, indices
        return self.out


class _Threaded(_Densify):
    def __call__(self) -> Any:
        os.environ["NUMBA_NUM_THREADS"] = str(config.NUMBA_NUM_THREADS)
        try:
            return super().__call__()
        finally:
            del os.environ["NUMBA_NUM_THREADS"]


class _NumPy(_Work):
    def __call__(self) -> Any:
        offsets, indices, values = next(self.batches)
        self.out.fill(0)
        self.out[np.repeat(np.arange(len(self.out)), np.diff(offsets)), indices] = values
        return self.out


def _threaded_contestants(shape: tuple[int, int, int], batches: list[Csr]) -> dict[str, Any]:
    is_shared_out = 4 * shape[0] * shape[1] >= 2 * PART_NBYTES and config.NUMBA_NUM_THREADS > 1
    if not is_shared_out or "NUMBA_NUM_THREADS" in os.environ:
        return {}
    threaded = _repeated(_Threaded(shape, batches))
    return {f"gpufeed, in {config.NUMBA_NUM_THREADS} threads": threaded}


def _scipy_contestants(shape: tuple[int, int, int], batches: list[Csr]) -> dict[str, Any]:
    try:
        from scipy.sparse import csr_array
    except ImportError:
        return {}
    matrices = [csr_array((v, i, o), shape=shape[:2]) for o, i, v in batches]
    fresh, given = cycle(matrices), cycle(matrices)
    out = np.ones(shape[:2], np.float32)

    def into() -> Any:
        return next(given).toarray(out=out)

    return {
        "SciPy toarray": _repeated(lambda: next(fresh).toarray()),
        "SciPy toarray(out=)": _repeated(into),
    }


def _torch_contestants(shape: tuple[int, int, int], batches: list[Csr]) -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {}
    torch.sparse.check_sparse_tensor_invariants.disable()  # said, or it warns
    tensors = cycle(
        [
            torch.sparse_coo_tensor(
                np.stack([np.repeat(np.arange(shape[0]), np.diff(o)), i]),
                torch.from_numpy(v),
                shape[:2],
                is_coalesced=True,
            )
            for o, i, v in batches
        ]
    )
    return {"PyTorch COO to_dense": _repeated(lambda: next(tensors).to_dense())}


def _tensorflow_contestants(shape: tuple[int, int, int], batches: list[Csr]) -> dict[str, Any]:
    try:
        import tensorflow as tf
    except ImportError:
        return {}
    tensors = cycle(
        [
            tf.sparse.SparseTensor(
                np.stack([np.repeat(np.arange(shape[0]), np.diff(o)), i], axis=1), v, shape[:2]
            )
            for o, i, v in batches
        ]
    )
    return {"TensorFlow to_dense": _repeated(lambda: tf.sparse.to_dense(next(tensors)))}


def _repeated(work: Callable[[], Any]) -> Callable[[], Any]:
    return repeated(work, NUM_REPEATS)


def _device_case(shape: tuple[int, int, int], cupy: Any) -> Case:
    from cupyx.scipy.sparse import csr_matrix

    rows, dim, entries = shape
    batches = [tuple(map(cupy.asarray, batch)) for batch in _batches(*shape)]
    offsets, indices, values = batches[0]
    matrix = csr_matrix((values, indices, offsets), shape=shape[:2])
    out = cupy.ones(shape[:2], cupy.float32)
    stream = cupy.cuda.get_current_stream()

    def memset() -> Any:
        out.data.memset_async(0, out.nbytes)
        return tuple(map(cupy.asnumpy, batches[0][:2]))

    def densify(**options: Any) -> Any:
        offsets, indices, values = batches[0]
        densify_rows(offsets, indices, values, out, stream=stream, **options)
        return out

    return Case(
        name=f"GPU: {rows} x {dim}, {entries} a row ({rows * dim * 4 / 2**20:.0f} MiB)",
        contestants={
            "memset": timed_by_events(memset),
            "gpufeed": timed_by_events(densify),
            "gpufeed, assume_unique": timed_by_events(lambda: densify(assume_unique=True)),
            "gpufeed, by what was written": timed_by_events(
                lambda: densify(previous=batches[0][:2])
            ),
            "CuPy toarray": timed_by_events(matrix.toarray),
            **_torch_on_device(batches[0], shape),
        },
        num_units=1,
        unit="batch",
        checksum=lambda result: _sums(result if isinstance(result, tuple) else _on_host(result)),
        target="85% of the memset's rate; CuPy at least 3 times slower",
    )


def _on_host(dense: Any) -> Any:
    return dense.cpu().numpy() if hasattr(dense, "cpu") else dense.get()


def _torch_on_device(batch: Any, shape: tuple[int, int, int]) -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    parts = [torch.from_dlpack(part) for part in batch]
    tensor = torch.sparse_csr_tensor(*parts, shape[:2])
    return {"PyTorch CSR to_dense": timed_by_events(tensor.to_dense)}
