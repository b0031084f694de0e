"""The dispatcher: what it refuses, where it sends arrays, what it does without a cache."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpufeed import kernels
from gpufeed.kernels import cpu, cpu_densify, cpu_launch, cuda, cuda_launch, reference

OFFSETS = np.array([0, 2, 2, 3])
INDICES = np.array([3, 0, 3])


def zeros(shape, dtype="float32"):
    return np.zeros(shape, dtype)


def test_densify_overwrites_what_was_there():
    out = np.full((3, 4), 7, "float32")
    kernels.densify_rows(OFFSETS, INDICES, np.array([1.5, 2.0, 3.0]), out)
    assert out.tolist() == [[2.0, 0, 0, 1.5], [0, 0, 0, 0], [0, 0, 0, 3.0]]


def test_duplicates_add_with_values_and_change_nothing_without():
    offsets, indices = np.array([0, 3]), np.array([1, 1, 1])
    out = zeros((1, 2), "float16")
    kernels.densify_rows(offsets, indices, np.array([1.0, 2.0, 4.0]), out)
    assert out.tolist() == [[0.0, 7.0]]
    kernels.densify_rows(offsets, indices, None, out)
    assert out.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("shape", [(3, 7), (40, 1000), (5000, 1001), (9, 1_000_000)])
def test_densify_is_the_same_in_one_sweep_and_in_many(shape):
    # 84 bytes, many sweeps, and beyond STREAM_NBYTES with short rows and long ones.
    rng = np.random.default_rng(0)
    rows, dim = shape
    offsets = np.arange(rows + 1) * 5
    indices, values = rng.integers(0, dim, rows * 5), rng.random(rows * 5)
    got, expected = np.full(shape, 7, "float32"), np.full(shape, 8, "float32")
    kernels.densify_rows(offsets, indices, values, got)
    reference.densify_rows(offsets, indices, values, expected)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("at", range(0, 64, 4))
def test_densify_past_the_cache_starts_anywhere_in_a_line(at, monkeypatch):
    monkeypatch.setattr(cpu_densify, "STREAM_NBYTES", 0)
    around = np.full(1000, 7, "float32")
    start = (at - around.ctypes.data) % 64 // 4
    out = around[start : start + 300].reshape(3, 100)
    kernels.densify_rows(OFFSETS, INDICES, np.array([1.5, 2.0, 3.0]), out)
    assert (out[0, 3], out[0, 0], out[2, 3], out.sum()) == (1.5, 2.0, 3.0, 6.5)
    assert (around[:start] == 7).all()
    assert (around[start + 300 :] == 7).all()


def test_densify_past_the_cache_takes_unaligned_outputs(monkeypatch):
    monkeypatch.setattr(cpu_densify, "STREAM_NBYTES", 0)
    out = np.full(4 * 12 + 1, 7, "uint8")[1:].view("float32").reshape(3, 4)
    kernels.densify_rows(OFFSETS, INDICES, None, out)
    assert out.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(("dim", "left_alone"), [(400, 7), (4, 0)])
def test_densify_again_clears_what_it_wrote_if_that_is_little(dim, left_alone):
    out = zeros((3, dim))
    kernels.densify_rows(OFFSETS, INDICES, None, out)
    out[1, 1] = 7  # written by somebody else, against the rule
    offsets, indices = np.array([0, 0, 1, 1]), np.array([2])
    kernels.densify_rows(offsets, indices, None, out, previous=(OFFSETS, INDICES))
    assert out[:, :4].tolist() == [[0, 0, 0, 0], [0, left_alone, 1, 0], [0, 0, 0, 0]]
    assert not out[:, 4:].any()


def test_rows_are_read_in_a_dtype_that_holds_the_number_of_every_entry():
    few, many = np.array([0, 2]), np.array([0, 2**31])  # of as many there is no room for here
    narrow, wide = np.zeros(2, np.int32), np.zeros(2, np.int64)
    for csr, dtype in [
        ([few, narrow], np.int32),
        ([many, narrow], np.int64),
        ([few, narrow, few, wide], np.int64),
        ([few, narrow, many, narrow], np.int64),
    ]:
        assert {each.dtype for each in cpu_densify._alike(*csr)} == {np.dtype(dtype)}


@pytest.mark.parametrize("assume_unique", [False, True])
def test_densify_again_writes_rows_of_many_entries_and_of_none(assume_unique):
    out, rng = zeros((6, 3000)), np.random.default_rng(0)
    previous = None
    for lengths in [0, 32, 33, 64, 200, 0], [200, 0, 64, 33, 32, 1], [0] * 6:
        offsets = np.cumsum([0, *lengths])
        columns = [rng.permutation(3000)[:length] for length in lengths]
        indices, values = np.concatenate(columns), np.arange(1.0, 1 + sum(lengths))
        expected = zeros((6, 3000))
        expected[np.repeat(np.arange(6), lengths), indices] = values
        options = {"assume_unique": assume_unique, "previous": previous}
        kernels.densify_rows(offsets, indices, values, out, **options)
        np.testing.assert_array_equal(out, expected)
        previous = offsets, indices


@pytest.mark.parametrize("wrong", [-1, 4, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("stream_nbytes", [0, 1 << 30])
def test_an_index_outside_its_row_writes_nothing_and_is_an_error(
    wrong, dtype, stream_nbytes, monkeypatch
):
    monkeypatch.setattr(cpu_densify, "STREAM_NBYTES", stream_nbytes)
    around = np.full(36, 7, "float32")
    out = around[12:24].reshape(3, 4)
    indices = np.array([3, wrong, 1], dtype)
    with pytest.raises(ValueError, match=rf"indices must be in \[0, 4\), got {wrong} at entry 1"):
        kernels.densify_rows(OFFSETS, indices, None, out)
    assert out.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert (around[:12] == 7).all()
    assert (around[24:] == 7).all()


def test_a_fault_is_noted_where_somebody_will_look():
    fault = np.zeros(1, "int64")
    for indices, noted in ([3, 0, 3], 0), ([3, 9, 3], 2), ([-1, 0, 3], 2), ([-1, 0, 4], 3):
        kernels.densify_rows(OFFSETS, np.array(indices), None, zeros((3, 4)), fault=fault)
        assert fault[0] == noted


def test_pad_cuts_long_rows_and_fills_short_ones():
    values = np.arange(10).reshape(5, 2)
    out = zeros((3, 2, 2), "int64")
    kernels.pad_rows(values, np.array([0, 3, 3, 5]), -1, out)
    assert out.tolist() == [[[0, 1], [2, 3]], [[-1, -1], [-1, -1]], [[6, 7], [8, 9]]]


def test_unpad_leaves_alone_what_padding_cut():
    out = np.full(4, -1)
    kernels.unpad_rows(np.array([[1, 2], [3, 0]]), np.array([0, 3, 4]), out)
    assert out.tolist() == [1, 2, -1, 3]


def test_convert_rounds_in_the_dtype_of_out():
    pixels = np.arange(256, dtype="uint8")
    out = zeros(256)
    kernels.convert_values(pixels, 1 / 255, -0.5, out)
    scale, shift = np.float32(1 / 255), np.float32(-0.5)
    assert np.array_equal(out, pixels.astype("float32") * scale + shift)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing_is_a_legal_size(shape):
    rows = shape[0]
    offsets, none = np.zeros(rows + 1, "int64"), np.zeros(0, "int64")
    around = zeros(12)  # memory on both sides of the empty output
    out = around[4:4].reshape(shape)
    kernels.densify_rows(offsets, none, None, out)
    kernels.densify_rows(offsets, none, zeros(0), out)
    kernels.pad_rows(zeros(0), offsets, 1, out)
    kernels.unpad_rows(zeros(shape), offsets, around[4:4])
    kernels.convert_values(zeros(shape), 2.0, 1.0, out)
    assert not around.any()


READ_ONLY = zeros((3, 4))
READ_ONLY.flags.writeable = False
REFUSED = {
    "strided out": (
        ("densify_rows", OFFSETS, INDICES, None, zeros((3, 8))[:, ::2]),
        ValueError,
        r"densify_rows\.out must be C-contiguous, got shape \(3, 4\) with strides \(32, 8\)",
    ),
    "strided input": (
        ("densify_rows", OFFSETS, np.arange(6)[::2], None, zeros((3, 9))),
        ValueError,
        r"densify_rows\.indices must be C-contiguous",
    ),
    "read-only out": (
        ("densify_rows", OFFSETS, INDICES, None, READ_ONLY),
        ValueError,
        r"densify_rows\.out must be writable, got a read-only array",
    ),
    "offsets of another length": (
        ("densify_rows", OFFSETS[:3], INDICES, None, zeros((3, 4))),
        ValueError,
        r"densify_rows\.offsets must have shape \(4\), got \(3,\)",
    ),
    "offsets past the end": (
        ("densify_rows", OFFSETS, INDICES[:2], None, zeros((3, 4))),
        ValueError,
        r"densify_rows\.offsets must start at 0 and end at 2, got 0 and 3",
    ),
    "offsets that fall": (
        ("densify_rows", np.array([0, 10**9, 3, 3]), INDICES, None, zeros((3, 4))),
        ValueError,
        r"densify_rows\.offsets must never fall, got 1000000000 then 3 at entry 1",
    ),
    "old offsets that fall": (
        (
            "densify_rows",
            OFFSETS,
            INDICES,
            None,
            zeros((3, 4)),
            {"previous": (np.array([0, 2, -1, 3]), INDICES)},
        ),
        ValueError,
        r"densify_rows\.previous_offsets must never fall, got 2 then -1 at entry 1",
    ),
    "float offsets": (
        ("densify_rows", OFFSETS.astype("float64"), INDICES, None, zeros((3, 4))),
        TypeError,
        r"densify_rows\.offsets must have dtype int32, int64, got float64",
    ),
    "unsigned indices": (
        ("densify_rows", OFFSETS, INDICES.astype("uint32"), None, zeros((3, 4))),
        TypeError,
        r"densify_rows\.indices must have dtype int32, int64, got uint32",
    ),
    "too few values": (
        ("densify_rows", OFFSETS, INDICES, zeros(2), zeros((3, 4))),
        ValueError,
        r"densify_rows\.values must have shape \(3\), got \(2,\)",
    ),
    "flat out": (
        ("densify_rows", OFFSETS, INDICES, None, zeros(12)),
        ValueError,
        r"densify_rows\.out must have shape \(rows, dim\), got \(12,\)",
    ),
    "deep out": (
        ("densify_rows", OFFSETS, INDICES, None, zeros((3, 2, 2))),
        ValueError,
        r"densify_rows\.out must have shape \(rows, dim\), got \(3, 2, 2\)",
    ),
    "complex out": (
        ("densify_rows", OFFSETS, INDICES, None, zeros((3, 4), "complex64")),
        TypeError,
        r"densify_rows\.out must have dtype bool, .*, got complex64",
    ),
    "numbers to truth values": (
        ("densify_rows", OFFSETS, INDICES, zeros(3), zeros((3, 4), "bool")),
        TypeError,
        r"densify_rows\.values must have dtype bool when out has, got float32",
    ),
    "an old batch of another size": (
        (
            "densify_rows",
            OFFSETS,
            INDICES,
            None,
            zeros((3, 4)),
            {"previous": (OFFSETS[1:], INDICES)},
        ),
        ValueError,
        r"densify_rows\.previous_offsets must have shape \(4\), got \(3,\)",
    ),
    "float fault": (
        ("densify_rows", OFFSETS, INDICES, None, zeros((3, 4)), {"fault": zeros(1)}),
        TypeError,
        r"densify_rows\.fault must have dtype int64, got float32",
    ),
    "list for array": (
        ("densify_rows", OFFSETS, [3, 0, 3], None, zeros((3, 4))),
        TypeError,
        r"densify_rows\.indices must be a NumPy array or have __cuda_array_interface__, got list",
    ),
    "items of another shape": (
        ("pad_rows", zeros((3, 2)), OFFSETS, 0, zeros((3, 2, 5))),
        ValueError,
        r"pad_rows\.out must have shape \(rows, max_length, 2\), got \(3, 2, 5\)",
    ),
    "out of another dtype": (
        ("pad_rows", zeros(3), OFFSETS, 0, zeros((3, 2), "float64")),
        TypeError,
        r"pad_rows\.out must have dtype float32, got float64",
    ),
    "big-endian values": (
        ("pad_rows", zeros(3, ">f4"), OFFSETS, 0, zeros((3, 2), ">f4")),
        TypeError,
        r"pad_rows\.values must have dtype bool, .*, got >f4",
    ),
    "sequences of another dtype": (
        ("gather_sequences", zeros(3), OFFSETS, np.zeros(1, "int32"), OFFSETS[:2], zeros(2)),
        TypeError,
        r"gather_sequences\.sequences must have dtype int64, got int32",
    ),
    "a sequence too few": (
        ("gather_sequences", zeros(3), OFFSETS, np.zeros(2, "int64"), OFFSETS[:2], zeros(2)),
        ValueError,
        r"gather_sequences\.new_offsets must have shape \(3\), got \(2,\)",
    ),
    "a sequence that is not there": (
        ("gather_sequences", zeros(3), OFFSETS, np.array([3]), OFFSETS[:2], zeros(2)),
        ValueError,
        r"gather_sequences\.sequences must be in \[0, 3\), got 3",
    ),
    "a sequence before the first": (
        ("gather_sequences", zeros(3), OFFSETS, np.array([-1]), OFFSETS[:2], zeros(2)),
        ValueError,
        r"gather_sequences\.sequences must be in \[0, 3\), got -1",
    ),
    "room for another length": (
        ("gather_sequences", zeros(3), OFFSETS, np.array([0, 2]), np.array([0, 1, 3]), zeros(3)),
        ValueError,
        r"gather_sequences\.new_offsets must leave 2 rows for sequence 0, got 1",
    ),
    "padding that does not fit": (
        ("pad_rows", zeros(3, "uint8"), OFFSETS, 300, zeros((3, 2), "uint8")),
        ValueError,
        r"pad_rows\.pad_value must be a number that uint8 can hold, got 300",
    ),
    "padding that is no number": (
        ("pad_rows", zeros(3), OFFSETS, None, zeros((3, 2))),
        ValueError,
        r"pad_rows\.pad_value must be a number that float32 can hold, got None",
    ),
    "padding that is several": (
        ("pad_rows", zeros(3), OFFSETS, [0, 1], zeros((3, 2))),
        ValueError,
        r"pad_rows\.pad_value must be a number that float32 can hold, got \[0, 1\]",
    ),
    "numbers for another total": (
        ("number_rows", OFFSETS, np.zeros(4, "int64")),
        ValueError,
        r"number_rows\.offsets must start at 0 and end at 4, got 0 and 3",
    ),
    "no offsets at all": (
        ("number_rows", OFFSETS[:0], np.zeros(0, "int64")),
        ValueError,
        r"number_rows\.offsets must have shape \(1\), got \(0,\)",
    ),
    "strided numbers": (
        ("number_rows", OFFSETS, np.zeros(6, "int64")[::2]),
        ValueError,
        r"number_rows\.out must be C-contiguous",
    ),
    "float numbers": (
        ("number_rows", OFFSETS, zeros(3)),
        TypeError,
        r"number_rows\.out must have dtype int32, int64, got float32",
    ),
    "a mask of numbers": (
        ("mask_rows", OFFSETS, zeros((3, 2))),
        TypeError,
        r"mask_rows\.out must have dtype bool, got float32",
    ),
    "a strided mask": (
        ("mask_rows", OFFSETS, zeros((3, 4), "bool")[:, ::2]),
        ValueError,
        r"mask_rows\.out must be C-contiguous",
    ),
    "a mask of offsets that fall": (
        ("mask_rows", OFFSETS[::-1].copy() - 3, zeros((3, 2), "bool")),
        ValueError,
        r"mask_rows\.offsets must never fall, got 0 then -1 at entry 0",
    ),
    "a mask of another height": (
        ("mask_rows", OFFSETS, zeros((4, 2), "bool")),
        ValueError,
        r"mask_rows\.offsets must have shape \(5\), got \(4,\)",
    ),
    "bits of another number": (
        ("unpack_bits", np.zeros(1, "uint8"), zeros(9, "bool")),
        ValueError,
        r"unpack_bits\.packed must have shape \(2\), got \(1,\)",
    ),
    "floats to whole numbers of a kind": (
        ("narrow_values", np.zeros(3, "int64"), zeros(3), np.zeros(1, "int64")),
        TypeError,
        r"narrow_values\.out must have dtype int8, .*, got float32",
    ),
    "one factor of two": (
        ("convert_values", zeros(3), zeros(3), None, zeros(3), {"axis": 0}),
        ValueError,
        r"convert_values\.shift must be an array with axis, got None",
    ),
    "an axis too many": (
        ("convert_values", zeros(3), zeros(3), zeros(3), zeros(3), {"axis": 1}),
        ValueError,
        r"convert_values\.axis must be in \[-1, 1\), got 1",
    ),
    "another number of channels": (
        ("convert_values", zeros((3, 2)), zeros(3), zeros(2), zeros((3, 2)), {"axis": 1}),
        ValueError,
        r"convert_values\.scale must have shape \(2\), got \(3,\)",
    ),
    "out too long": (
        ("unpad_rows", zeros((3, 2)), OFFSETS, zeros(4)),
        ValueError,
        r"unpad_rows\.offsets must start at 0 and end at 4, got 0 and 3",
    ),
    "out of another size": (
        ("convert_values", zeros(3, "uint8"), None, None, zeros(4)),
        ValueError,
        r"convert_values\.out must have shape \(3\), got \(4,\)",
    ),
    "scaled integers": (
        ("convert_values", zeros(3, "uint8"), 0.5, None, zeros(3, "int64")),
        TypeError,
        r"convert_values\.out must be a float array to be scaled or shifted, got int64",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses(call, error, message):
    operation, *arguments = call
    options = arguments.pop() if isinstance(arguments[-1], dict) else {}
    with pytest.raises(error, match=message):
        getattr(kernels, operation)(*arguments, **options)


class OnDevice:
    """Stands for a device array, as far as the dispatcher looks at one."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = {"shape": array.shape}


