"""DataProviderConverter: values, start positions in rows, and frames."""

from __future__ import annotations

import numpy as np
import pytest
from support.columns import csr

from gpufeed.device import virtual_devices
from gpufeed.errors import FieldError
from gpufeed.places import CUDAPlace
from gpufeed.provider import (
    Argument,
    DataProviderConverter,
    dense_array,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_float_vector,
    sparse_float_vector_sub_sequence,
)


def convert(kind, values):
    [argument] = DataProviderConverter([kind])([(value,) for value in values])
    return argument


def positions(argument):
    found = argument.sequence_start_positions, argument.sub_sequence_start_positions
    return tuple(None if one is None else one.tolist() for one in found)


def test_plain_slots_have_no_start_positions():
    argument = convert(integer_value(10), [3, 1])
    assert argument.value.to_list() == [[3], [1]]
    assert positions(argument) == (None, None)


def test_sequences_begin_at_rows():
    argument = convert(integer_value_sequence(10), [[1, 2, 3], [], [4]])
    assert argument.value.to_list() == [[[1], [2], [3]], [], [[4]]]
    assert positions(argument) == ([0, 3, 3, 4], None)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ([[[1, 2], [3]], [[4]]], ([0, 3, 4], [0, 2, 3, 4])),
        ([[[], [5]], [[6, 7]]], ([0, 1, 3], [0, 0, 1, 3])),
        ([[], [[8]]], ([0, 0, 1], [0, 1])),
        ([[[1]], []], ([0, 1, 1], [0, 1])),
        ([], ([0], [0])),
    ],
)
def test_both_levels_of_sub_sequences_count_rows(batch, expected):
    assert positions(convert(integer_value_sub_sequence(10), batch)) == expected


def test_dense_vectors():
    argument = convert(dense_vector(2), [[1.0, 2.0], np.array([3, 4])])
    assert argument.value.dtype == np.float32
    assert argument.value.to_list() == [[1.0, 2.0], [3.0, 4.0]]
    assert (argument.frame_height, argument.frame_width) == (0, 0)


@pytest.mark.parametrize(("shape", "frame"), [((2, 3), (2, 3)), ((4, 2, 3), (2, 3))])
def test_arrays_become_flat_rows_and_remember_their_frame(shape, frame):
    arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + n for n in range(2)]
    argument = convert(dense_array(784), arrays)
    np.testing.assert_array_equal(argument.value.data, [array.ravel() for array in arrays])
    assert (argument.frame_height, argument.frame_width) == frame


def test_frames_may_differ_from_batch_to_batch():
    converter = DataProviderConverter([dense_array(784)])
    for shape in [(28, 28), (30, 32), (28, 28)]:
        [argument] = converter([(np.ones(shape, np.float32),)])
        assert (argument.frame_height, argument.frame_width) == shape


def test_tensors_may_go_to_a_device():
    with virtual_devices(1):
        converter = DataProviderConverter([dense_array(6), integer_value_sequence(9)], "cuda:0")
        image, words = converter([(np.ones((2, 3)), [1, 2])])
        assert image.value.place == words.value.place == CUDAPlace(0)
        np.testing.assert_array_equal(image.value.numpy(), np.ones((1, 6)))
        assert words.sequence_start_positions.tolist() == [0, 2]


def test_sequences_of_frames():
    frames = [np.ones((2, 3)), np.zeros((2, 3))]
    argument = convert(dense_vector_sequence(6), [[], frames])
    assert argument.value.shape == (2, 6)
    assert positions(argument) == ([0, 0, 2], None)
    assert argument.value.lod() == [[0, 0, 2]]


def test_a_value_outlives_its_converter():
    first = convert(dense_array(6), [np.full((2, 3), 7.0)])
    second = convert(dense_array(6), [np.full((2, 3), 8.0)])
    assert (first.value.data == 7).all()
    assert (second.value.data == 8).all()


def test_sparse_rows():
    binary = convert(sparse_binary_vector(5), [[0, 4], [], [2]])
    assert csr(binary.value) == ([0, 2, 2, 3], [0, 4, 2], None)
    floats = convert(sparse_float_vector(5), [[(0, 1.5)], []])
    assert csr(floats.value) == ([0, 1, 1], [0], [1.5])


def test_rows_without_values_stay_of_their_kind():
    assert convert(sparse_float_vector(5), [[], []]).value.values.dtype == np.float32


def test_sequences_of_sparse_rows():
    argument = convert(sparse_binary_vector_sequence(5), [[[0], []], [[1, 2]]])
    assert positions(argument) == ([0, 2, 3], None)
    argument = convert(sparse_float_vector_sub_sequence(5), [[[[(0, 1.0)], []], [[]]], []])
    assert positions(argument) == ([0, 3, 3], [0, 2, 3])


def test_more_columns_than_types_are_left_out():
    found = DataProviderConverter([integer_value(3), dense_vector(1)])([(1, [0.5], "unused")])
    assert [argument.value.to_list() for argument in found] == [[[1]], [[0.5]]]


def test_fewer_columns_are_an_error():
    with pytest.raises(FieldError, match="sample 1: expected at least 2 fields"):
        DataProviderConverter([integer_value(3), integer_value(3)])([(1, 2), (1,)])


@pytest.mark.parametrize("given", [None, 3])
def test_a_batch_is_an_iterable(given):
    message = rf"DataProviderConverter\.dat must be an iterable of samples, got {given}"
    with pytest.raises(FieldError, match=message):
        DataProviderConverter([integer_value(3)]).convert(given)


def test_a_generator_is_read_once():
    found = DataProviderConverter([integer_value(3)]).convert((n,) for n in range(3))
    assert found[0].value.to_list() == [[0], [1], [2]]


def test_an_argument_may_be_filled_anew():
    converter = DataProviderConverter([integer_value(3)])
    given = converter([(1,)])
    assert converter([(2,)], given) is given
    assert converter.convert([(2,)], argument=given) is given
    assert given[0].value.to_list() == [[2]]
    assert isinstance(given[0], Argument)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (dense_vector(3), [[1.0, 2.0]], r"field 'slot 0', sample 0: expected shape \(3,\)"),
        (dense_vector(3), [1.0], r"field 'slot 0', sample 0: expected shape \(3,\), got \(\)"),
        (dense_array(6), [np.ones((2, 3)), np.ones((3, 2))], r"sample 1: expected shape \(2, 3\)"),
        (dense_array(6), [np.ones((1, 1, 2, 3))], "at most 3 dimensions, got 4"),
        (dense_vector_sub_sequence(2), [5], "field 'slot 0', sample 0: expected sequences"),
        (dense_vector_sequence(2), [[[1, 2], [3]]], "field 'slot 0', sample 0: expected"),
        (sparse_binary_vector(3), [[3]], r"expected indices in \[0, 3\), got 3"),
        (integer_value(3), [0.5], "field 'slot 0', sample 0: expected int64"),
    ],
)
def test_what_does_not_fit_is_named(kind, values, message):
    with pytest.raises(FieldError, match=message):
        convert(kind, values)


@pytest.mark.parametrize("given", [{"x": integer_value(3)}, integer_value(3), [3], [], "types"])
def test_types_are_a_list(given):
    with pytest.raises(FieldError, match=r"DataProviderConverter\.input_types must be a list"):
        DataProviderConverter(given)
