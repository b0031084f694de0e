"""What strict mode refuses, in every form; each refusal names field, sample, expected and got."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from support.columns import feed_column, make_feeder

from gpufeed.errors import FieldError
from gpufeed.tensor import LoDTensor

array = np.array
nan, inf = float("nan"), float("inf")
I64 = r"\[-9223372036854775808, 9223372036854775807\]"


def refused(message, rows, *declared, **options):
    with pytest.raises(FieldError, match=rf"^field 'x', sample {message}"):
        feed_column(rows, *declared, **options)


def forms(value):
    """Return one row of one value in the forms that rows come in."""
    return [value, [value], (value,), array(value), array([value]), array([value], object)]


def batches(good, bad):
    """Return bad values among good ones, given as lists and as arrays; the third is bad."""
    for good_form in (lambda v: [v], lambda v: array([v])):
        for bad_form in forms(bad):
            yield [good_form(good), [good], bad_form, good_form(good)]


class TestValues:
    @pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
    @pytest.mark.parametrize("value", [1.5, 1.0, -0.0, nan, inf, np.float16(1)])
    def test_a_float_is_no_integer(self, dtype, value):
        for rows in batches(1, value):
            refused(f"2: expected {dtype} values, got float(16)? {value}", rows, [1], dtype)
            if np.ndim(rows[2]):
                refused(f"2: expected {dtype} values, got float", rows, [1], dtype, 1)

    @pytest.mark.parametrize("value", [0, 1, 1.0, np.int8(1), nan])
    def test_only_a_bool_is_a_bool(self, value):
        for rows in batches(True, value):
            refused(rf"2: expected bool values, got \w+ {value}", rows, [1], "bool")
            refused("2: expected bool values", [[True], [False, True], [value]], [1], "bool", 1)

    @pytest.mark.parametrize(
        ("dtype", "value", "bounds"),
        [
            ("int8", 128, r"\[-128, 127\]"),
            ("int8", -129, r"\[-128, 127\]"),
            ("uint8", -1, r"\[0, 255\]"),
            ("uint8", 256, r"\[0, 255\]"),
            ("int32", 2**31, r"\[-2147483648, 2147483647\]"),
            ("int32", -(2**31) - 1, r"\[-2147483648, 2147483647\]"),
            ("int64", 2**63, I64),
        ],
    )
    def test_an_integer_must_be_in_range(self, dtype, value, bounds):
        for rows in batches(1, value):
            refused(f"2: expected {dtype} values in {bounds}, got {value}", rows, [1], dtype)
            rows[2] = np.ravel(rows[2])
            refused(f"2: expected {dtype} values in {bounds}, got {value}", rows, [1], dtype, 1)

    def test_the_bounds_themselves_are_in_range(self):
        for dtype in ("int8", "int16", "int32", "int64", "uint8"):
            bounds = np.iinfo(dtype)
            for form in (list, tuple, array, lambda v: array(v, object)):
                row = form([bounds.min, bounds.max])
                assert feed_column([row], [2], dtype).data.tolist() == [[bounds.min, bounds.max]]

    def test_integers_beyond_64_bits(self):
        for value, said in ((2**64, 2**64), (-(2**70), -(2**70)), (10**5000, "one of 16610 bits")):
            for form in (value, [value], array([value], object), [-1, value][1:]):
                message = rf"0: expected int8 values in \[-128, 127\], got {said}"
                refused(message, [form], [1], "int8")
        assert feed_column([[2**70], 2**64], [1]).data.tolist() == [[2.0**70], [2.0**64]]
        refused("0: expected values in the range of float32, got one of", [10**400], [1])
        refused("0: expected bool values, got int one of 16610 bits", [10**5000], [1], "bool")

    def test_integers_of_several_types_are_not_taken_for_floats(self):
        """NumPy would: of int64 with uint64, and of Python's beyond 63 bits with negative ones."""
        rows = [array([1], "i1"), [np.uint64(5), -1], [np.uint64(6), np.int64(7)]]
        assert feed_column(rows, [1], "int64", 1).data.ravel().tolist() == [1, 5, -1, 6, 7]
        refused(f"1: .* got {2**63}", [[1, 2], [-1, 2**63]], [2], "int64")

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            *(("float16", 65520.0), ("float16", -1e5), ("float16", 70000)),
            *(("float32", 1e39), ("float32", -1e300)),
        ],
    )
    def test_a_finite_value_must_stay_finite(self, dtype, value):
        for rows in batches(1, value):
            rows = [rows[0], [inf], *rows[2:]]
            refused(f"2: expected values in the range of {dtype}, got", rows, [1], dtype)
            rows[2] = np.ravel(rows[2])
            refused(f"2: expected values in the range of {dtype}, got", rows, [1], dtype, 1)

    def test_a_long_double_must_stay_finite(self):
        if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
            pytest.skip("long doubles are no wider than doubles here")
        row = array([2, 1e300], np.longdouble) ** 2
        message = r"0: expected values in the range of float64, got 1\.0.*e\+600"
        refused(message, [row], [2], "float64")

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("1", "str 1"),
            ("", "str "),
            (b"1", "bytes b'1'"),
            (None, "NoneType None"),
            (1 + 2j, "complex128 (1+2j)"),
            ({1: 2}, "dict {1: 2}"),
            ({1}, "set {1}"),
            (len, "builtin_function_or_method <built-in function len>"),
            (np.datetime64(5, "s"), "datetime64[s] 1970-01-01T00:00:05"),
            (np.timedelta64(5, "s"), "timedelta64[s] 5 seconds"),
        ],
    )
    @pytest.mark.parametrize("dtype", ["int64", "float32", "bool", "uint8"])
    def test_what_is_no_number_becomes_none(self, value, said, dtype):
        expected = f"expected {dtype} values, got {re.escape(said)}"
        for good in (True, [True], array([True])):
            for form in (value, [value], (value,)):
                refused(f"1: {expected}", [good, form], [1], dtype)
        for good in ([], [True], array([True, False])):
            refused(f"1: {expected}", [good, [value]], [1], dtype, 1)

    def test_the_offender_is_named_not_its_neighbour(self):
        refused("1: expected int64 values, got float 2.5", [[1, 2, 3], [1, 2.5, 3]], [3], "int64")
        refused("1: expected int8 values in .* got 300", [[1, 2], [3, 300]], [2], "int8")
        refused("1: .* got NoneType None", [[1, 2], [3, None]], [2])
        for dtype in ("int64", "float32"):
            refused("0: .* got str bad", [[10, 20, "bad"]], [3], dtype)
            refused("0: .* got bytes b'bad'", [[10, 20, b"bad"]], [3], dtype)
            refused("0: .* got str bad", [[10, 20, "bad"]], [1], dtype, 1)

    def test_a_mask_is_not_dropped(self):
        masked = np.ma.array([1.0, 9e9], mask=[0, 1])
        said = "1: expected float32 values, got a masked array"
        for good in ([1, 2], array([1, 2], "f4"), array([1, 2], "f8")):
            for dtype in ("f4", "f8"):
                refused(said, [good, masked.astype(dtype), good], [2])
                refused(said, [good, masked.astype(dtype), good], [1], "float32", 1)
                refused(said, [[good], [masked.astype(dtype)]], [2], "float32", 1)
                refused(said, [[good], [masked.astype(dtype)]], [1], "float32", 2)
        refused(said, [LoDTensor([1.0], [[0, 1]]), masked], [1], "float32", 1)

    def test_a_mask_is_not_dropped_from_sparse_rows(self):
        indices, values = array([1, 2]), array([1, 2], "f4")
        for row in (
            (np.ma.array(indices, mask=[0, 1]), values),
            (indices, np.ma.array(values, mask=[0, 1])),
        ):
            rows = [(indices, values), row]
            refused("1, .* got a masked array", rows, [5], layout="sparse_float")
        rows = [indices, np.ma.array(indices, mask=[0, 1])]
        refused("1, .* got a masked array", rows, [5], layout="sparse_binary")

    @pytest.mark.parametrize("source", ["bool", "i1", "u1", ">i2", "u4", "i8", "u8"])
    def test_integers_and_bools_become_floats(self, source):
        for dtype in ("float16", "float32", "float64"):
            for form in (array([0, 1], source), list(array([0, 1], source))):
                got = feed_column([form], [2], dtype)
                assert got.dtype == dtype
                assert got.data.tolist() == [[0, 1]]

    def test_floats_are_narrowed_as_numpy_does(self):
        value = 0.1
        for dtype in ("float16", "float32"):
            for form in ([value], (value,), array([value]), array([value], np.longdouble)):
                assert feed_column([form], [1], dtype).data[0, 0] == np.dtype(dtype).type(value)


