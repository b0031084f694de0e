"""Tests of gpufeed.kernels.unpack and its tables: order, numbers of batches, arguments."""

from __future__ import annotations

import numpy as np
import pytest

from gpufeed.kernels import prepare_unpack, unpack_fields
from gpufeed.kernels.jobs import (
    FAULT_WORDS,
    check_job,
    convert_job,
    table_shape,
    write_table,
)

BYTES, WORDS = np.dtype(np.uint8), np.dtype(np.int32)
SOURCE, TARGET, LEFT = (512, (3,), BYTES), (640, (3,), WORDS), (768, (3,), BYTES)
OFFSETS, INDICES = (512, (3,), WORDS), (640, (2,), WORDS)


def view(slab, placed):
    start, shape, dtype = placed
    return np.ndarray(shape, dtype, slab, start)


def make_slab(jobs, **options):
    slab = np.zeros(1024, np.uint8)
    table = view(slab, (0, table_shape(len(jobs)), np.dtype(np.int64)))
    write_table(table, list(enumerate(jobs)), **options)
    return slab


def make_fault():
    return np.zeros(FAULT_WORDS, np.int64)


def test_a_table_of_no_jobs_changes_nothing():
    slab = make_slab([])
    before = slab.copy()
    unpack_fields(slab, make_fault())
    assert slab.tolist() == before.tolist()


def test_what_overwrites_comes_last():
    late = convert_job((768, (3,), BYTES), None, None, SOURCE)
    slab = make_slab([convert_job(SOURCE, None, None, TARGET), late], num_late=1)
    view(slab, SOURCE)[...], view(slab, LEFT)[...] = (1, 2, 3), (7, 8, 9)
    unpack_fields(slab, make_fault(), has_late=True)
    assert view(slab, TARGET).tolist() == [1, 2, 3]
    assert view(slab, SOURCE).tolist() == [7, 8, 9]


def test_a_prepared_call_does_what_the_table_says_at_that_time():
    slab, fault = make_slab([convert_job(SOURCE, None, None, TARGET)]), make_fault()
    unpack = prepare_unpack(slab, fault)
    for values in ([1, 2, 3], [4, 5, 6]):
        view(slab, SOURCE)[...] = values
        unpack(False)
        assert view(slab, TARGET).tolist() == values
    write_table(view(slab, (0, table_shape(0), np.dtype(np.int64))), [])
    view(slab, SOURCE)[...] = 9
    unpack(False)
    assert view(slab, TARGET).tolist() == [4, 5, 6]


class TestFaults:
    def noted(self, fault, number, first, indices=(0, 5), dim=5):
        job = check_job(OFFSETS, INDICES, dim)
        slab = make_slab([job], number=number, first=first)
        view(slab, OFFSETS)[...], view(slab, INDICES)[...] = (0, 1, 2), indices
        unpack_fields(slab, fault)
        return fault.tolist()

    def test_are_noted_by_batch_field_row_index_and_dim(self):
        assert self.noted(make_fault(), 3, 0) == [4, 0, 1, 5, 5]
        assert self.noted(make_fault(), 3, 0, (-1, 4)) == [4, 0, 0, -1, 5]
        assert self.noted(make_fault(), 3, 0, (0, 4)) == [0] * FAULT_WORDS

    def test_the_first_of_those_that_count_stays(self):
        fault = make_fault()
        self.noted(fault, 3, 2)
        assert self.noted(fault, 4, 2, (9, 0))[:4] == [4, 0, 1, 5]
        assert self.noted(fault, 7, 4, (9, 0))[:4] == [8, 0, 0, 9]  # of a later pass


class TestArguments:
    def test_a_slab_is_bytes_in_words(self):
        with pytest.raises(TypeError, match=r"unpack_fields\.slab must have dtype uint8, got int8"):
            unpack_fields(np.zeros(1024, np.int8), make_fault())
        with pytest.raises(ValueError, match=r"slab must be a multiple of 8 bytes, got 1023"):
            unpack_fields(np.zeros(1023, np.uint8), make_fault())
        with pytest.raises(ValueError, match=r"prepare_unpack\.slab must have shape \(nbytes\)"):
            prepare_unpack(np.zeros((2, 8), np.uint8), make_fault())

    def test_a_fault_has_its_words(self):
        with pytest.raises(ValueError, match=r"fault must have shape \(5\), got \(1,\)"):
            unpack_fields(make_slab([]), np.zeros(1, np.int64))
        with pytest.raises(TypeError, match=r"fault must have dtype int64, got int32"):
            unpack_fields(make_slab([]), np.zeros(FAULT_WORDS, np.int32))

    def test_host_arrays_take_no_stream(self):
        with pytest.raises(ValueError, match="stream must be None for host arrays"):
            unpack_fields(make_slab([]), make_fault(), stream=object())
