"""What Arrow arrays become: every kind of list, sliced and with nulls, and what is refused."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufeed.errors import FieldError
from gpufeed.interop.arrow import unpack

pa = pytest.importorskip("pyarrow")


def as_lists(values: np.ndarray, lod: tuple[np.ndarray, ...]) -> list[Any]:
    rows = values.tolist()
    for offsets in reversed(lod):
        rows = [rows[begin:end] for begin, end in pairwise(offsets)]
    return rows


def lists(depth: int) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any] = st.integers(-9, 9)
    for _ in range(depth):
        strategy = st.lists(strategy, max_size=3)
    return strategy


def list_type(depth: int, large: list[bool]) -> Any:
    kind = pa.int16()
    for is_large in large[:depth]:
        kind = pa.large_list(kind) if is_large else pa.list_(kind)
    return kind


@given(data=st.data(), depth=st.integers(0, 3), large=st.lists(st.booleans(), min_size=3))
def test_every_slice_of_every_nesting_is_that_of_the_list(
    data: st.DataObject, depth: int, large: list[bool]
) -> None:
    rows = data.draw(st.lists(lists(depth), max_size=5))
    array = pa.array(rows, list_type(depth, large))
    begin, end = sorted(data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))

    values, lod = unpack(array[begin:end], "x")

    assert len(lod) == depth
    assert all(offsets.dtype == np.int64 and offsets[0] == 0 for offsets in lod)
    assert values.dtype == np.int16
    assert as_lists(values, lod) == rows[begin:end]


@given(data=st.data(), depth=st.integers(0, 2))
def test_filled_nulls_are_values_and_empty_lists(data: st.DataObject, depth: int) -> None:
    strategy: st.SearchStrategy[Any] = st.none() | st.integers(-9, 9)
    for _ in range(depth):
        strategy = st.none() | st.lists(strategy, max_size=3)
    rows = data.draw(st.lists(strategy, max_size=5))
    begin, end = sorted(data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))
    array = pa.array(rows, list_type(depth, [False, True]))[begin:end]

    def filled(row: Any, level: int) -> Any:
        if level == depth:
            return 7 if row is None else row
        return [filled(part, level + 1) for part in row or []]

    values, lod = unpack(array, "x", fill=7)

    assert as_lists(values, lod) == [filled(row, 0) for row in rows[begin:end]]


def test_a_null_list_over_values_is_empty_when_filled() -> None:
    # A null entry's offsets may span values all the same.
    array = pa.ListArray.from_arrays(
        pa.array([0, 2, 3]), pa.array([7, 8, 9]), mask=pa.array([True, False])
    )

    values, lod = unpack(array, "x", fill=0)

    assert as_lists(values, lod) == [[], [9]]


@pytest.mark.parametrize("large", [False, True])
def test_values_are_the_memory_of_the_array(large: bool) -> None:
    numbers = np.arange(6.0)
    kind, width = (pa.LargeListArray, "i8") if large else (pa.ListArray, "i4")
    array = kind.from_arrays(pa.array(np.array([0, 2, 6], width)), pa.array(numbers))

    values, (offsets,) = unpack(array[1:], "x")

    assert np.shares_memory(values, numbers)
    assert (values.tolist(), offsets.tolist()) == ([2, 3, 4, 5], [0, 4])


@pytest.mark.parametrize(
    ("rows", "kind", "shape"),
    [
        ([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2), (2, 2)),
        ([[[1], [2]], [[3], [4]], [[5], [6]]], pa.list_(pa.list_(pa.int8(), 1), 2), (2, 2, 1)),
        ([[], [], []], pa.list_(pa.int8(), 0), (2, 0)),
    ],
)
def test_fixed_size_lists_are_item_dimensions(rows: list[Any], kind: Any, shape: Any) -> None:
    values, lod = unpack(pa.array(rows, kind)[1:], "x")

    assert (values.shape, lod) == (shape, ())
    assert values.tolist() == rows[1:]


def test_lists_of_fixed_size_lists_are_sequences_of_items() -> None:
    array = pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int8(), 2)))

    values, (offsets,) = unpack(array[1:], "x")

    assert (values.tolist(), offsets.tolist()) == ([[3, 4], [5, 6]], [0, 0, 2])


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (["a", "", "ü"], pa.string()),
        (["a", "", "ü"], pa.large_string()),
        (["a", "", "ü"], pa.string_view()),
        ([b"a", b"", b"\xff"], pa.binary()),
        ([b"ab", b"cd"], pa.binary(2)),
        ([True, False, True], pa.bool_()),
        ([1.5, 2.0], pa.float16()),
        ([2**63, 5], pa.uint64()),
        (["a", "b", "a"], pa.dictionary(pa.int8(), pa.string())),
        ([7, 8, 7], pa.dictionary(pa.int32(), pa.int64())),
    ],
)
def test_what_is_no_list_stays_as_it_is(rows: list[Any], kind: Any) -> None:
    values, lod = unpack(pa.array(rows, kind)[1:], "x")

    assert (values.tolist(), lod) == (rows[1:], ())


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (pa.timestamp("us"), "M8[us]"),
        (pa.timestamp("ns", "UTC"), "M8[ns]"),
        (pa.date32(), "M8[D]"),
        (pa.duration("s"), "m8[s]"),
    ],
)
def test_times_are_those_of_numpy(kind: Any, dtype: str) -> None:
    values, _ = unpack(pa.array([1, 2], kind), "x")

    assert values.dtype == dtype
    assert values.astype(int).tolist() == [1, 2]


def test_lists_of_dictionaries_are_decoded() -> None:
    array = pa.array([[5, 7], [5]], pa.list_(pa.dictionary(pa.int8(), pa.int64())))

    assert as_lists(*unpack(array, "x")) == [[5, 7], [5]]


def test_tensors_of_one_shape_are_items() -> None:
    tensors = np.arange(24).reshape(4, 3, 2)

    values, lod = unpack(pa.FixedShapeTensorArray.from_numpy_ndarray(tensors)[1:], "x")

    assert lod == ()
    np.testing.assert_array_equal(values, tensors[1:])


class _Extension(pa.ExtensionType):  # type: ignore[misc]
    """An extension of lists; with a shape, as Ray's tensors are."""

    def __init__(self, shape: tuple[int, ...] | None = None) -> None:
        if shape is not None:
            self.shape = shape
        super().__init__(pa.large_list(pa.int64()), "gpufeed.test")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_extension_types_are_what_they_are_stored_as_or_tensors_of_their_shape() -> None:
    storage = pa.array([[1, 2], [3, 4], [5, 6]], pa.large_list(pa.int64()))

    lists = pa.ExtensionArray.from_storage(_Extension(), storage)[1:]
    tensors = pa.ExtensionArray.from_storage(_Extension((2, 1)), storage)[1:]

    assert as_lists(*unpack(lists, "x")) == [[3, 4], [5, 6]]
    values, lod = unpack(tensors, "x")
    assert (values.tolist(), lod) == ([[[3], [4]], [[5], [6]]], ())


