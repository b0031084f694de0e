"""Laws of feeding: the form of the input never changes the feed, and no value changes silently."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, pairwise
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from support.columns import feed_column, make_feeder
from support.strategies import DTYPES, cut, nested_lengths

from gpufeed import strict
from gpufeed.columns import DenseColumn
from gpufeed.device.virtual import virtual_devices
from gpufeed.errors import FieldError
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard

Array = np.ndarray[Any, Any]
ITEMS = [(), (1,), (3,), (2, 2), (1, 1), (2, 0)]


def values_of(dtype: str) -> SearchStrategy[Any]:
    """Return Python values that ``dtype`` holds exactly."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return st.booleans()
    if kind.kind == "f":
        return st.floats(width=8 * kind.itemsize)  # type: ignore[arg-type]
    bounds = np.iinfo(kind)
    return st.integers(int(bounds.min), int(bounds.max))


def sources_of(rows: Array) -> list[str]:
    """Return the dtypes of the same kind, in both byte orders, that hold just these values."""
    kinds = {"b": "b", "f": "f"}.get(rows.dtype.kind, "iu")
    dtypes = [dtype for dtype in map(np.dtype, (*DTYPES, "uint64")) if dtype.kind in kinds]
    if kinds == "iu":
        fitting = [dtype for dtype in dtypes if strict.in_range(rows, dtype)]
    else:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            back = [rows.astype(dtype).astype(rows.dtype) for dtype in dtypes]
        pairs = zip(dtypes, back, strict=True)
        fitting = [dtype for dtype, same in pairs if np.array_equal(same, rows, kinds == "f")]
    return [order + dtype.str[1:] for dtype in fitting for order in "<>"]


@st.composite
def arrays_of(draw: DrawFn, rows: Array) -> Array:
    """Return ``rows`` in another memory layout, byte order or dtype that can hold them."""
    made = rows.astype(draw(st.sampled_from(sources_of(rows))))
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed"]))
    if layout == "F":
        return np.asfortranarray(made)
    if layout == "strided":
        return np.repeat(made, 2, axis=0)[::2]
    if layout == "reversed":
        return made[::-1].copy()[::-1]
    return made


@st.composite
def row_forms(draw: DrawFn, row: Array, *, flat: bool) -> Any:
    """Return one row as a list, tuple, array, or flat where that is allowed."""
    if flat and row.ndim > 1 and draw(st.booleans()):
        row = row.reshape(-1)
    form = draw(st.sampled_from(["list", "tuple", "array", "scalars"]))
    if form == "array" and row.ndim:
        return draw(arrays_of(row))
    if form == "array":
        return np.asarray(row)
    if form == "scalars" and row.ndim == 1:
        return list(row)
    as_list = row.tolist()
    return tuple(as_list) if form == "tuple" and row.ndim else as_list


@st.composite
def sequence_forms(draw: DrawFn, rows: Array) -> Any:
    """Return the rows of one sequence in any form that a sequence may take."""
    if rows.ndim == 2 and rows.shape[1] == 1 and draw(st.booleans()):
        rows = rows[:, 0]  # single values may be given bare
    if draw(st.booleans()):
        return draw(arrays_of(rows))
    made = [draw(row_forms(row, flat=False)) for row in rows]
    return tuple(made) if draw(st.booleans()) else made


@st.composite
def dense_columns(draw: DrawFn) -> dict[str, Any]:
    """Return a column as arrays, the reference, and once more in forms that differ by sample."""
    dtype = draw(st.sampled_from(DTYPES))
    item = draw(st.sampled_from(ITEMS))
    lengths = draw(nested_lengths(max_samples=4))
    num_rows = sum(lengths[-1]) if lengths else draw(st.integers(0, 4))
    size = num_rows * int(np.prod(item))
    flat = draw(st.lists(values_of(dtype), min_size=size, max_size=size))
    rows = np.array(flat, dtype).reshape(num_rows, *item)
    if lengths:
        ends = np.cumsum([0, *lengths[-1]])
        blocks = [rows[a:b] for a, b in pairwise(ends)]
        forms = [draw(sequence_forms(block)) for block in blocks]
    else:
        blocks = list(rows)
        forms = [draw(row_forms(row, flat=True)) for row in rows]
    return {
        "declared": ([-1, *item], dtype, len(lengths)),
        "rows": rows,
        "lengths": lengths,
        "arrays": cut(blocks, lengths[:-1]),
        "lists": cut([block.tolist() for block in blocks], lengths[:-1]),
        "forms": cut(forms, lengths[:-1]),
    }


def assert_holds(tensor: LoDTensor, rows: Array, lengths: list[list[int]]) -> None:
    assert tensor.dtype == rows.dtype
    assert tensor.recursive_sequence_lengths() == lengths
    np.testing.assert_array_equal(tensor.numpy(), rows)
    if rows.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(tensor.numpy()), np.signbit(rows))