class Stream:
    def __cuda_stream__(self):
        return 0, 0xC0DE


def test_device_arrays_go_to_the_cuda_twin_with_the_stream(monkeypatch):
    calls = []
    monkeypatch.setattr(cuda, "as_device_array", lambda array: array.array)
    monkeypatch.setattr(
        cuda, "unpad_rows", lambda *arrays, **options: calls.append((arrays, options))
    )
    arrays, stream = (zeros((3, 2)), OFFSETS, zeros(3)), Stream()
    kernels.unpad_rows(*map(OnDevice, arrays), stream=stream)
    [(got, options)] = calls
    assert all(a is b for a, b in zip(got, arrays, strict=True))
    assert options == {"stream": stream, "pads_left": False}


def test_without_a_stream_it_runs_where_the_output_says_it_is_in_use(monkeypatch):
    calls = []
    monkeypatch.setattr(cuda, "as_device_array", lambda array: array.array)
    monkeypatch.setattr(cuda, "unpad_rows", lambda *_, stream, **__: calls.append(stream))
    arrays = [OnDevice(array) for array in (zeros((3, 2)), OFFSETS, zeros(3))]
    kernels.unpad_rows(*arrays)
    arrays[-1].__cuda_array_interface__["stream"] = 0xC0DE
    kernels.unpad_rows(*arrays)
    kernels.unpad_rows(*arrays, stream=Stream())
    assert calls[0] is None
    assert [stream.__cuda_stream__() for stream in calls[1:]] == [(0, 0xC0DE)] * 2


