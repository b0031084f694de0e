from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from support.batches import assert_same

from gpufeed.device import virtual_devices
from gpufeed.errors import FieldError, LoDError, PlaceError
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor

CUDA = CUDAPlace(0)


@pytest.fixture
def rows() -> SparseRows:
    """Four rows in two sequences; row 1 is empty."""
    return SparseRows([0, 2, 2, 3, 5], [0, 3, 1, 2, 3], [5.0, 6, 7, 8, 9], 4, lod=[[0, 3, 4]])


@pytest.fixture
def binary(rows) -> SparseRows:
    return SparseRows(rows.offsets, rows.indices, None, 4, lod=rows.lod())


DENSE = [[5, 0, 0, 6], [0, 0, 0, 0], [0, 7, 0, 0], [0, 0, 8, 9]]


def test_dense_form(rows, binary):
    assert rows.to_dense().tolist() == DENSE
    assert binary.to_dense().tolist() == np.array(DENSE).astype(bool).tolist()
    assert (binary.dtype, binary.shape) == (np.float32, (4, 4))


def test_dense_form_is_written_over_what_is_there(rows):
    out = np.full((4, 4), np.nan)
    assert rows.to_dense(out) is out
    assert out.tolist() == DENSE
    with pytest.raises(FieldError, match=r"to_dense\.out must have shape \(4, 4\), got \(4, 5\)"):
        rows.to_dense(np.empty((4, 5)))
    with pytest.raises(FieldError, match=r"to_dense\.out must be an array, got list"):
        rows.to_dense([[0] * 4] * 4)


def test_arrays_are_taken_without_a_copy():
    parts = np.array([0, 1]), np.array([2]), np.array([1.5], np.float16)
    made = SparseRows(*parts, dim=3)
    assert (made.offsets, made.indices, made.values) == parts
    assert made.values is parts[2]


@pytest.mark.parametrize(
    ("offsets", "indices", "kept"),
    [
        ("int32", "int32", "int32"),
        ("int64", "int32", "int64"),
        ("int32", "uint16", "int32"),
        ("int16", "int16", "int64"),
        ("uint64", "uint64", "int64"),
    ],
)
def test_indices_of_any_whole_dtype_become_one_that_kernels_take(offsets, indices, kept):
    made = SparseRows(np.array([0, 1], offsets), np.array([2], indices), None, dim=3)
    assert (made.offsets.dtype, made.indices.dtype) == (kept, kept)
    assert made.to_dense().tolist() == [[0, 0, 1]]


def test_an_index_beyond_int64_is_shown_as_it_is():
    with pytest.raises(FieldError, match=r"must be in \[0, 3\), got 18446744073709551615"):
        SparseRows([0, 1], np.array([2**64 - 1], np.uint64), None, dim=3)


def test_strided_parts_are_made_contiguous(rows):
    parts = (np.repeat(part, 2)[::2] for part in (rows.offsets, rows.indices, rows.values))
    assert SparseRows(*parts, dim=4).to_dense().tolist() == DENSE


def test_what_kernels_do_not_know_is_said_in_the_methods_own_words(rows):
    wide = SparseRows(rows.offsets, rows.indices, rows.values.astype(np.uint16), dim=4)
    with pytest.raises(FieldError, match=r"SparseRows\.to_dense: the values must be of .*uint16"):
        wide.to_dense()
    with pytest.raises(FieldError, match=r"SparseRows\.to_dense\.out must be of .*got complex64"):
        rows.to_dense(np.empty((4, 4), np.complex64))
    with pytest.raises(FieldError, match=r"SparseRows\.to_dense\.out must be C-contiguous"):
        rows.to_dense(np.empty((4, 4)).T)
    with pytest.raises(FieldError, match=r"to_dense\.out must hold numbers for float64, got bool"):
        rows.to_dense(np.empty((4, 4), bool))


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (([0, 2], [1, 4], None, 4), FieldError, r"must be in \[0, 4\), got 4 in row 0"),
        (([0, 0, 1, 2], [1, -1], None, 4), FieldError, r"must be in \[0, 4\), got -1 in row 2"),
        (([0, 2], [1], None, 4), LoDError, r"SparseRows\.offsets must cover 1 indices, got 2"),
        (([1, 2], [1], None, 4), LoDError, r"SparseRows\.offsets must start with 0"),
        (([0, 2, 1], [1], None, 4), LoDError, r"must never fall, got 2 then 1 at entry 1"),
        (([0, 1], [1], [1.0, 2.0], 4), FieldError, "values must be as many as the 1 indices"),
        (([0, 1], [1.0], None, 4), FieldError, r"SparseRows\.indices must be flat numbers"),
        (([0, 1], [[1]], None, 4), FieldError, r"SparseRows\.indices must be flat numbers"),
        (([], [], None, 4), LoDError, r"offsets must start with 0, got \[\]"),
        (([0, 1], [1], None, 0), FieldError, r"SparseRows\.dim must be a whole number >= 1"),
        (([0, 1], [1], None, 2.5), FieldError, r"SparseRows\.dim must be a whole number >= 1"),
        (([0, 1], [1], None, 4, [[0, 2]]), LoDError, "lod level 0 must cover 1 rows, got 2"),
    ],
)
def test_parts_that_do_not_fit(parts, error, message):
    with pytest.raises(error, match=message):
        SparseRows(*parts)