class TestShapes:
    @pytest.mark.parametrize(
        ("shape", "row", "expected"),
        [
            ([3], [1, 2], r"\(3,\), got \(2,\)"),
            ([3], [1, 2, 3, 4], r"\(3,\), got \(4,\)"),
            ([3], [[1, 2, 3]], r"\(3,\), got \(1, 3\)"),
            ([3], [[1], [2], [3]], r"\(3,\), got \(3, 1\)"),
            ([3], 1, r"\(3,\), got \(\)"),
            ([3], [], r"\(3,\), got \(0,\)"),
            ([1], [[1]], r"\(1,\), got \(1, 1\)"),
            ([1, 28, 28], [0] * 783, r"\(1, 28, 28\), got \(783,\)"),
            ([2, 2], [[1, 2, 3, 4]], r"\(2, 2\), got \(1, 4\)"),
            ([2, 3], [[1, 2], [3, 4], [5, 6]], r"\(2, 3\), got \(3, 2\)"),
            ([0], [1], r"\(0,\), got \(1,\)"),
            ([-1], [1, 2], r"\(\), got \(2,\)"),
        ],
    )
    def test_a_row_has_the_declared_shape(self, shape, row, expected):
        refused(f"0: expected shape {expected}", [row], shape)
        refused(f"0: expected shape {expected}", [array(row)], shape)
        good = np.zeros([max(dim, 0) for dim in shape if dim >= 0])
        for form in (good, good.tolist()):
            refused(f"1: expected shape {expected}", [form, row], shape)
            refused(f"1: expected shape {expected}", [form, array(row)], shape)

    def test_ragged_rows_are_refused(self):
        message = "1: expected float32 values of one shape, got list"
        refused(message, [[[1, 2], [3, 4]], [[1, 2], [3]]], [2, 2])
        refused(message, [[[1]], [[1], [2, 3]]], [1], "float32", 1)

    def test_an_open_dimension_is_open_once_a_batch(self):
        rows = [[[1, 2]], [[3, 4], [5, 6]]]
        refused(r"1: expected shape \(1, 2\), got \(2, 2\)", rows, [None, None, 2])
        refused(
            r"1: expected shape \(-1, 1\), got \(1, 2\)", [[[1]], [[2, 3]]], [None, -1], "i8", 1
        )

    def test_a_row_is_reshaped_only_to_a_size_that_was_declared(self):
        message = r"expected shape \(-1, 2\), got \(4,\)"
        refused(f"0: {message}", [[1, 2, 3, 4]], [None, None, 2])
        for first in ([[1, 2], [3, 4]], array([[1, 2], [3, 4]])):
            expected = r"1: expected shape \(2, 2\), got \(4,\)"
            refused(expected, [first, [1, 2, 3, 4]], [None, None, 2])
            refused(expected, [first, array([1, 2, 3, 4])], [None, None, 2])
        refused(r"1: expected shape \(-1, 1\), got \(2,\)", [[[1]], [5, 6]], [None, -1], "int64", 1)

    @pytest.mark.parametrize(
        ("sequence", "got"),
        [
            ([1, 2], r"\(2,\)"),
            ([[1], [2]], r"\(2, 1\)"),
            ([[1, 2, 3]], r"\(1, 3\)"),
            ([[[1, 2]]], r"\(1, 1, 2\)"),
        ],
    )
    def test_rows_of_sequences_have_the_declared_shape(self, sequence, got):
        for bad in (sequence, array(sequence)):
            for good in ([], [[1, 2]], array([[1, 2], [3, 4]])):
                refused(rf"1: expected shape \(-1, 2\), got {got}", [good, bad], [2], "int64", 1)


