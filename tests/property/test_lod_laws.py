"""What holds for every LoD, every tensor and every batch of sparse rows."""

from __future__ import annotations

import io
import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import assert_same
from support.strategies import cut, lod_tensors, nested_lengths, slices, sparse_rows

from gpufeed.device import virtual_devices
from gpufeed.lod import from_lengths, from_offsets, to_lengths
from gpufeed.places import CUDAPlace
from gpufeed.split import split_points
from gpufeed.tensor import LoDTensor

POLICIES = st.sampled_from(["ceil", "floor", "tokens"])
RAGGED = st.integers(1, 3).flatmap(lod_tensors)
BATCHES = st.one_of(lod_tensors(), sparse_rows())


@given(nested_lengths())
def test_lengths_and_offsets_say_the_same(lengths):
    rows = sum(lengths[-1]) if lengths else 0
    lod = from_lengths(lengths, rows)
    assert [level.tolist() for level in to_lengths(lod)] == lengths
    again = from_offsets([level.tolist() for level in lod], rows)
    assert [level.tolist() for level in again] == [level.tolist() for level in lod]


@given(lod_tensors())
def test_a_tensor_is_its_rows_cut_by_its_lengths(t):
    assert t.to_list() == cut(t.data.tolist(), t.recursive_sequence_lengths())
    assert [np.asarray(sample).tolist() for sample in t] == [
        np.asarray(t[i]).tolist() for i in range(len(t))
    ]


@given(st.data())
def test_every_slice_is_the_slice_of_the_list(data):
    batch = data.draw(BATCHES)
    index = data.draw(slices(len(batch)))
    assert batch[index].to_list() == batch.to_list()[index]
    assert batch[index].lod_level == batch.lod_level
    assert batch[index].has_valid_recursive_sequence_lengths()


@given(st.data())
def test_picked_samples_are_those_of_the_list(data):
    batch = data.draw(BATCHES)
    size = len(batch)
    numbers = data.draw(st.lists(st.integers(-size, size - 1), max_size=8)) if size else []
    assert batch[numbers].to_list() == [batch.to_list()[i] for i in numbers]


@given(BATCHES, st.integers(1, 9), POLICIES)
def test_parts_merge_back(batch, n, policy):
    parts = batch.split(n, policy)
    assert len(parts) <= max(n, 1)
    assert list(chain.from_iterable(part.to_list() for part in parts)) == batch.to_list()
    if len(batch):
        assert all(len(part) for part in parts)
        assert_same(type(batch).merge(parts), batch)
    else:
        assert len(parts) == n


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 8))
def test_no_part_holds_more_tokens_than_its_share_and_one_sample(lengths, n):
    rows = np.cumsum([0, *lengths])
    held = np.diff(rows[split_points(rows, n, "tokens")])
    assert len(held) == min(n, len(lengths))
    assert held.max() <= -(-rows[-1] // n) + max(lengths)


@settings(deadline=None)  # the first example compiles the kernels
@given(RAGGED, st.integers(0, 2))
def test_unpad_of_pad_is_the_tensor(t, extra):
    padded, lengths = t.to_padded(max_length=t.max_seqlen() + extra)
    upper = t.lod()[:-1]
    assert_same(LoDTensor.from_padded(padded, lengths, upper_lod=upper), t)
    np.testing.assert_array_equal(padded[t.mask(padded.shape[1])], t.data)
    assert not padded[~t.mask(padded.shape[1])].any()


@given(RAGGED)
def test_segments_and_positions_find_every_row(t):
    offsets = t.cu_seqlens()
    np.testing.assert_array_equal(offsets[t.segment_ids()] + t.positions(), np.arange(len(t.data)))


@given(BATCHES)
def test_pickle_round_trip(batch):
    assert_same(pickle.loads(pickle.dumps(batch)), batch)


@given(lod_tensors(dtypes=("bool", "float16", "float32", "float64", "int8", "int16", "int64")))
def test_save_and_load_round_trip(t):
    file = io.BytesIO()
    t.save(file)
    file.seek(0)
    assert_same(LoDTensor.load(file), t)
    assert file.read() == b""


@given(BATCHES)
def test_a_device_gives_back_what_it_got(batch):
    with virtual_devices(1):
        there = batch.to(CUDAPlace(0))
        assert_same(there.to("cpu"), batch)
        assert there.to_list() == batch.to_list()


@settings(deadline=None)  # the first example compiles the kernels
@given(sparse_rows())
def test_dense_rows_are_scipys(rows):
    pytest.importorskip("scipy")
    np.testing.assert_array_equal(rows.to_dense(), rows.to_scipy().toarray())


@given(lod_tensors())
def test_arrow_round_trip(t):
    pytest.importorskip("pyarrow")
    assert_same(LoDTensor.from_arrow(t.to_arrow()), t)
