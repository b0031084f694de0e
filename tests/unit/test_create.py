from __future__ import annotations

import numpy as np
import pytest

from gpufeed.create import LoDTensorArray, create_lod_tensor, create_random_int_lodtensor
from gpufeed.device import virtual_devices
from gpufeed.errors import FieldError, LoDError
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.tensor import LoDTensor


def test_from_a_list_of_sequences():
    t = create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], CPUPlace())
    assert (t.shape, t.dtype) == ((5, 1), np.int64)
    assert t.recursive_sequence_lengths() == [[3, 2]]


@pytest.mark.parametrize(
    ("data", "lengths", "shape", "dtype"),
    [
        ([[1, 2], []], [[2, 0]], (2, 1), "int64"),
        ([[], []], [[0, 0]], (0, 1), "int64"),
        ([], [[]], (0, 1), "int64"),
        ([[0.5], [1.5]], [[1, 1]], (2, 1), "float64"),
        ([[[1, 2], [3]], []], [[2, 0], [2, 1]], (3, 1), "int64"),
        ([[[1, 2]], [[3, 4], [5, 6]]], [[1, 2]], (3, 2), "int64"),
        ([(1, 2), np.array([3])], [[2, 1]], (3, 1), "int64"),
    ],
)
def test_lists_of_every_depth(data, lengths, shape, dtype):
    t = create_lod_tensor(data, lengths, "cpu")
    assert (t.shape, t.dtype) == (shape, dtype)
    assert t.recursive_sequence_lengths() == lengths


@pytest.mark.parametrize(
    ("data", "lengths"),
    [([[1, 2], [3]], [[2, 2]]), ([[1, 2]], [[2], [1, 1]]), ([1, 2], [[1, 1]]), ([[1]], [[1, 0]])],
)
def test_lists_that_are_not_as_long_as_announced(data, lengths):
    with pytest.raises(LoDError, match="data and recursive_seq_lens do not match"):
        create_lod_tensor(data, lengths, "cpu")


def test_rows_of_different_widths():
    with pytest.raises(FieldError, match="must be rectangular below its LoD"):
        create_lod_tensor([[[1, 2], [3]]], [[2]], "cpu")


def test_from_an_array():
    rows = np.arange(10).reshape(5, 2)
    t = create_lod_tensor(rows, [[2, 1], [1, 3, 1]], "cpu")
    assert t.data is rows
    with pytest.raises(LoDError, match="must cover 5 rows, got 4"):
        create_lod_tensor(rows, [[4]], "cpu")


def test_from_a_tensor_the_copy_is_independent():
    source = LoDTensor([1, 2, 3], lod=[[0, 3]])
    with virtual_devices(1):
        for place in ("cpu", "cuda:0"):
            t = create_lod_tensor(source, [[1, 2]], place)
            assert t.to_list() == [[1], [2, 3]]
            assert not np.shares_memory(t.data, source.data)
            assert create_lod_tensor(t, [[3]], "cpu").to_list() == [[1, 2, 3]]
        assert t.place == CUDAPlace(0)
    assert source.lod() == [[0, 3]]


@pytest.mark.parametrize("data", [([1],), "ab", 3, None])
def test_other_data_is_refused(data):
    with pytest.raises(TypeError, match="either a LoDTensor, a Numpy array or a list"):
        create_lod_tensor(data, [[1]], "cpu")


def test_random_ints_include_both_ends():
    t = create_random_int_lodtensor([[100, 0], [2] * 100], [2], "cpu", 3, 4, seed=1)
    assert (t.shape, t.dtype, t.lod_level) == ((200, 2), np.int64, 2)
    assert set(t.data.ravel().tolist()) == {3, 4}
    again = create_random_int_lodtensor([[100, 0], [2] * 100], [2], "cpu", 3, 4, seed=1)
    assert again.data.tolist() == t.data.tolist()


def test_random_ints_need_a_shape_and_a_range():
    with pytest.raises(FieldError, match="base_shape should be a list, got 1"):
        create_random_int_lodtensor([[1]], 1, "cpu", 0, 1)
    with pytest.raises(FieldError, match="low must be <= high, got 2 > 1"):
        create_random_int_lodtensor([[1]], [1], "cpu", 2, 1)
    with pytest.raises(LoDError, match="recursive_seq_lens level 0 must cover"):
        create_random_int_lodtensor([[1], [1, 1]], [1], "cpu", 0, 1)


def test_an_array_of_tensors():
    one, two = LoDTensor([1]), LoDTensor([2])
    array = LoDTensorArray([one])
    array.append(two)
    assert list(array) == [one, two]
    assert array[-1] is two
    assert list(array[1:]) == [two]
    with pytest.raises(FieldError, match="must be a LoDTensor, got list"):
        array.append([3])


@pytest.mark.parametrize("base_shape", [[-4], [1.5], ["4"], [True]])
def test_random_rows_have_a_shape(base_shape):
    with pytest.raises(FieldError, match=r"base_shape must be a whole number >= 0, got "):
        create_random_int_lodtensor([[2]], base_shape, "cpu", 0, 1)