@given(dense_columns())
def test_the_form_of_a_dense_column_does_not_matter(column: dict[str, Any]) -> None:
    for form in ("arrays", "lists", "forms"):
        tensor = feed_column(column[form], *column["declared"], append_batch_size=False)
        assert_holds(tensor, column["rows"], column["lengths"])


@given(dense_columns())
def test_what_strict_mode_takes_the_other_mode_takes_alike(column: dict[str, Any]) -> None:
    assume(0 not in column["rows"].shape[1:])  # what has no values has no rank to compare either
    for form in ("arrays", "lists"):
        declared = {"append_batch_size": False, "strict": False}
        tensor = feed_column(column[form], *column["declared"], **declared)
        assert_holds(tensor, column["rows"], column["lengths"])


@given(dense_columns())
def test_a_device_gets_what_the_host_gets(column: dict[str, Any]) -> None:
    with virtual_devices(1):
        options = {"append_batch_size": False, "place": "cuda"}
        tensor = feed_column(column["forms"], *column["declared"], **options)
        assert_holds(tensor, column["rows"], column["lengths"])


JUNK = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 2**64, 10**400, -(2**70)]),
    st.floats(),
    st.sampled_from([1e39, 65520.0, float("nan")]),
    st.booleans(),
    st.none(),
    st.sampled_from(["", "1", b"1", 1j, {}, {1: 2}, {3}, np.bool_(True), np.uint64(2**63 + 1)]),
    st.sampled_from([np.float16(3), np.int8(-3), np.array(4), np.array(5.5), range(2)]),
)


def _as_junk_arrays(rows: list[Any]) -> Any:
    try:
        found = np.asarray(rows)
    except (ValueError, OverflowError):
        return rows
    return rows if found.dtype.kind == "c" else found  # NumPy itself warns of complex arrays


NESTED_JUNK = st.recursive(
    JUNK,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(_as_junk_arrays),
)


@given(
    rows=st.lists(NESTED_JUNK, max_size=4),
    dtype=st.sampled_from(DTYPES),
    item=st.sampled_from([[], [1], [2], [1, 2], [0]]),
    level=st.integers(0, 2),
)
def test_the_fast_look_and_the_second_look_agree(
    rows: list[Any], dtype: str, item: list[int], level: int
) -> None:
    """Both take a column or both refuse it, whatever it is, and make the same values of it."""
    with program_guard(Program()):
        variable = data("x", [-1, *item], dtype, level, append_batch_size=False)
    try:
        arrays = strict.dense_rows(variable, rows, tuple(item), variable.dtype)
        expected = np.concatenate([np.empty((0, *item), dtype), *arrays])
    except FieldError:
        expected = None
    try:
        column = DenseColumn(variable, rows)
        got = np.empty(column.shape, dtype)
        column.write(got)
    except FieldError:
        got = None
    if expected is None:
        assert got is None
    else:
        assert got is not None
        np.testing.assert_array_equal(got, expected)


@given(
    rows=st.lists(NESTED_JUNK, max_size=4),
    dtype=st.sampled_from(DTYPES),
    level=st.integers(0, 2),
    layout=st.sampled_from(["dense", "sparse_binary", "sparse_float"]),
    is_strict=st.booleans(),
)
def test_whatever_is_fed_only_field_errors_come_out(
    rows: list[Any], dtype: str, level: int, layout: str, is_strict: bool
) -> None:
    with suppress(FieldError):
        feed_column(rows, [2], dtype, level, layout=layout, strict=is_strict)


@st.composite
def sparse_columns(draw: DrawFn) -> dict[str, Any]:
    """Return rows of (indices, values), duplicates and all, and the same in forms that differ."""
    lengths = draw(nested_lengths(max_samples=4))
    num_rows = sum(lengths[-1]) if lengths else draw(st.integers(0, 4))
    dim = draw(st.sampled_from([1, 2, 7, 2**31 - 1, 2**31, 2**40]))
    entries = st.lists(st.tuples(st.integers(0, dim - 1), st.integers(-9, 9)), max_size=4)
    rows = [draw(entries) for _ in range(num_rows)]

    def in_some_form(row: list[tuple[int, int]]) -> Any:
        indices, values = [index for index, _ in row], [value for _, value in row]
        wide = np.int64 if dim > 127 else draw(st.sampled_from(["i1", ">i4", "u8", "i8"]))
        return draw(
            st.sampled_from(
                [
                    row,
                    tuple(map(list, row)),
                    [(np.int64(index), np.float16(value)) for index, value in row],
                    (np.array(indices, wide), np.array(values, "f2")),
                    (np.array(indices), np.array(values)),
                    (np.array(indices, np.int64), values),
                ]
            )
        )

    def indices_in_some_form(row: list[tuple[int, int]]) -> Any:
        indices = [index for index, _ in row]
        forms = [indices, tuple(indices), np.array(indices), np.array(indices, ">u8")]
        return draw(st.sampled_from(forms))

    return {
        "dim": dim,
        "rows": rows,
        "lengths": lengths,
        "pairs": cut([in_some_form(row) for row in rows], lengths),
        "indices": cut([indices_in_some_form(row) for row in rows], lengths),
    }


