"""Laws of providers: every sample once, the same for the same seed, and the same when resumed."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import cut, nested_lengths

from gpufeed.provider import CacheType, DataProviderConverter, SequenceType, integer_value, provider
from gpufeed.provider.types import DataType, InputType
from gpufeed.variables import Program

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=6)
OPTIONS = st.fixed_dictionaries(
    {
        "should_shuffle": st.booleans(),
        "pool_size": st.sampled_from([-1, 1, 2, 5, 30, 1000]),
        "min_pool_size": st.sampled_from([-1, 0, 1, 4, 30, 1000]),
        "cache": st.sampled_from(CacheType),
        "max_open_files": st.integers(1, 4),
        "calc_batch_size": st.sampled_from([None, lambda row: 1 + row[1] % 3]),
        "can_over_batch_size": st.booleans(),
    }
)


def make(sizes: list[int], batch_size: int, options: dict[str, Any]) -> Any:
    @provider(input_types=[integer_value(10), integer_value(100)], **options)
    def process(settings: Any, name: str) -> Any:
        for number in range(sizes[int(name)]):
            yield int(name), number

    return process([str(n) for n in range(len(sizes))], seed=5).batches(batch_size)


@given(SIZES, st.integers(3, 9), OPTIONS)
def test_every_pass_has_every_sample_once(sizes, batch_size, options):
    reader = make(sizes, batch_size, options)
    expected = Counter((n, at) for n, size in enumerate(sizes) for at in range(size))
    for _ in range(2):
        assert Counter(row for rows in reader for row in rows) == expected


@given(SIZES, st.integers(3, 9), OPTIONS, st.integers(0, 2), st.integers(0, 40))
def test_a_pass_goes_on_where_it_was_left(sizes, batch_size, options, epoch, num):
    whole = make(sizes, batch_size, options)
    passes = [list(whole) for _ in range(3)]
    reader = make(sizes, batch_size, options)
    reader.set_epoch(epoch)
    batches = reader()
    head = list(islice(batches, num))
    state = reader.state_dict()
    batches.close()
    again = make(sizes, batch_size, options)
    again.load_state_dict(state)
    assert head + list(again) == passes[epoch]


@given(st.data())
@pytest.mark.parametrize("depth", SequenceType)
@pytest.mark.parametrize("kind", DataType)
def test_every_type_feeds_what_was_given(kind, depth, data):
    lengths = data.draw(nested_lengths(int(depth)))
    num_rows = sum(lengths[-1]) if lengths else data.draw(st.integers(0, 5))
    flat = data.draw(st.lists(_step(kind), min_size=num_rows, max_size=num_rows))
    samples = cut(flat, lengths)
    input_type = InputType(4, depth, kind)

    @provider(input_types={"x": input_type}, check=True)
    def process(settings: Any, name: str) -> Any:
        yield from samples

    reader = process(["any"], is_train=False)
    batches = list(reader.batches(1000)) or [[]]
    tensor = reader.feeder("cpu", Program()).feed(batches[0])["x"]
    assert tensor.recursive_sequence_lengths() == lengths
    if kind in (DataType.Dense, DataType.Index):
        found = tensor.data
        np.testing.assert_array_equal(found, np.array(flat, found.dtype).reshape(found.shape))
    else:
        np.testing.assert_array_equal(tensor.to_dense(), _dense(flat))


@given(nested_lengths(2))
def test_start_positions_count_rows(lengths):
    outer, inner = lengths
    samples = cut(list(range(sum(inner))), lengths)
    [argument] = DataProviderConverter(
        [InputType(1000, SequenceType.SUB_SEQUENCE, DataType.Index)]
    )([(sample,) for sample in samples])
    rows = [sum(map(len, sample)) for sample in samples]
    assert argument.sequence_start_positions.tolist() == [0, *accumulate(rows)]
    assert argument.sub_sequence_start_positions.tolist() == [0, *accumulate(inner)]
    assert len(rows) == len(outer)


def _step(kind: DataType) -> st.SearchStrategy[Any]:
    """One step of a slot of width 4."""
    values = st.integers(-8, 8).map(float)
    if kind == DataType.Dense:
        return st.lists(values, min_size=4, max_size=4)
    if kind == DataType.Index:
        return st.integers(0, 3)
    if kind == DataType.SparseNonValue:
        return st.lists(st.integers(0, 3), unique=True)
    return st.dictionaries(st.integers(0, 3), values).map(lambda row: list(row.items()))


def _dense(flat: list[Any]) -> np.ndarray:
    dense = np.zeros((len(flat), 4), np.float32)
    for row, entries in zip(dense, flat, strict=True):
        for entry in entries:
            index, value = entry if isinstance(entry, tuple) else (entry, 1)
            row[index] = value
    return dense
