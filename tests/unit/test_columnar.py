from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.batches import assert_same
from support.strategies import lod_tensors, slices, sparse_rows

from gpufeed.columnar import Column, ColumnarBatch
from gpufeed.errors import FieldError, LoDError
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor


@pytest.fixture
def batch() -> ColumnarBatch:
    """Three samples with a column of every kind."""
    return ColumnarBatch(
        {
            "ids": LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]]),
            "nested": LoDTensor([1.0, 2.0, 3.0], lod=[[0, 2, 2, 3], [0, 1, 2, 3]]),
            "tags": SparseRows([0, 1, 3, 3], [4, 0, 2], None, dim=5),
            "image": np.arange(6, dtype=np.uint8).reshape(3, 2),
            "name": np.array(["a", None, "c"], object),
        }
    )


def same(one: Column, other: Column) -> None:
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert_same(one, other)


def test_a_sample_is_what_a_reader_gives(batch: ColumnarBatch) -> None:
    first, second, _ = batch

    assert list(first) == list(batch.columns) == ["ids", "nested", "tags", "image", "name"]
    assert first["ids"].tolist() == [7, 8]
    assert [part.tolist() for part in first["nested"]] == [[1.0], [2.0]]
    assert type(first["nested"]) is list
    assert second["nested"] == []
    assert second["tags"].tolist() == [0, 2]
    assert second["image"].tolist() == [2, 3]
    assert [row["name"] for row in batch] == ["a", None, "c"]


def test_rows_are_views_in_column_order(batch: ColumnarBatch) -> None:
    for row, sample in zip(batch.rows(), batch, strict=True):
        np.testing.assert_equal(row, tuple(sample.values()))
    ids, *_, image, _ = next(batch.rows())
    assert np.shares_memory(ids, batch.columns["ids"].data)
    assert np.shares_memory(image, batch.columns["image"])


@pytest.mark.parametrize("number", [0, 2, -1, np.int8(1)])
def test_one_sample_equals_that_of_the_iteration(batch: ColumnarBatch, number: int) -> None:
    np.testing.assert_equal(batch[number], list(batch)[number])


@pytest.mark.parametrize("number", [3, -4])
def test_sample_numbers_are_checked(batch: ColumnarBatch, number: int) -> None:
    with pytest.raises(IndexError):
        batch[number]


@pytest.mark.parametrize("index", ["ids", (0, 1), 1.5, None])
def test_other_indices_are_refused(batch: ColumnarBatch, index: object) -> None:
    with pytest.raises(TypeError):
        batch[index]


def test_slices_are_views(batch: ColumnarBatch) -> None:
    part = batch[1:]

    assert len(part) == 2
    assert part.columns["ids"].lod() == [[0, 0, 1]]
    assert part.columns["nested"].lod() == [[0, 0, 1], [0, 1]]
    for name in ("ids", "nested"):
        assert np.shares_memory(part.columns[name].data, batch.columns[name].data)
    assert np.shares_memory(part.columns["tags"].indices, batch.columns["tags"].indices)
    assert np.shares_memory(part.columns["image"], batch.columns["image"])


@given(data=st.data())
def test_every_selection_is_that_of_the_list(data: st.DataObject) -> None:
    column: Column = data.draw(lod_tensors() | sparse_rows())
    numbers = np.arange(len(column))
    batch = ColumnarBatch({"column": column, "number": numbers})
    index = data.draw(
        slices(len(column))
        | st.lists(st.integers(-len(column), len(column) - 1) if len(column) else st.nothing())
        | st.lists(st.booleans(), min_size=len(column), max_size=len(column)).map(
            lambda mask: np.array(mask, bool)
        )
    )

    picked = batch[index]

    assert picked.columns["number"].tolist() == numbers[index].tolist()
    assert len(picked) == len(numbers[index])
    same(picked.columns["column"], column[index])


@given(data=st.data())
def test_the_parts_of_a_batch_join_to_it(data: st.DataObject) -> None:
    column: Column = data.draw(lod_tensors(levels=data.draw(st.integers(0, 3))) | sparse_rows())
    batch = ColumnarBatch({"column": column, "number": np.arange(len(column))})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(batch)))))
    bounds = zip([0, *cuts], [*cuts, len(batch)], strict=True)

    joined = ColumnarBatch.concat(batch[begin:end] for begin, end in bounds)

    same(joined.columns["column"], column)
    assert joined.columns["number"].tolist() == list(range(len(batch)))


def test_columns_are_taken_as_they_are_and_stay(batch: ColumnarBatch) -> None:
    array = np.zeros(2)
    given_columns = {"x": array}
    made = ColumnarBatch(given_columns)
    given_columns["y"] = array

    assert made.columns["x"] is array
    assert list(made.columns) == ["x"]
    with pytest.raises(TypeError):
        made.columns["y"] = array  # type: ignore[index]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"columns must hold equally many samples, got no column"),
        (3, r"columns must map names to columns, got 3"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, r"equally many samples, got x: 2, y: 3"),
        ({"x": [1, 2]}, r"columns\['x'\] must be a LoDTensor, .* got \[1, 2\]"),
        ({"x": np.array(5)}, r"columns\['x'\] must be .* with a first axis, got array\(5\)"),
    ],
)
def test_columns_are_checked(columns: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        ColumnarBatch(columns)


X = np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"y": X}, "parts must have the columns x, got y"),
        ({"x": X, "y": X}, "parts must have the columns x, got x, y"),
        ({"x": X.astype(int)}, "column 'x' must be of one kind, got float32, int64"),
        ({"x": X[:, None]}, r"column 'x' must be of one kind, got float32, float32 \(1,\)"),
        ({"x": LoDTensor(X)}, "column 'x' must be of one kind, got float32, float32 lod_level=0"),
    ],
)
def test_parts_must_be_alike(other: dict[str, Column], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        ColumnarBatch.concat([ColumnarBatch({"x": X}), ColumnarBatch(other)])


def test_parts_of_other_levels_do_not_join() -> None:
    flat, nested = LoDTensor(X, [[0, 1]]), LoDTensor(X, [[0, 1], [0, 1]])
    with pytest.raises(LoDError, match="equally many LoD levels"):
        ColumnarBatch.concat([ColumnarBatch({"x": flat}), ColumnarBatch({"x": nested})])


def test_there_must_be_parts() -> None:
    with pytest.raises(FieldError, match=r"concat\.parts must be one batch or more, got none"):
        ColumnarBatch.concat(iter(()))


def test_a_batch_shows_its_columns(batch: ColumnarBatch) -> None:
    assert repr(batch[:2]) == (
        "ColumnarBatch(2 samples: ids int64 lod_level=1, nested float64 lod_level=2, "
        "tags sparse float32 lod_level=0, image uint8 (2,), name object)"
    )


def test_batches_travel(batch: ColumnarBatch) -> None:
    there = pickle.loads(pickle.dumps(batch))

    for name, column in batch.columns.items():
        same(there.columns[name], column)
