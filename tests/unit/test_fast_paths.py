"""The forms that samples usually have are written without the second look, which is slow."""

from __future__ import annotations

import numpy as np
import pytest
from support.columns import feed_column

from gpufeed import strict


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch):
    def refuse(*_):
        raise AssertionError("a second look at every sample")

    monkeypatch.setattr(strict, "dense_rows", refuse)
    monkeypatch.setattr(strict, "sparse_rows", refuse)


IDS = np.arange(3), np.arange(2)
PIXELS = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("values", "shape", "dtype", "lod_level"),
    [
        (PIXELS, [2, 2], "float32", 0),
        ([row.ravel() for row in PIXELS], [2, 2], "float32", 0),
        ([row.astype(np.float64) for row in PIXELS], [2, 2], "float32", 0),
        ([row.tolist() for row in PIXELS], [2, 2], "float32", 0),
        ([(1.0, 2.0), (3.0, 4.0)], [2], "float16", 0),
        ([3, 1], [1], "int64", 0),
        ([np.int64(3), np.int64(1)], [None], "int32", 0),
        ([True, False], [1], "bool", 0),
        (IDS, [1], "int64", 1),
        (IDS, [1], "int32", 1),
        ([ids[:, None] for ids in IDS], [1], "int64", 1),
        ([ids.tolist() for ids in IDS], [1], "int64", 1),
        ([[[1], [2]], [[3]]], [1], "int64", 1),
        ([[[1.0, 2.0], [3.0, 4.0]], []], [2], "float32", 1),
        ([[[1, 2], [3]], []], [1], "int64", 2),
        ([[[[1], [2, 3]]], [[]]], [1], "uint8", 3),
    ],
)
def test_dense(values, shape, dtype, lod_level):
    assert feed_column(values, shape, dtype, lod_level).dtype == dtype


@pytest.mark.parametrize(
    ("values", "layout", "lod_level"),
    [
        (IDS, "sparse_binary", 0),
        ([[0, 2], []], "sparse_binary", 0),
        ([[[0, 2], []], [[1]]], "sparse_binary", 1),
        ([[[[0, 2]], []], []], "sparse_binary", 2),
        ([(ids, np.ones(len(ids), np.float32)) for ids in IDS], "sparse_float", 0),
        ([[(0, 0.5), (2, 1.0)], []], "sparse_float", 0),
        ([[[(0, 0.5)], [(2, 1.0)]], []], "sparse_float", 1),
    ],
)
def test_sparse(values, layout, lod_level):
    rows = feed_column(values, [4], "float32", lod_level, layout=layout)
    assert rows.indices.max() <= 3
