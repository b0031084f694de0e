from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from support.batches import assert_same

from gpufeed.errors import FieldError, LoDError, MissingExtra
from gpufeed.interop import arrow as arrow_interop
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor


@pytest.fixture
def words() -> LoDTensor:
    return LoDTensor(np.arange(6.0).reshape(6, 1), lod=[[0, 2, 2, 6]])


@pytest.fixture
def sparse() -> SparseRows:
    return SparseRows([0, 2, 3], [0, 2, 1], [1.0, 2.0, 3.0], 3)


def test_torch_shares_memory(words):
    torch = pytest.importorskip("torch")
    rows = words.to_torch()
    rows[0] = 9
    assert words.data[0] == 9
    assert LoDTensor(rows).data[0] == 9
    assert LoDTensor(torch.arange(3)).to_list() == [0, 1, 2]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert LoDTensor(frozen).to_torch().tolist() == [0, 1, 2]


def test_what_dlpack_does_not_share_is_named():
    torch = pytest.importorskip("torch")
    with pytest.raises(FieldError, match=r"LoDTensor\.data .*torch\.float32 \(.*; use \.detach\("):
        LoDTensor(torch.ones(3, requires_grad=True))
    with pytest.raises(FieldError, match=r"LoDTensor\.data .* got Tensor of torch\.bfloat16 \("):
        LoDTensor(torch.ones(3, dtype=torch.bfloat16))
    with pytest.raises(FieldError, match=r"LoDTensor\.data .* got Tensor of torch\.float32 \("):
        LoDTensor(torch.ones(3, device="meta"))


def test_torch_nested_is_jagged(words):
    pytest.importorskip("torch")
    nested = words.to_torch_nested()
    assert [row.tolist() for row in nested.unbind()] == words.to_list()
    assert nested.values().data_ptr() == words.data.ctypes.data
    with pytest.raises(LoDError, match="must have one LoD level, got 2"):
        LoDTensor([1], lod=[[0, 1], [0, 1]]).to_torch_nested()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_torch_csr(sparse):
    pytest.importorskip("torch")
    matrix = sparse.to_torch()
    assert matrix.to_dense().tolist() == sparse.to_dense().tolist()
    assert matrix.values().data_ptr() == sparse.values.ctypes.data


def test_jax(words, sparse):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        assert words.to_jax().tolist() == words.data.tolist()
        assert LoDTensor(words.to_jax()).shape == (6, 1)
        assert sparse.to_jax().todense().tolist() == sparse.to_dense().tolist()


@pytest.mark.parametrize(
    "tensor",
    [
        LoDTensor(np.arange(6, dtype=np.int16)),
        LoDTensor(np.arange(6.0).reshape(6, 1), lod=[[0, 2, 2, 6]]),
        LoDTensor(np.arange(18).reshape(9, 2), lod=[[0, 2, 3], [0, 3, 5, 9]]),
        LoDTensor(np.arange(24).reshape(2, 3, 4)),
        LoDTensor(np.empty((0, 2)), lod=[[0]]),
        LoDTensor(np.array([True, False, True]), lod=[[0, 1, 3]]),
    ],
    ids=repr,
)
def test_arrow_both_ways(tensor):
    pytest.importorskip("pyarrow")
    array = tensor.to_arrow()
    array.validate(full=True)
    assert array.to_pylist() == tensor.to_list()
    back = LoDTensor.from_arrow(array)
    assert_same(back, tensor)
    if tensor.dtype != bool and tensor.data.size:
        assert np.shares_memory(back.data, tensor.data)


def test_arrow_slices_chunks_and_small_lists():
    arrow = pytest.importorskip("pyarrow")
    lists = [[1, 2], [], [3], [4, 5, 6]]
    array = arrow.array(lists, arrow.list_(arrow.int32()))
    assert LoDTensor.from_arrow(array[1:3]).to_list() == [[], [3]]
    chunks = arrow.chunked_array([array[:1], array[1:]])
    assert LoDTensor.from_arrow(chunks).to_list() == lists
    pairs = arrow.array([[[1, 2]], [[3, 4], [5, 6]]], arrow.list_(arrow.list_(arrow.int8(), 2)))
    assert LoDTensor.from_arrow(pairs[1:]).to_list() == [[[3, 4], [5, 6]]]
    flat = arrow.array([[1, 2], [3, 4]], arrow.list_(arrow.int8(), 2))
    assert LoDTensor.from_arrow(flat[1:]).to_list() == [[3, 4]]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1], None], "must hold no nulls, got 1"),
        ([[1, None]], "must hold no nulls, got 1"),
        ([["a"]], "must hold lists of numbers, got string"),
        ([[dt.date(2020, 1, 1)]], "must hold lists of numbers, got date32"),
        ([{"a": 1}], "must hold lists of numbers, got struct"),
    ],
)
def test_arrow_arrays_that_are_no_tensor(lists, message):
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(FieldError, match=message):
        LoDTensor.from_arrow(arrow.array(lists))


def test_arrow_offsets_are_not_trusted():
    arrow = pytest.importorskip("pyarrow")
    offsets = arrow.array([0, 3, 1, 2], arrow.int64())
    damaged = arrow.LargeListArray.from_arrays(offsets, arrow.array([7, 8]))
    with pytest.raises(LoDError, match=r"from_arrow\.array level 0 must never fall, got 3 then 1"):
        LoDTensor.from_arrow(damaged)


def test_awkward(words):
    awkward = pytest.importorskip("awkward")
    deep = LoDTensor(np.arange(18).reshape(9, 2), lod=[[0, 2, 3], [0, 3, 5, 9]])
    for tensor in (words, deep, LoDTensor([1, 2])):
        array = tensor.to_awkward()
        assert array.to_list() == tensor.to_list()
    flat = awkward.to_numpy(awkward.flatten(words.to_awkward(), axis=1))
    assert np.shares_memory(flat, words.data)


def test_a_missing_library_is_named(words, monkeypatch):
    def missing(module: str, extra: str) -> None:
        raise MissingExtra(f"{module} is not installed: pip install 'gpufeed[{extra}]'")

    monkeypatch.setattr(arrow_interop, "import_extra", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[arrow\]'"):
        words.to_arrow()


def test_arrow_arrays_only():
    pytest.importorskip("pyarrow")
    with pytest.raises(FieldError, match=r"from_arrow\.array must be a pyarrow array, got list"):
        LoDTensor.from_arrow([[1]])
