"""``paddle.data_type``: the types of data layers."""

from __future__ import annotations

from gpufeed.provider.types import (
    InputType,
    dense_array,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_binary_vector_sub_sequence,
    sparse_float_vector,
    sparse_float_vector_sequence,
    sparse_float_vector_sub_sequence,
    sparse_non_value_slot,
    sparse_value_slot,
    sparse_vector,
    sparse_vector_sequence,
    sparse_vector_sub_sequence,
)

__all__ = [
    "InputType",
    "dense_array",
    "dense_vector",
    "dense_vector_sequence",
    "dense_vector_sub_sequence",
    "integer_value",
    "integer_value_sequence",
    "integer_value_sub_sequence",
    "sparse_binary_vector",
    "sparse_binary_vector_sequence",
    "sparse_binary_vector_sub_sequence",
    "sparse_float_vector",
    "sparse_float_vector_sequence",
    "sparse_float_vector_sub_sequence",
    "sparse_non_value_slot",
    "sparse_value_slot",
    "sparse_vector",
    "sparse_vector_sequence",
    "sparse_vector_sub_sequence",
]
