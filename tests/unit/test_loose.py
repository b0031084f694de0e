"""``strict=False``: the reference's measured table, and what NumPy makes of any column."""

from __future__ import annotations

import numpy as np
import pytest
from support.columns import feed_column

from gpufeed.errors import FieldError

array = np.array
nan, inf = float("nan"), float("inf")


def loose(rows, shape, dtype="float32", lod_level=0, **declared):
    return feed_column(
        rows, shape, dtype, lod_level, strict=False, append_batch_size=False, **declared
    )


@pytest.mark.parametrize(
    ("shape", "rows", "got"),
    [
        ([-1, 1], [3, 4], (2, 1)),
        ([-1, 1], [[9], [8]], (2, 1)),
        ([-1], [3], (1,)),
        ([-1, 1, 28, 28], [[0.0] * 784] * 2, (2, 1, 28, 28)),
        ([-1, 3], [[1, 2, 3, 4]] * 2, (2, 4)),  # of the same rank: not checked
        ([-1, 3], [np.ones((2, 3))] * 2, (4, 3)),  # the batch dimension takes what is too much
        ([4, 3], [[1, 2, 3]] * 2, (2, 3)),
        ([4, 3], [[1] * 6] * 2, (2, 6)),
        ([-1, -1, 2], [[1, 2, 3, 4]] * 3, (3, 4)),  # two open dimensions: never reshaped
        ([-1, 3], [], (0, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_shapes_as_the_reference_has_them(shape, rows, got, dtype):
    for form in (rows, [np.asarray(row) for row in rows]):
        tensor = loose(form, shape, dtype)
        assert tensor.shape == got
        assert tensor.dtype == dtype
        assert tensor.lod() == []


@pytest.mark.parametrize(
    ("shape", "level", "rows", "got", "lengths"),
    [
        ([-1, 1], 1, [[1, 2], [3]], (3, 1), [[2, 1]]),
        ([-1, 1], 1, [[[1], [2]], [[3]]], (3, 1), [[2, 1]]),
        ([-1, 1], 1, [array([1, 2]), array([3])], (3, 1), [[2, 1]]),
        ([-1, 2], 1, [[[1, 2], [3, 4]]], (2, 2), [[2]]),
        ([-1, 1], 1, [[], []], (0, 1), [[0, 0]]),
        ([-1, 1], 1, [[1], []], (1, 1), [[1, 0]]),
        ([-1, 1], 2, [[[], []], []], (0, 1), [[2, 0], [0, 0]]),
        ([-1, 1], 2, [[[1, 2], []], [[3]]], (3, 1), [[2, 1], [2, 0, 1]]),
        ([-1, 1], 3, [[[[1], [2, 3]]], []], (3, 1), [[1, 0], [2], [1, 2]]),
    ],
)
def test_sequences_as_the_reference_has_them(shape, level, rows, got, lengths):
    tensor = loose(rows, shape, "int64", level)
    assert (tensor.shape, tensor.dtype) == (got, np.int64)
    assert tensor.recursive_sequence_lengths() == lengths


@pytest.mark.parametrize("level", [1, 2, 3])
def test_an_empty_batch_is_legal_unlike_in_the_reference(level):
    tensor = loose([], [-1, 1], "int64", level)
    assert tensor.shape == (0, 1)
    assert tensor.recursive_sequence_lengths() == [[]] * level


@pytest.mark.parametrize(
    ("dtype", "given", "got"),
    [
        ("int64", 1.9, 1),
        ("int64", -1.9, -1),
        ("int32", 2**31, -(2**31)),
        ("int64", 2**63 + 5, -(2**63) + 5),
        ("int8", 2**70 + 7, 7),
        ("uint8", -1, 255),
        ("uint8", 300, 44),
        ("uint8", 300.5, 44),
        ("int32", 3e10, 3 * 10**10 - 7 * 2**32),
        ("int32", True, 1),
        ("int64", "15", 15),
        ("float32", "1.5", 1.5),
        ("float32", None, nan),
        ("float32", -0.0, -0.0),
        ("float32", inf, inf),
        ("bool", 2, True),
        ("bool", 0.0, False),
    ],
)
def test_values_as_the_reference_has_them(dtype, given, got):
    expected = array([got], dtype)
    for form in (given, [given], array([given]), array([given], object)):
        data = loose([form], [-1, 1], dtype).data
        np.testing.assert_array_equal(data, [expected])
        assert np.signbit(data.astype(float)) == np.signbit(float(got))
        if np.ndim(form):
            np.testing.assert_array_equal(loose([form], [-1, 1], dtype, 1).data, [expected])


def test_integers_wrap_exactly_beside_anything():
    """NumPy alone would go through float64 for each of these, and lose the low bits."""
    for other in (-1, 1.5, np.uint64(2**63), True):
        tensor = loose([[2**63 + 5, other], [2**64 + 3, 0]], [-1, 2], "int64")
        assert tensor.data[:, 0].tolist() == [-(2**63) + 5, 3]


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_no_integer_stands_for_nan(value, dtype):
    for form in (value, [value], array([value]), array([value], "f2"), array([value], object)):
        for good in (1, [1], array([300])):
            rows = [np.reshape(good, np.shape(form)) if np.ndim(form) else 1, form]
            with pytest.raises(FieldError, match=rf"field 'x', sample 1: expected {dtype} values"):
                loose(rows, [-1, 1], dtype)
    with pytest.raises(FieldError, match=rf"sample 2: expected {dtype} values nested 1 deep"):
        loose([[], [1], [value]], [-1, 1], dtype, 1)


@pytest.mark.parametrize(
    ("declared", "rows", "message"),
    [
        (([-1, 1, 28, 28],), [[0.0] * 783], r"^field 'x': Reshape error\. .*28, 28\].* \[1, 783\]"),
        (([4, 3],), [], r"Reshape error"),
        (([-1, -1],), [[1, 2], [3]], r"sample 1: expected shape \(2,\) as before it, got \(1,\)"),
        (([-1, 3],), [[[1, 2], [3]]], r"sample 0: expected float32 values, got list"),
        (([-1, 1], "int64"), ["ab"], r"sample 0: expected int64 values, got str \(invalid lit"),
        (([-1, 1], "int64"), [1, None], r"sample 1: expected int64 values, got NoneType"),
        (([-1, 1], "float32"), [1, {}], r"sample 1: expected float32 values, got dict"),
        (([-1, 1], "float32"), [10**400], r"sample 0: .* too large to convert to float"),
        (([-1, 1], "float32"), [1 + 2j], r"sample 0: expected float32 values, got complex"),
        (([-1, 1], "int64", 1), [[1], 2], r"sample 1: .* nested 1 deep, got int \(.*no len"),
        (([-1, 1], "int64", 1), [array(1)], r"sample 0: .* nested 1 deep, got ndarray"),
        (([-1, 1], "int64", 2), [[[1]], [2]], r"sample 1: .* nested 2 deep, got list"),
        (([-1, 1], "int64", 1), [[[1, 2]], [3]], r"sample 1: expected shape \(2,\) as before"),
        (([-1, 1], "int64", 1), [[[[1, 2]]]], r"expected 1 rows of shape \(1,\), got .* \(2, 1\)"),
    ],
)
def test_what_numpy_cannot_convert_is_named(declared, rows, message):
    with pytest.raises(FieldError, match=message):
        loose(rows, *declared)


def test_values_are_converted_to_what_travels():
    tensor = loose([[300.7, -1]], [-1, 2], wire_dtype="uint8", scale=2, shift=1)
    assert tensor.data.tolist() == [[89, 511]]
    assert tensor.dtype == np.float32
