"""reference == cpu == cuda for whole tables of jobs, on random fields of every kind and dtype.

Where there is no GPU the CUDA twin runs in numba's simulator, with launches of a few threads.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from numba import cuda as numba_cuda

from gpufeed.kernels import cpu, cuda, cuda_launch, cuda_unpack, reference
from gpufeed.kernels.checks import VALUE_DTYPES
from gpufeed.kernels.jobs import (
    FAULT_WORDS,
    check_job,
    convert_job,
    densify_job,
    table_shape,
    unpack_bits_job,
    write_table,
)
from gpufeed.kernels.words import arithmetic_dtype

FEW = settings(max_examples=25, deadline=None)
MANY = settings(max_examples=60, deadline=None)
INDICES = st.sampled_from([np.dtype("int32"), np.dtype("int64")])


@pytest.fixture(scope="module", autouse=True)
def small_launches():
    with pytest.MonkeyPatch.context() as patch:
        if config.ENABLE_CUDASIM:
            patch.setattr(cuda_launch, "WARP", 4)
            patch.setattr(cuda_launch, "THREADS_PER_BLOCK", 8)
            patch.setattr(cuda_launch, "MIN_BLOCKS", 3)
            patch.setattr(cuda_unpack, "LARGEST_TILE_NBYTES", 64)
        yield


class Builder:
    """Fills a slab with arrays, behind the room for a table."""

    def __init__(self, num_jobs):
        self.arrays, self.jobs, self.end = [], [], 0
        self.table = self.add(np.zeros(table_shape(num_jobs), np.int64))

    def add(self, array):
        placed = (self.end, array.shape, array.dtype)
        self.arrays.append((placed, array))
        self.end += -(-array.nbytes // 8) * 8
        return placed

    def slab(self, num_late=0):
        slab = np.full(self.end, 0xCD, np.uint8)
        for (start, shape, dtype), array in self.arrays:
            np.ndarray(shape, dtype, slab, start)[...] = array
        start, shape, dtype = self.table
        write_table(np.ndarray(shape, dtype, slab, start), self.jobs, num_late=num_late, number=6)
        return slab


def add_conversion(draw, builder, rng):
    to = draw(st.sampled_from(VALUE_DTYPES))
    dtype = draw(st.sampled_from([d for d in VALUE_DTYPES if np.can_cast(d, to, "same_kind")]))
    channels, inner = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    size = draw(st.integers(0, 3)) * channels * inner
    values = builder.add(rng.integers(0, 2 if dtype.kind == "b" else 100, size).astype(dtype))
    factors = [None, None]
    if to.kind == "f" and draw(st.booleans()):
        factors = [
            builder.add(rng.integers(-4, 5, channels).astype(arithmetic_dtype(to)) / 2)
            for _ in range(2)
        ]
    return convert_job(values, *factors, builder.add(np.zeros(size, to)), inner)


def add_bits(draw, builder, rng):
    size = draw(st.integers(0, 20))
    packed = builder.add(rng.integers(0, 256, math.ceil(size / 8)).astype(np.uint8))
    return unpack_bits_job(packed, builder.add(np.zeros(size, bool)))


def add_csr(draw, builder, rng, dim, rows, *, outside=False):
    dtype = draw(INDICES)
    lengths = rng.integers(0, 5, rows)
    low, high = (-1, dim + 1) if outside else (0, dim)
    indices = rng.integers(low, high, lengths.sum()).astype(dtype)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(dtype)
    return builder.add(offsets), builder.add(indices)


def add_sparse(draw, builder, rng, *, outside=False):
    rows, dim = draw(st.integers(0, 6)), draw(st.integers(1, 70))
    offsets, indices = add_csr(draw, builder, rng, dim, rows, outside=outside)
    if draw(st.integers(0, 3)) == 0:
        return check_job(offsets, indices, dim)
    dtype = draw(st.sampled_from(VALUE_DTYPES))
    values, previous = None, None
    if draw(st.booleans()):
        values = builder.add(rng.integers(0, 3, indices[1]).astype(dtype))
    dense = np.full((rows, dim), 7).astype(dtype)
    if rows and draw(st.booleans()):
        previous = add_csr(draw, builder, rng, dim, rows)
        (old_offsets, old_indices) = (array for _, array in builder.arrays[-2:])
        dense[...] = 0
        dense[np.repeat(np.arange(rows), np.diff(old_offsets)), old_indices] = 1
    return densify_job(offsets, indices, values, builder.add(dense), previous)


@st.composite
def slabs(draw, *, outside=False):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_jobs = draw(st.integers(0, 5))
    builder = Builder(num_jobs)
    kinds = [add_conversion, add_bits, add_sparse]
    for field in range(num_jobs):
        options = (
            {"outside": outside} if (add := draw(st.sampled_from(kinds))) is add_sparse else {}
        )
        builder.jobs.append((field, add(draw, builder, rng, **options)))
    num_late = draw(st.integers(0, num_jobs))
    return builder.slab(num_late), bool(num_late)


def unpacked(twin, slab, has_late):
    """Return what a host twin makes of a slab, without the header, which is the device's."""
    slab, fault = slab.copy(), np.zeros(FAULT_WORDS, np.int64)
    twin.unpack_fields(slab, fault, has_late=has_late)
    return slab[128:].tobytes(), fault.tolist()