def test_a_stream_reaches_numba_as_its_handle(monkeypatch):
    monkeypatch.setattr(cuda_launch.cuda, "external_stream", lambda handle: ("stream", handle))
    assert cuda_launch.as_numba_stream(Stream()) == ("stream", 0xC0DE)
    assert cuda_launch.as_numba_stream(None) == 0


@pytest.mark.parametrize(
    ("rows", "row_width"), [(1, 1), (1, 10**8), (7, 33), (4096, 100), (10**7, 1000)]
)
def test_launches_fill_the_device_within_its_limits(rows, row_width):
    (grid_x, grid_y), (across, down) = cuda_launch.grid_and_block(rows, row_width)
    assert across * down == cuda_launch.THREADS_PER_BLOCK
    assert across % cuda_launch.WARP == 0
    assert grid_x * grid_y >= cuda_launch.MIN_BLOCKS
    assert max(grid_x, grid_y) <= cuda_launch.MAX_BLOCKS


def test_host_and_device_arrays_do_not_mix():
    with pytest.raises(
        TypeError, match=r"unpad_rows\.offsets must live on the device, .*, got a host array"
    ):
        kernels.unpad_rows(OnDevice(zeros((3, 2))), OFFSETS, OnDevice(zeros(3)))


def test_host_kernels_take_no_stream():
    with pytest.raises(ValueError, match=r"unpad_rows\.stream must be None for host arrays"):
        kernels.unpad_rows(zeros((3, 2)), OFFSETS, zeros(3), stream=Stream())