def test_no_rows_and_no_entries():
    assert SparseRows([0], [], None, 3).to_dense().shape == (0, 3)
    assert SparseRows([0, 0], [], [], 3).to_dense().tolist() == [[0, 0, 0]]


def test_sequences_are_cut_like_those_of_a_tensor(rows):
    like = LoDTensor(np.array(DENSE), lod=rows.lod())
    assert rows.lod_level == 1
    assert len(rows) == 2
    assert rows[0].to_dense().tolist() == like[0].tolist()
    assert rows[1:].to_dense().tolist() == like[1:].data.tolist()
    assert rows[1:].lod() == [[0, 1]]
    assert [part.lod() for part in rows.split(2)] == [part.lod() for part in like.split(2)]
    assert rows[::-1].to_list() == rows.to_list()[::-1]
    assert [one.to_dense().tolist() for one in rows] == [one.tolist() for one in like]
    assert rows.cu_seqlens().tolist() == [0, 3, 4]
    rows.set_lod([])
    assert rows[::2].to_dense().tolist() == DENSE[::2]


def test_a_feeders_lod_is_used_and_dropped_with_the_lod(rows):
    sent = (np.array([0, 3, 4], np.int32),)
    made = SparseRows._assemble(
        rows.offsets, rows.indices, rows.values, rows.dim, rows._lod, CPUPlace(), sent
    )
    assert made.cu_seqlens() is sent[0]
    made.set_lod([[0, 4]])
    assert made.cu_seqlens().tolist() == [0, 4]


def test_a_sample_without_lod_is_what_a_reader_gives(rows, binary):
    rows.set_lod([])
    binary.set_lod([])
    columns, values = rows[-1]
    assert (columns.tolist(), values.tolist()) == ([2, 3], [8, 9])
    assert [columns.tolist() for columns in binary] == [[0, 3], [], [1], [2, 3]]
    assert binary.to_list() == [[0, 3], [], [1], [2, 3]]
    assert rows.to_list()[1:3] == [([], []), ([1], [7])]


def test_slices_are_views(rows):
    assert np.shares_memory(rows[1:].indices, rows.indices)
    assert np.shares_memory(rows[1:].values, rows.values)


def test_merge_is_the_inverse_of_split(rows, binary):
    assert_same(SparseRows.merge(rows.split(2)), rows)
    assert_same(SparseRows.merge(binary.split(2)), binary)
    assert_same(SparseRows.merge([rows[:0], rows]), rows)
    with pytest.raises(FieldError, match="one dim and dtype, got dim 4 binary, dim 4 float64"):
        SparseRows.merge([binary, rows])
    with pytest.raises(FieldError, match=r"SparseRows\.parts must be of this type, got LoDTensor"):
        SparseRows.merge([LoDTensor([1])])


def test_places(rows, binary):
    with virtual_devices(1):
        for host in (rows, binary):
            there = host.to("cuda:0")
            assert there.place == CUDA
            assert there.to(CUDA) is there
            assert not np.shares_memory(there.indices, host.indices)
            assert there.to_dense().tolist() == host.to_dense().tolist()
            assert_same(there[[1, 0]].to("cpu"), host[[1, 0]])
            assert_same(SparseRows.merge(there.split(2)), there)
            assert_same(pickle.loads(pickle.dumps(there)), there)
            assert_same(pickle.loads(pickle.dumps(host[1:])), host[1:])
            with pytest.raises(TypeError, match="are on cuda:0 and are not copied unasked"):
                there.to_scipy()
            with pytest.raises(PlaceError, match="to_cupyx must be called on a GPU, got cuda:0"):
                there.to_cupyx()


def test_scipy_both_ways(rows, binary):
    matrix = rows.to_scipy()
    assert matrix.toarray().tolist() == DENSE
    assert np.shares_memory(matrix.data, rows.values)
    assert binary.to_scipy().toarray().tolist() == binary.to_dense().tolist()
    back = SparseRows.from_scipy(matrix, rows.lod())
    assert np.shares_memory(back.values, rows.values)
    assert back.to_list() == rows.to_list()
    assert SparseRows.from_scipy(scipy.sparse.coo_array(DENSE)).to_dense().tolist() == DENSE


def test_repr(rows, binary):
    assert repr(rows) == "SparseRows(shape=(4, 4), stored=5, float64, lod=[[0, 3, 4]], place=cpu)"
    assert "stored=5, binary" in repr(binary)


@pytest.mark.parametrize("matrix", [np.eye(2), [[1]], scipy.sparse.coo_array([1, 0, 2])])
def test_from_scipy_takes_sparse_matrices_only(matrix):
    with pytest.raises(
        FieldError, match=r"from_scipy\.matrix must be a SciPy sparse array .*, got "
    ):
        SparseRows.from_scipy(matrix)