def unpacked_on_device(slab, has_late):
    there, fault = numba_cuda.to_device(slab), numba_cuda.to_device(np.zeros(FAULT_WORDS, np.int64))
    cuda.unpack_fields(there, fault, has_late=has_late)
    return there.copy_to_host()[128:].tobytes(), fault.copy_to_host().tolist()


@MANY
@given(slabs())
def test_reference_is_cpu(given):
    assert unpacked(reference, *given) == unpacked(cpu, *given)


@FEW
@given(slabs())
def test_reference_is_cuda(given):
    assert unpacked(reference, *given) == unpacked_on_device(*given)


def test_a_tile_clears_no_cell_of_another():
    """Whose block may have filled it already."""
    builder = Builder(1)
    csr = builder.add(np.array([0, 1], np.int32)), builder.add(np.array([5], np.int32))
    dense = builder.add(np.eye(1, 70, 5, np.float32))
    builder.jobs.append((0, densify_job(*csr, None, dense, csr)))
    expected = unpacked(reference, builder.slab(), has_late=False)
    assert unpacked_on_device(builder.slab(), has_late=False) == expected


def test_a_double_becomes_half_in_one_rounding():
    """By way of float32 these would be ties, and the third one infinite."""
    values = np.array([1 + 2**-11 + 2**-30, 2**-25 + 2**-60, 65520 - 2**-30])
    builder = Builder(1)
    source, target = builder.add(values), builder.add(np.zeros(3, np.float16))
    builder.jobs.append((0, convert_job(source, None, None, target)))
    content, _ = expected = unpacked(reference, builder.slab(), has_late=False)
    assert np.frombuffer(content[-8:-2], np.float16).tolist() == [1 + 2**-10, 2**-24, 65504]
    assert unpacked(cpu, builder.slab(), has_late=False) == expected
    assert unpacked_on_device(builder.slab(), has_late=False) == expected


@FEW
@given(slabs(outside=True))
def test_an_index_outside_its_row_is_noted_and_writes_nothing(given):
    expected, noted = unpacked(reference, *given)
    assert unpacked(cpu, *given) == (expected, noted)
    content, found = unpacked_on_device(*given)
    assert content == expected
    assert bool(found[0]) == bool(noted[0])
    if found[0]:
        batch, _, row, index, dim = found
        assert batch == 1 + 6
        assert row >= 0
        assert not 0 <= index < dim


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=str)
def test_duplicates_add_in_every_dtype(dtype):
    builder = Builder(1)
    offsets = builder.add(np.array([0, 4, 4, 9], np.int32))
    indices = builder.add(np.array([3, 3, 0, 3, 11, 2, 2, 11, 11], np.int32))
    values = builder.add(np.array([1, 1, 0, 1, 90, 1, 0, 90, 90]).astype(dtype))
    dense = builder.add(np.full((3, 12), 5).astype(dtype))
    builder.jobs.append((0, densify_job(offsets, indices, values, dense)))
    slab = builder.slab()
    expected = unpacked(reference, slab, False)
    assert unpacked(cpu, slab, False) == expected
    assert unpacked_on_device(slab, False) == expected


def test_half_precision_is_rounded_after_every_step():
    """float32 and float64 are not, where a device multiplies and adds in one."""
    half, builder, rng = np.dtype(np.float16), Builder(1), np.random.default_rng(3)
    values = builder.add(rng.random(60).astype(np.float32))
    scale, shift = (builder.add(rng.random(3).astype(np.float32)) for _ in range(2))
    out = builder.add(np.zeros(60, half))
    builder.jobs.append((0, convert_job(values, scale, shift, out, 4)))
    slab = builder.slab()
    expected = unpacked(reference, slab, False)
    assert unpacked(cpu, slab, False) == expected
    assert unpacked_on_device(slab, False) == expected