class TestNesting:
    @pytest.mark.parametrize("sequence", [1, 1.5, None, "", "12", b"12", {}, {1: 2}, {1}])
    @pytest.mark.parametrize("good", [[], [1], array([1, 2]), [[1]]])
    def test_a_sequence_is_a_list_or_an_array(self, sequence, good):
        kind = type(sequence).__name__
        message = f"1: expected sequences nested 1 deep, got {kind} at depth 0"
        for dtype in ("int64", "float32", "bool"):
            rows = [np.asarray(good, bool) if dtype == "bool" else good, sequence]
            refused(message, rows, [1], dtype, 1)

    @pytest.mark.parametrize(
        "sequence", [iter([1]), (i for i in [1]), array(1), frozenset([1]), OrderedDict({1: 2})]
    )
    def test_what_cannot_be_counted_or_ordered_is_no_sequence(self, sequence):
        message = f"0: .* nested 1 deep, got {type(sequence).__name__} at depth 0"
        refused(message, [sequence], [1], "int64", 1)

    @pytest.mark.parametrize(
        ("level", "sample", "kind", "depth"),
        [
            (2, [1, 2], "int", 1),
            (2, array([1, 2]), "int64", 1),
            (2, 1, "int", 0),
            (2, ["12"], "str", 1),
            (2, "ab", "str", 0),
            (2, [{1, 2}], "set", 1),
            (2, {(1, 2): 3}, "dict", 0),
            (2, {(1, 2)}, "set", 0),
            (3, [[1]], "int", 2),
            (3, [{(1,): 1}], "dict", 1),
            (3, [[{1}]], "set", 2),
        ],
    )
    def test_too_shallow(self, level, sample, kind, depth):
        message = f"1: expected sequences nested {level} deep, got {kind} at depth {depth}"
        for good in ([], [[]] * (level > 1)):
            refused(message, [good, sample], [1], "int64", level)

    def test_too_deep(self):
        refused(r"1: expected shape \(-1, 1\), got \(1, 2\)", [[], [[1, 2]]], [1], "int64", 1)
        refused(r"0: expected shape \(-1, 1\), got \(1, 1, 1\)", [[[[1]]]], [1], "int64", 1)
        refused(r"0: expected shape \(-1, 1\), got \(1, 1, 1\)", [[[[[1]]]]], [1], "int64", 2)