@pytest.mark.parametrize(
    ("rows", "kind", "count", "row"),
    [
        ([1, None, 3, None], pa.int8(), 2, 11),
        ([[1], None], pa.list_(pa.int8()), 1, 11),
        ([[1], [], [2, None]], pa.list_(pa.int8()), 1, 12),
        ([[[]], [[1], [2, None]], [None]], pa.list_(pa.list_(pa.int8())), 1, 12),
        ([[[]], [[1], [2, None]], [[3]]], pa.list_(pa.list_(pa.int8())), 1, 11),
        ([[1, 2], None], pa.list_(pa.int8(), 2), 1, 11),
        ([[1, 2], [3, None]], pa.list_(pa.int8(), 2), 1, 11),
        ([[[1, 2]], [], [[3, 4], None]], pa.list_(pa.list_(pa.int8(), 2)), 1, 12),
        (["a", None], pa.dictionary(pa.int8(), pa.string()), 1, 11),
        ([None], pa.string(), 1, 10),
    ],
)
def test_nulls_name_their_row(rows: list[Any], kind: Any, count: int, row: int) -> None:
    with pytest.raises(FieldError, match=f"^x must hold no nulls, got {count}, .* in row {row}$"):
        unpack(pa.array(rows, kind), "x", first_row=10)


def test_nulls_of_a_slice_name_their_row_in_the_slice() -> None:
    array = pa.array([[0], [1], [2, None], [3]])[1:]

    with pytest.raises(FieldError, match=r"in row 1$"):
        unpack(array, "x")


def test_null_fixed_size_lists_are_not_filled() -> None:
    with pytest.raises(FieldError, match="x must hold no nulls, got 1, the first in row 1"):
        unpack(pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "x", fill=0)


@pytest.mark.parametrize(
    ("kind", "fill"),
    [
        (pa.int8(), 1.5),
        (pa.int8(), 300),
        (pa.int8(), "a"),
        (pa.string(), 1),
        (pa.bool_(), 2),
    ],
)
def test_a_fill_must_be_of_the_column(kind: Any, fill: Any) -> None:
    with pytest.raises(FieldError, match=f"x must be filled by a value of {kind}, got {fill!r}"):
        unpack(pa.array([None], kind), "x", fill=fill)


@pytest.mark.parametrize(
    ("rows", "kind", "got"),
    [
        ([{"a": 1}], None, r"struct<a: int64>"),
        ([[{"a": 1}]], None, "struct<a: int64>"),
        ([["a"]], None, "string"),
        ([[dt.date(2020, 1, 1)]], None, "date32"),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int8()), "map<string, int8"),
        ([[[1, 2], [3]]], pa.list_(pa.list_(pa.int8()), 2), "list<item: int8>"),
        ([1], pa.decimal128(5), "decimal128"),
        ([dt.time(1)], None, "time64"),
    ],
)
def test_what_no_column_is_made_of_is_refused(rows: list[Any], kind: Any, got: str) -> None:
    with pytest.raises(FieldError, match=f"^x must hold .*lists of numbers, got {got}"):
        unpack(pa.array(rows, kind), "x")


def test_a_column_of_nothing_but_nulls_is_refused() -> None:
    with pytest.raises(FieldError, match="x must hold no nulls, got 2, the first in row 0"):
        unpack(pa.nulls(2), "x")
