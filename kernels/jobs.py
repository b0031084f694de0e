"""Jobs: all that one batch needs done after its transfer, as one table that travels with it.

A slab begins with the table, int64, and every job names the arrays of the same slab that it reads
and writes by the byte at which they start. So one kernel whose arguments never change, the slab and
where faults are noted, does the work of a whole batch (`gpufeed.kernels.unpack_fields`):

    ┌────────┬───────┬───────┬───┬─────────────┬──────────────┬───┬──────────────┬───┐
    │ header │ job 0 │ job 1 │ … │ ids: values │ ids: offsets │ … │ ids, widened │ … │
    └────────┴───────┴───────┴───┴─────────────┴──────────────┴───┴──────────────┴───┘

Jobs are done in any order, so none may touch what another one writes. Those that overwrite what
others read are late: they come last in the table, and a second launch does them.

A fault is an index outside its row. It is noted in `FAULT_WORDS` words of int64, which the table is
not a part of, for the first batch that has one: 1 + the batch's number (0 says that there was
none), and of one such entry the field, the row, the index and the dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import pack_into
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.kernels.checks import VALUE_DTYPES

__all__ = [
    "FAULT_WORDS",
    "Job",
    "check_job",
    "convert_job",
    "densify_job",
    "do_jobs",
    "table_shape",
    "unpack_bits_job",
    "write_table",
]

Array = npt.NDArray[Any]
Job = tuple[int, ...]

NUM_WORDS = 16  # of a job, and of the header
NONE = -1  # stands for an array that is not there

# Words of the header. IS_NOTED is the device's own, and 0 when the table arrives.
NUM_JOBS, NUM_LATE, NUMBER, FIRST, IS_NOTED = range(5)
# Words of a job. SIZE counts the elements of OUT, or the rows of a sparse field.
KIND, SOURCE, SOURCE_TYPE, OUT, OUT_TYPE, SIZE = range(6)
SCALE, SHIFT, NUM_CHANNELS, NUM_INNER = range(6, 10)
OFFSETS, INDICES, INDEX_TYPE, DIM, OLD_OFFSETS, OLD_INDICES, OLD_TYPE = range(6, 13)
FIELD = 15
_REST = [(0,) * (NUM_WORDS - num) for num in range(NUM_WORDS + 1)]  # of a row so long already
# Words of a fault.
FAULT_BATCH, FAULT_FIELD, FAULT_ROW, FAULT_INDEX, FAULT_DIM = range(5)
FAULT_WORDS = 5

CONVERT, UNPACK_BITS, DENSIFY, CHECK = range(4)
BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8 = range(len(VALUE_DTYPES))
# By a type's number in NumPy, which is looked up sooner than a dtype; there are two for int64.
CODES = {np.dtype(name).num: VALUE_DTYPES.index(np.dtype(name)) for name in "?efdbhilqB"}

Placed = tuple[int, tuple[int, ...], np.dtype[Any]]  # the byte where an array starts, shape, dtype


def convert_job(
    values: Placed, scale: Placed | None, shift: Placed | None, out: Placed, num_inner: int = 0
) -> Job:
    """Return the job of `convert_values`; ``scale`` and ``shift`` both or neither.

    Args:
        values: What is cast.
        scale: A factor for each channel, as `convert_values` takes it with ``axis``.
        shift: A term for each.
        out: Of as many elements as ``values``.
        num_inner: Elements of one channel that stand side by side.
    """
    source, _, source_dtype = values
    target, shape, dtype = out
    factors: Job = (NONE, NONE, 0, 0)
    if scale is not None and shift is not None:
        factors = (scale[0], shift[0], scale[1][0], num_inner)
    size = math.prod(shape)
    return (CONVERT, source, CODES[source_dtype.num], target, CODES[dtype.num], size, *factors)


def unpack_bits_job(packed: Placed, out: Placed) -> Job:
    """Return the job of `unpack_bits`."""
    return (UNPACK_BITS, packed[0], UINT8, out[0], BOOL, math.prod(out[1]))


def densify_job(
    offsets: Placed,
    indices: Placed,
    values: Placed | None,
    out: Placed,
    previous: tuple[Placed, Placed] | None = None,
) -> Job:
    """Return the job of `densify_rows`; ``values`` are of the dtype of ``out``."""
    source = NONE if values is None else values[0]
    target, (rows, dim), dtype = out
    code = CODES[dtype.num]
    old: Job = (NONE, NONE, INT32)
    if previous is not None:
        old = (previous[0][0], previous[1][0], CODES[previous[1][2].num])
    csr = (offsets[0], indices[0], CODES[indices[2].num], dim)
    return (DENSIFY, source, code, target, code, rows, *csr, *old)


def check_job(offsets: Placed, indices: Placed, dim: int) -> Job:
    """Return the job that only looks whether indices are in ``[0, dim)``."""
    csr = (offsets[0], indices[0], CODES[indices[2].num], dim)
    return (CHECK, NONE, 0, NONE, 0, offsets[1][0] - 1, *csr)


def table_shape(num_jobs: int) -> tuple[int, int]:
    """Return the shape of a table, which is of int64."""
    return 1 + num_jobs, NUM_WORDS


def write_table(
    table: Array,
    jobs: Sequence[tuple[int, Job]],
    *,
    num_late: int = 0,
    number: int = 0,
    first: int = 0,
) -> None:
    """Write a batch's table.

    Args:
        table: Of `table_shape`.
        jobs: With the number of the field that each is for; the late ones at the end.
        num_late: How many of them are late.
        number: Of the batch; numbers rise from batch to batch.
        first: Number of the first batch whose faults count; what earlier ones noted is forgotten.
    """
    words = [len(jobs), num_late, number, first, *_REST[4]]
    for field, job in jobs:
        words += job
        words += _REST[len(job)]
        words[-1] = field
    pack_into(f"{len(words)}q", table.data, 0, *words)


def do_jobs(twin: ModuleType, slab: Array, fault: Array) -> None:
    """Do one job after the other by the host's twins of what they stand for."""
    num_jobs, _, number, first = _view(slab, 0, (4,), INT64).tolist()
    jobs = _view(slab, 8 * NUM_WORDS, (num_jobs, NUM_WORDS), INT64).tolist()
    for job in jobs:
        if job[KIND] == CONVERT:
            _convert(twin, slab, job)
        elif job[KIND] == UNPACK_BITS:
            packed = _view(slab, job[SOURCE], (-(-job[SIZE] // 8),), UINT8)
            twin.unpack_bits(packed, _view(slab, job[OUT], (job[SIZE],), BOOL))
        else:
            noted = _densify(twin, slab, job) if job[KIND] == DENSIFY else _check(slab, job)
            if noted is not None and fault[FAULT_BATCH] <= first:
                row, index = noted
                fault[:FAULT_WORDS] = 1 + number, job[FIELD], row, index, job[DIM]


def _convert(twin: ModuleType, slab: Array, job: Sequence[int]) -> None:
    values = _view(slab, job[SOURCE], (job[SIZE],), job[SOURCE_TYPE])
    out = _view(slab, job[OUT], (job[SIZE],), job[OUT_TYPE])
    if job[SCALE] == NONE:
        twin.convert_values(values, None, None, out)
        return
    wide = FLOAT64 if job[OUT_TYPE] == FLOAT64 else FLOAT32
    scale = _view(slab, job[SCALE], (job[NUM_CHANNELS],), wide)
    shift = _view(slab, job[SHIFT], (job[NUM_CHANNELS],), wide)
    twin.convert_values(values, scale, shift, out, num_inner=job[NUM_INNER])


def _densify(twin: ModuleType, slab: Array, job: Sequence[int]) -> tuple[int, int] | None:
    offsets, indices = _csr(slab, job, job[OFFSETS], job[INDICES], job[INDEX_TYPE])
    values = previous = None
    if job[SOURCE] != NONE:
        values = _view(slab, job[SOURCE], indices.shape, job[SOURCE_TYPE])
    if job[OLD_OFFSETS] != NONE:
        previous = _csr(slab, job, job[OLD_OFFSETS], job[OLD_INDICES], job[OLD_TYPE])
    out = _view(slab, job[OUT], (job[SIZE], job[DIM]), job[OUT_TYPE])
    noted = np.zeros(1, np.int64)
    twin.densify_rows(offsets, indices, values, out, previous=previous, fault=noted)
    return _entry(offsets, indices, int(noted[0]) - 1) if noted[0] else None


def _check(slab: Array, job: Sequence[int]) -> tuple[int, int] | None:
    offsets, indices = _csr(slab, job, job[OFFSETS], job[INDICES], job[INDEX_TYPE])
    if not indices.size or (indices.min() >= 0 and indices.max() < job[DIM]):
        return None
    outside = (indices < 0) | (indices >= job[DIM])
    return _entry(offsets, indices, int(np.argmax(outside)))


def _entry(offsets: Array, indices: Array, entry: int) -> tuple[int, int]:
    """Return an entry's row, and its index."""
    return int(np.searchsorted(offsets, entry, "right")) - 1, int(indices[entry])


def _csr(
    slab: Array, job: Sequence[int], offsets_at: int, indices_at: int, code: int
) -> tuple[Array, Array]:
    offsets = _view(slab, offsets_at, (job[SIZE] + 1,), code)
    return offsets, _view(slab, indices_at, (int(offsets[-1]),), code)


def _view(slab: Array, start: int, shape: tuple[int, ...], code: int) -> Array:
    return np.ndarray(shape, VALUE_DTYPES[code], slab, start)