BINARY: dict[str, Any] = {"layout": "sparse_binary"}
FLOAT: dict[str, Any] = {"layout": "sparse_float"}


class TestSparse:
    @pytest.mark.parametrize("dim", [5, 2**31, 2**40])
    @pytest.mark.parametrize("index", ["dim", -1, 2**50, -(2**40), 2**63 - 1])
    def test_an_index_is_in_range(self, index, dim):
        index = dim if index == "dim" else index
        message = rf"1: expected indices in \[0, {dim}\), got {index}"
        for row in (
            [index],
            (index,),
            array([index]),
            array([0, index], object),
            array([4, index]),
        ):
            refused(message, [[0], row], [dim], **BINARY)
            refused(message, [array([0]), row], [dim], **BINARY)
            refused(message, [array([0]), row], [dim], densify=dim == 5, **BINARY)
            pair = (array(row), np.ones(len(row)))
            for other in ([(0, 1)], (array([0]), array([1.0]))):
                refused(message, [other, [(0, 1.0), (index, 2.0)]], [dim], **FLOAT)
                refused(message, [other, pair], [dim], **FLOAT)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ([1.0], ", indices: expected int64 values, got float 1.0"),
            (array([1.0]), ", indices: expected int64 values, got float 1.0"),
            ([nan], ", indices: expected int64 values, got float nan"),
            ([2**63], f", indices: expected int64 values in {I64}, got {2**63}"),
            (array([2**63], "u8"), f", indices: expected int64 values in {I64}, got {2**63}"),
            ([2**70], f", indices: expected int64 values in {I64}, got {2**70}"),
            ([None], ", indices: expected int64 values, got NoneType None"),
            (["1"], ", indices: expected int64 values, got str 1"),
            ([[1]], r", indices: expected a flat sequence, got shape \(1, 1\)"),
            (array([[1]]), r", indices: expected a flat sequence, got shape \(1, 1\)"),
            (1, ": expected sequences nested 1 deep, got int at depth 0"),
            ("", ": expected sequences nested 1 deep, got str at depth 0"),
            ("1", ": expected sequences nested 1 deep, got str at depth 0"),
            (b"\1", ": expected sequences nested 1 deep, got bytes at depth 0"),
            ({1}, ": expected sequences nested 1 deep, got set at depth 0"),
            ({1: 2.0}, ": expected sequences nested 1 deep, got dict at depth 0"),
            (None, ": expected sequences nested 1 deep, got NoneType at depth 0"),
        ],
    )
    def test_a_binary_row_is_indices(self, row, message):
        for good in ([], [0], array([0])):
            refused(f"1{message}", [good, row], [5], **BINARY)
        nested = message.replace("nested 1 deep", "nested 2 deep").replace("depth 0", "depth 1")
        refused(f"1{nested}", [[], [[0], row]], [5], lod_level=1, **BINARY)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ([(0,)], r": expected \(index, value\) pairs, .* got tuple \(0,\)"),
            ([(0, 1, 2)], r": expected \(index, value\) pairs, .* got tuple \(0, 1, 2\)"),
            ([0, 1], r": expected \(index, value\) pairs, .* got int 0"),
            (["01"], r": expected \(index, value\) pairs, .* got str 01"),
            ({(0, 1): 2}, ": expected sequences nested 1 deep, got dict at depth 0"),
            ({(0, 1)}, ": expected sequences nested 1 deep, got set at depth 0"),
            ((array([0, 1]), array([1.0])), ": expected as many values as indices, got 1 and 2"),
            ((array([0.0]), array([1.0])), ", indices: expected int64 values, got float 0.0"),
            ([(0.0, 1.0)], ", indices: expected int64 values, got float 0.0"),
            ([(0, "1")], ", values: expected float32 values, got str 1"),
            ([(0, None)], ", values: expected float32 values, got NoneType None"),
            ((array([0]), None), ", values: expected float32 values, got NoneType None"),
            ((array([0]), {1.0}), ", values: expected float32 values, got set {1.0}"),
            ([(0, 1e300)], r", values: expected values in the range of float32, got 1e\+300"),
            ((array([0]), array([1e300])), ", values: expected values in the range of float32"),
            ((array([[0]]), array([1.0])), ", indices: expected a flat sequence, got shape"),
            ((array([0]), array([[1.0]])), ", values: expected a flat sequence, got shape"),
        ],
    )
    def test_a_float_row_is_indices_and_values(self, row, message):
        for good in ([], [(0, 1)], (array([0]), array([1.0])), (array([]), array([]))):
            refused(f"1{message}", [good, row], [5], **FLOAT)

    def test_values_are_checked_against_the_dtype(self):
        message = ", values: expected int64 values, got float 1.5"
        refused(f"0{message}", [[(0, 1.5)]], [5], "int64", **FLOAT)
        refused(f"0{message}", [[(0, 1.5)]], [5], "int64", strict=False, **FLOAT)


def test_the_field_is_named():
    feeder = make_feeder(
        {"name": "ids", "shape": [1], "dtype": "int64", "lod_level": 1},
        {"name": "label", "shape": [1], "dtype": "int64"},
    )
    with pytest.raises(FieldError, match=r"^field 'label', sample 1: expected int64 values"):
        feeder.feed([([7], 1), ([8], 0.5)])
    with pytest.raises(FieldError, match=r"^field 'ids', sample 0: expected sequences"):
        feeder.feed([(7, 1), ([8], 0.5)])


def test_a_feeder_feeds_on_after_a_refusal():
    feeder = make_feeder({"name": "x", "shape": [1], "dtype": "int64"})
    for _ in range(20):
        with pytest.raises(FieldError):
            feeder.feed([0.5])
    assert feeder.feed([3])["x"].data.tolist() == [[3]]
