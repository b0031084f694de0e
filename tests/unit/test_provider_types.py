"""Input types: every name, what it means, and the variable it fills."""

from __future__ import annotations

import pytest

import gpufeed.provider as provider
from gpufeed.errors import FieldError
from gpufeed.provider import CacheType, DataType, InputType, SequenceType

PLAIN, SEQUENCE, SUB_SEQUENCE = SequenceType

# The table of the reference: base function, its aliases, and the names of the sequences.
NAMES = {
    DataType.Dense: (
        ["dense_slot", "dense_vector", "dense_array"],
        ["dense_vector_sequence"],
        ["dense_vector_sub_sequence"],
    ),
    DataType.SparseNonValue: (
        ["sparse_non_value_slot", "sparse_binary_vector"],
        ["sparse_binary_vector_sequence"],
        ["sparse_binary_vector_sub_sequence"],
    ),
    DataType.SparseValue: (
        ["sparse_value_slot", "sparse_float_vector", "sparse_vector"],
        ["sparse_float_vector_sequence", "sparse_vector_sequence"],
        ["sparse_float_vector_sub_sequence", "sparse_vector_sub_sequence"],
    ),
    DataType.Index: (
        ["index_slot", "integer_value"],
        ["integer_value_sequence", "integer_sequence"],
        ["integer_value_sub_sequence"],
    ),
}
BASES = ["dense_slot", "sparse_non_value_slot", "sparse_value_slot", "index_slot"]


@pytest.mark.parametrize(
    ("name", "kind", "depth"),
    [
        (name, kind, depth)
        for kind, depths in NAMES.items()
        for depth, names in enumerate(depths)
        for name in names
    ],
)
def test_every_name_makes_its_type(name, kind, depth):
    assert getattr(provider, name)(7) == InputType(7, SequenceType(depth), kind)
    assert name in provider.__all__


@pytest.mark.parametrize("name", BASES)
def test_base_functions_take_a_sequence_type(name):
    assert getattr(provider, name)(7, SUB_SEQUENCE).seq_type == SUB_SEQUENCE
    assert getattr(provider, name)(7, 1).seq_type is SEQUENCE


def test_the_numbers_of_the_reference():
    assert [int(choice) for choice in SequenceType] == [0, 1, 2]
    assert {choice.name: int(choice) for choice in DataType} == {
        "Dense": 0,
        "SparseNonValue": 1,
        "SparseValue": 2,
        "Index": 3,
    }
    assert [int(choice) for choice in CacheType] == [0, 1]


def test_repr_can_be_read_and_evaluated():
    kind = provider.sparse_float_vector_sub_sequence(7)
    text = "InputType(dim=7, seq_type=SequenceType.SUB_SEQUENCE, type=DataType.SparseValue)"
    assert repr(kind) == text
    assert eval(text, vars(provider)) == kind


@pytest.mark.parametrize("depth", SequenceType)
@pytest.mark.parametrize(
    ("kind", "layout", "dtype", "shape"),
    [
        (DataType.Dense, "dense", "float32", (-1, 7)),
        (DataType.SparseNonValue, "sparse_binary", "float32", (-1, 7)),
        (DataType.SparseValue, "sparse_float", "float32", (-1, 7)),
        (DataType.Index, "dense", "int64", (-1, 1)),
    ],
)
def test_every_type_has_a_variable(kind, layout, dtype, shape, depth):
    variable = InputType(7, depth, kind).variable("x")
    found = variable.name, variable.layout, variable.dtype.name, variable.shape, variable.lod_level
    assert found == ("x", layout, dtype, shape, depth)


def test_arrays_may_have_a_shape():
    kind = provider.dense_array([1, 28, 28])
    assert kind.dim == (1, 28, 28)
    assert kind.size == 784
    assert kind.variable("image").shape == (-1, 1, 28, 28)
    assert hash(kind) == hash(provider.dense_array((1, 28, 28)))


@pytest.mark.parametrize("dim", [0, -1, 2.5, "7", None, [], [3, 0], True])
def test_a_dim_is_a_size(dim):
    with pytest.raises(FieldError, match=r"InputType\.dim must be a whole number >= 1, got"):
        provider.dense_vector(dim)


@pytest.mark.parametrize("name", BASES[1:])
def test_only_dense_data_has_a_shape(name):
    with pytest.raises(FieldError, match=r"InputType\.dim must be"):
        getattr(provider, name)([2, 3])


@pytest.mark.parametrize("bad", [{"seq_type": 3}, {"type": 4}, {"type": "Dense"}])
def test_choices_are_choices(bad):
    argument = next(iter(bad))
    with pytest.raises(FieldError, match=rf"InputType\.{argument} must be one of \w+\.\w+, .*got"):
        InputType(**{"dim": 7, "seq_type": PLAIN, "type": DataType.Index, **bad})