def test_warm_up_leaves_nothing_to_compile():
    kernels.warm_up(
        densify=[("int32", None, "float32"), ("int64", "float32", "float32")],
        convert=[("uint8", "float32", True), ("int32", "int64", False)],
    )
    compiled = [cpu_densify._densify, cpu_densify._densify_again, cpu._scale]
    before = [kernel.signatures[:] for kernel in compiled]
    assert all(before)
    out = zeros((3, 4))
    kernels.densify_rows(OFFSETS.astype("int32"), INDICES.astype("int32"), None, out)
    kernels.densify_rows(OFFSETS, INDICES, zeros(3), out)
    kernels.densify_rows(
        OFFSETS[:2], INDICES[:2], zeros(2), zeros((1, 99)), previous=(OFFSETS[:2], INDICES[:2])
    )
    kernels.densify_rows(OFFSETS[:2], INDICES[:2], zeros(2), zeros((1, 5_000_000)))
    kernels.convert_values(zeros(5, "uint8"), None, 0.5, zeros(5))
    assert [kernel.signatures for kernel in compiled] == before


def ranges(rows, nbytes):
    """Return the ranges that rows are made in, in order."""
    made = []
    cpu_launch.in_parts(lambda first, last: made.append((first, last)) or 0, rows, nbytes)
    return sorted(made)