@given(sparse_columns())
def test_the_form_of_a_sparse_column_does_not_matter(column: dict[str, Any]) -> None:
    flat = list(chain.from_iterable(column["rows"]))
    for layout, samples in (("sparse_binary", "indices"), ("sparse_float", "pairs")):
        level = len(column["lengths"])
        rows = feed_column(column[samples], [column["dim"]], lod_level=level, layout=layout)
        assert isinstance(rows, SparseRows)
        assert np.diff(rows.offsets).tolist() == [len(row) for row in column["rows"]]
        assert rows.indices.tolist() == [index for index, _ in flat]
        assert rows.recursive_sequence_lengths() == column["lengths"]
        if layout == "sparse_float":
            assert rows.values.tolist() == [value for _, value in flat]


@settings(deadline=None)  # the first one compiles a kernel
@given(sparse_columns().filter(lambda column: column["dim"] < 10))
def test_densified_rows_sum_their_entries(column: dict[str, Any]) -> None:
    expected = np.zeros((len(column["rows"]), column["dim"]), np.float32)
    for number, row in enumerate(column["rows"]):
        for index, value in row:
            expected[number, index] += value
    with virtual_devices(1):
        for place in ("cpu", "cuda"):
            options = {"layout": "sparse_float", "densify": True, "place": place}
            level = len(column["lengths"])
            dense = feed_column(column["pairs"], [column["dim"]], lod_level=level, **options)
            assert_holds(dense, expected, column["lengths"])


@given(
    rows=st.lists(st.lists(st.integers(-(2**65), 2**65), min_size=2, max_size=2), max_size=4),
    dtype=st.sampled_from(["int8", "int16", "int32", "int64", "uint8"]),
)
def test_integers_wrap_when_they_are_not_checked(rows: list[list[int]], dtype: str) -> None:
    span = 2 ** (8 * np.dtype(dtype).itemsize)
    low = int(np.iinfo(dtype).min)
    wrapped = [[(value - low) % span + low for value in row] for row in rows]
    assert feed_column(rows, [2], dtype, strict=False).data.tolist() == wrapped


@given(
    rows=st.lists(st.lists(st.floats(-100, 100) | st.integers(-100, 100), min_size=3, max_size=3)),
    dtype=st.sampled_from(["bool", "int8", "int32", "float16", "float32", "float64"]),
)
def test_unchecked_conversions_are_numpys(rows: list[list[float]], dtype: str) -> None:
    expected = np.array(rows, dtype).reshape(-1, 3)
    for form in (rows, [np.array(row) for row in rows], [tuple(row) for row in rows]):
        got = feed_column(form, [3], dtype, strict=False)
        np.testing.assert_array_equal(got.data, expected)


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 255), min_size=2, max_size=2), max_size=4),
    scale=st.none() | st.floats(-4, 4, width=16),
    shift=st.none() | st.floats(-4, 4, width=16),
)
def test_what_travels_narrow_is_scaled_and_shifted(
    rows: list[list[int]], scale: float | None, shift: float | None
) -> None:
    wire = np.array(rows, np.uint8).reshape(-1, 2)
    expected = wire * np.float32(1 if scale is None else scale) + np.float32(shift or 0)
    options = {"wire_dtype": "uint8", "scale": scale, "shift": shift}
    for form in (rows, list(wire)):
        got = feed_column(form, [2], **options)
        np.testing.assert_allclose(got.data, expected, rtol=1e-6, atol=1e-6)


@given(
    rows=st.lists(st.tuples(*[st.integers(0, 99)] * 3), max_size=5),
    columns=st.lists(st.integers(0, 2), min_size=2, max_size=2),
)
def test_mapping_by_column_and_by_name_agree(
    rows: list[tuple[int, int, int]], columns: list[int]
) -> None:
    names = ["a", "b"]
    fields = [{"name": name, "shape": [1], "dtype": "int64"} for name in names]
    by_column = make_feeder(*fields, feeding=dict(zip(names, columns, strict=True))).feed(rows)
    picked = [tuple(row[column] for column in columns) for row in rows]
    by_position = make_feeder(*fields).feed(picked)
    named = [dict(zip(reversed(names), reversed(row), strict=True)) for row in picked]
    by_name = make_feeder(*fields).feed(named)
    for name in names:
        expected = by_position[name].data.tolist()
        assert by_column[name].data.tolist() == by_name[name].data.tolist() == expected
