"""`assert_equal`: what is equal, and how the first difference is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from support.strategies import lod_tensors, sparse_rows

from gpufeed import CPUPlace, CUDAPlace, Feed, LoDTensor, SparseRows, virtual_devices
from gpufeed.columnar import ColumnarBatch
from gpufeed.testing import assert_equal
from gpufeed.testing.compare import difference


@dataclass
class Example:
    """A sample as users make them: `==` of two of them is no truth value."""

    ids: np.ndarray
    label: int = 0


EQUAL = [
    (Example(np.arange(2)), Example(np.arange(2))),
    (np.float32(1), np.float32(1)),
    (np.float32(1), 1.0),
    (1, 1.0),
    (None, None),
    ("a", "a"),
    (float("nan"), float("nan")),
    ([1, (2, None)], [1, (2, None)]),
    ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
    (np.array([1.0, np.nan]), np.array([1.0, np.nan])),
    (np.array(["a", "b"]), np.array(["a", "b"])),
    (np.array([[1, None]], dtype=object), np.array([[1, None]], dtype=object)),
    (np.array([]), np.array([])),
    (np.array(3), np.array(3)),
    (LoDTensor([1, 2]), np.array([1, 2])),
    (SparseRows([0, 1], [2], [1.0], 4), SparseRows(np.array([0, 1], np.int32), [2], [1.0], 4)),
]

DIFFERENT = [
    ([Example(np.arange(2))], [Example(np.array([0, 2]))], "[0].ids[1]: 1 is not 2"),
    (Example(np.arange(2)), Example(np.arange(2), 1), ".label: 0 is not 1"),
    (np.float32(1), np.float64(1), "dtypes float32 and float64 differ"),
    (1, 2, "1 is not 2"),
    (1, "1", "1 is not '1'"),
    ([1, 2], [1], "lengths 2 and 1 differ"),
    ([1], (1,), "list is not tuple"),
    ([1, [2, 3]], [1, [2, 4]], "[1][1]: 3 is not 4"),
    ({"a": 1}, {"b": 1}, "keys ['a'] and ['b'] differ"),
    ({"a": (1, 2)}, {"a": (1, 3)}, "['a'][1]: 2 is not 3"),
    (np.zeros(2), np.zeros(2, np.float32), "dtypes float64 and float32 differ"),
    (np.zeros(2), np.zeros((2, 1)), "shapes (2,) and (2, 1) differ"),
    (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [0, 4]]), "[1, 0]: 3 is not 0"),
    (np.array(3), np.array(4), "3 is not 4"),
    (np.array([1.0, np.nan]), np.array([np.nan, np.nan]), "[0]: 1.0 is not nan"),
    (np.array([None, [1]], object), np.array([None, [2]], object), "[1][0]: 1 is not 2"),
    (np.zeros(2), [0.0, 0.0], "ndarray is not list"),
    (np.zeros(2), None, "ndarray is not NoneType"),
    (
        LoDTensor([1, 2], lod=[[0, 1, 2]]),
        LoDTensor([1, 2], lod=[[0, 2, 2]]),
        ".lod[0][1]: 1 is not 2",
    ),
    (LoDTensor([1, 2], lod=[[0, 2]]), np.array([1, 2]), "LoDTensor is not ndarray"),
    (LoDTensor([1, 2]), LoDTensor([1, 3]), "[1]: 2 is not 3"),
    (
        SparseRows([0, 1], [2], [1.0], 4),
        SparseRows([0, 1], [2], None, 4),
        "ndarray is not NoneType",
    ),
    (SparseRows([0, 1], [2], None, 4), SparseRows([0, 1], [3], None, 4), ".indices[0]: 2 is not 3"),
    (SparseRows([0, 1], [2], None, 4), SparseRows([0, 1], [2], None, 5), ".shape[1]: 4 is not 5"),
    (
        ColumnarBatch({"x": np.arange(2)}),
        ColumnarBatch({"x": np.arange(1, 3)}),
        ".columns['x'][0]: 0 is not 1",
    ),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal(a, b):
    assert_equal(a, b)
    assert_equal(b, a)


@pytest.mark.parametrize(("a", "b", "message"), DIFFERENT)
def test_different(a, b, message):
    with pytest.raises(AssertionError) as caught:
        assert_equal(a, b)
    assert str(caught.value).endswith(message)
    assert difference(b, a) is not None


@given(lod_tensors(), lod_tensors())
def test_tensors_are_equal_if_their_parts_are(a, b):
    is_equal = (
        a.lod() == b.lod()
        and a.dtype == b.dtype
        and a.shape == b.shape
        and (a.numpy() == b.numpy()).all()
    )
    assert (difference(a, b) is None) == is_equal
    assert difference(a, a.to(CPUPlace())) is None


@given(sparse_rows())
def test_sparse_rows_are_equal_to_themselves(rows):
    assert difference({"x": rows}, {"x": rows}) is None


def test_places_do_not_matter():
    with virtual_devices(1):
        here = Feed([("x", LoDTensor([1, 2], lod=[[0, 2]]))], place=CPUPlace())
        there = Feed([("x", here["x"].to(CUDAPlace(0)))], place=CUDAPlace(0))
        assert_equal(here, there)
        assert_equal(there["x"].numpy(), np.array([1, 2]))


def test_long_values_are_told_shortly():
    assert len(difference("a" * 10_000, "b") or "") < 200