def test_only_who_asks_for_threads_gets_them_and_for_large_outputs_alone(monkeypatch):
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert ranges(7, 1 << 30) == [(0, 7)]
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    monkeypatch.setattr(cpu_launch.config, "NUMBA_NUM_THREADS", 3)
    assert ranges(7, cpu_launch.PART_NBYTES) == [(0, 7)]
    assert ranges(7, 2 * cpu_launch.PART_NBYTES) == [(0, 3), (3, 7)]
    assert ranges(7, 1 << 30) == [(0, 2), (2, 4), (4, 7)]
    assert ranges(1, 1 << 30) == [(0, 1)]
    assert ranges(0, 0) == [(0, 0)]


def test_who_finds_the_threads_at_work_does_without(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.setattr(cpu_launch.config, "NUMBA_NUM_THREADS", 2)
    inside = []
    cpu_launch.in_parts(lambda first, last: inside.append(ranges(4, 1 << 30)) or 0, 2, 1 << 30)
    assert inside == [[(0, 4)]] * 2
    assert ranges(4, 1 << 30) == [(0, 2), (2, 4)]


def test_an_error_in_a_thread_arrives(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.setattr(cpu_launch.config, "NUMBA_NUM_THREADS", 2)

    def run(first, last):
        if first == 0:
            raise OSError("no room")
        return 0

    with pytest.raises(OSError, match="no room"):
        cpu_launch.in_parts(run, 2, 1 << 30)
    assert ranges(2, 1 << 30) == [(0, 1), (1, 2)]


def test_read_only_input_takes_no_kernels_of_its_own():
    values, offsets, out = zeros(3), OFFSETS.copy(), zeros((3, 2))
    kernels.pad_rows(values, offsets, 0, out)
    compiled = cpu._pad.signatures[:]
    for array in (values, offsets):
        array.flags.writeable = False
    kernels.pad_rows(values, offsets, 0, out)
    assert cpu._pad.signatures == compiled
    assert not values.flags.writeable


def test_works_where_no_cache_folder_can_be_written():
    # The locator for zip archives finds no place for a plain module, as any would on a read-only
    # system; numba then raises when a function asks for a cache.
    code = (
        "import numpy as np; from gpufeed.kernels import unpad_rows; out = np.zeros(3, 'int64');"
        "unpad_rows(np.array([[7, 8], [5, 0]]), np.array([0, 2, 3]), out); print(out.tolist());"
        "from gpufeed.kernels.cpu import cache_folder; print(cache_folder())"
    )
    environment = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["[7, 8, 5]", "None"]


def test_numba_learns_no_types_while_a_kernel_is_compiled():
    """It would do so at its first compilation, during which another thread's can fail."""
    code = (
        "import numpy as np; from gpufeed.kernels import cpu, mask_rows;"
        "from numba.core.typing.typeof import typeof_impl; known = list(typeof_impl.registry);"
        "mask_rows(np.array([0, 1]), np.zeros((1, 1), bool));"
        "raise SystemExit(known != list(typeof_impl.registry))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_is_not_importable_as_a_top_level_package():
    folder = Path(kernels.__file__).parent
    spec = importlib.util.spec_from_file_location("kernels", folder / "__init__.py")
    with pytest.raises(ImportError, match=r"import gpufeed\.kernels"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
