from __future__ import annotations

import numpy as np
import pytest

from gpufeed.collate import BatchPlan
from gpufeed.device.host import ALIGNMENT
from gpufeed.errors import FieldError
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.variables import Program, data, program_guard

IDS = ([[7, 8], [], [9]], [[[1], []], [], [[2, 3]]])  # one and two levels
SPARSE = [[(3, 0.5), (1, 2.0)], [], [(0, 1.0)]]


@pytest.fixture
def variables():
    with program_guard(Program()):
        return [
            data("ids", [1], "int64", lod_level=1),
            data("words", [1], "int64", lod_level=2),
            data("image", [3], wire_dtype="uint8", scale=0.5),
            data("tags", [5], layout="sparse_float"),
            data("dense", [5], layout="sparse_float", densify=True),
        ]


@pytest.fixture
def columns():
    images = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    return [*IDS, images, SPARSE, SPARSE]


def sections(plan):
    """Return (start, shape, dtype) of the arrays of the wire prefix and of the unpacked region."""

    def note(start, shape, dtype):
        return start, tuple(shape), np.dtype(dtype)

    unpacked = [note(*field.placed) for _, field in plan._fields if field.placed]
    return plan.wire_arrays(note), unpacked


@pytest.mark.parametrize("place", [CPUPlace(), CUDAPlace(0)])
def test_sections_are_aligned_and_do_not_overlap(variables, columns, place):
    plan = BatchPlan(variables, columns, place, strict=True)
    wire, unpacked = sections(plan)
    end = 0
    for start, shape, dtype in wire + unpacked:
        assert start % ALIGNMENT == 0
        assert start >= end
        end = start + int(np.prod(shape)) * dtype.itemsize
    assert end <= plan.nbytes
    assert all(start < plan.wire_nbytes for start, _, _ in wire)
    assert all(start >= plan.wire_nbytes for start, _, _ in unpacked)
    assert [(shape, dtype) for _, shape, dtype in unpacked] == [((3, 3), "f4"), ((3, 5), "f4")]


def test_offsets_travel_to_devices_only_and_as_int32(variables, columns):
    on_host, _ = sections(BatchPlan(variables[:2], columns[:2], CPUPlace(), strict=True))
    assert [(shape, dtype) for _, shape, dtype in on_host] == [((3, 1), "i8"), ((3, 1), "i8")]
    on_device, _ = sections(BatchPlan(variables[:2], columns[:2], CUDAPlace(0), strict=True))
    assert [(shape, dtype) for _, shape, dtype in on_device] == [
        *(((3, 1), "i8"), ((4,), "i4")),
        *(((3, 1), "i8"), ((4,), "i4"), ((4,), "i4")),
    ]


def test_values_travel_in_their_wire_dtype_and_rows_compressed(variables, columns):
    wire, _ = sections(BatchPlan(variables[2:], columns[2:], CUDAPlace(0), strict=True))
    assert [(shape, dtype) for _, shape, dtype in wire] == [
        *(((3, 3), "u1"), ((1,), "f4"), ((1,), "f4")),  # with scale and shift
        *(((4,), "i4"), ((3,), "i4"), ((3,), "f4")),
        *(((4,), "i4"), ((3,), "i4"), ((3,), "f4")),
    ]


@pytest.mark.parametrize("strict", [True, False])
def test_an_empty_batch_has_a_plan(variables, strict):
    plan = BatchPlan(variables, [()] * 5, CUDAPlace(0), strict=strict)
    wire, unpacked = sections(plan)
    assert plan.num_samples == 0
    assert [shape for _, shape, _ in unpacked] == [(0, 3), (0, 5)]
    assert {shape[0] for _, shape, _ in wire} == {0, 1}


def test_a_column_that_cannot_be_sized_is_refused_before_anything_is_written(variables):
    with pytest.raises(FieldError, match="field 'words', sample 1: expected sequences nested 2"):
        BatchPlan(variables[:2], [[[1], [2]], [[[1]], [2]]], CPUPlace(), strict=True)
