"""Providers: `@provider` and the input types, as `from gpufeed.provider import *` wants them.

>>> from gpufeed.provider import dense_vector, integer_value, provider
>>> @provider(input_types={"pixel": dense_vector(2), "label": integer_value(10)})
... def process(settings, filename):
...     for line in ["3;0.5 1", "7;0 0.25"]:  # in real life, of the file of that name
...         label, pixels = line.split(";")
...         yield {"pixel": [float(x) for x in pixels.split()], "label": int(label)}
>>> train = process(["part-0.txt"], is_train=True, seed=1)
>>> for feed in train.feeder("cpu").decorate_reader(train.batches(2)):
...     feed["pixel"].shape, sorted(feed["label"].to_list())
((2, 2), [[3], [7]])

``gpufeed.provider`` is this module and cannot be called; the decorator is the function in it.
"""

from __future__ import annotations

from gpufeed.provider.converter import Argument, DataProviderConverter
from gpufeed.provider.definition import Provider, ProviderFactory, provider
from gpufeed.provider.options import Settings
from gpufeed.provider.sources import define_py_data_sources2
from gpufeed.provider.types import (
    CacheType,
    DataType,
    InputType,
    SequenceType,
    dense_array,
    dense_slot,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    index_slot,
    integer_sequence,
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
    "Argument",
    "CacheType",
    "DataProviderConverter",
    "DataType",
    "InputType",
    "Provider",
    "ProviderFactory",
    "SequenceType",
    "Settings",
    "define_py_data_sources2",
    "dense_array",
    "dense_slot",
    "dense_vector",
    "dense_vector_sequence",
    "dense_vector_sub_sequence",
    "index_slot",
    "integer_sequence",
    "integer_value",
    "integer_value_sequence",
    "integer_value_sub_sequence",
    "provider",
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
