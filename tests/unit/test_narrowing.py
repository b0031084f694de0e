from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.feeding import make_reader

from gpufeed.device import virtual_devices
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.narrowing import NarrowColumn, narrower
from gpufeed.variables import Program, data, program_guard

WIDE = ["bool", "int16", "int32", "int64", "float16", "float32", "float64"]


class Column:
    """A column that is an array already."""

    def __init__(self, values):
        self.values, self.offsets, self.shape = values, [], values.shape

    def write(self, out):
        out[...] = self.values


def travels_as(values):
    column = NarrowColumn(Column(values), values.dtype)
    return column.dtype.name


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([0, 255], "int64", "uint8"),
        ([-1, 127], "int64", "int8"),
        ([-1, 128], "int64", "int16"),
        ([32768], "int64", "int32"),
        ([2**31], "int64", "int64"),
        ([2**31 - 1], "int32", "int32"),
        ([-129], "int16", "int16"),
        ([], "int64", "uint8"),
        ([0.0, 255.0], "float32", "uint8"),
        ([-1.0, 0.5], "float32", "float16"),
        ([-0.0], "float64", "float16"),
        ([0.1], "float32", "float32"),
        ([0.1], "float64", "float64"),
        ([2.0**-30, 1.0], "float64", "float32"),
        ([np.nan, np.inf, 1.0], "float64", "float16"),
        ([True, False], "bool", "uint8"),
    ],
)
def test_takes_the_narrowest_dtype_that_keeps_every_value(values, dtype, expected):
    assert travels_as(np.array(values, dtype)) == expected


def test_bools_travel_as_bits():
    column = NarrowColumn(Column(np.ones((3, 5), bool)), np.dtype(bool))
    assert column.wire_shape == (2,)
    packed = np.empty(2, "uint8")
    column.write(packed)
    assert packed.tolist() == [255, 127]


def test_what_is_narrow_stays():
    assert travels_as(np.array([-1], "int8")) == "int8"
    assert narrower(np.dtype("uint8")) == []


def feed_auto(values, place, **options):
    with program_guard(Program()):
        field = data("x", values.shape[1:], values.dtype, wire_dtype="auto", **options)
        feeder = DataFeeder([field], place)
    return feeder.feed([(row,) for row in values])


@given(
    st.sampled_from(WIDE).flatmap(
        lambda dtype: arrays.arrays(dtype, st.tuples(st.integers(0, 5), st.just(3)))
    )
)
def test_nothing_is_lost_on_the_way(values):
    with virtual_devices(1):
        got = feed_auto(values, "cuda:0")["x"].numpy()
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(values[values == 0]))


def test_each_batch_travels_as_it_needs():
    largest = [9, 300, 9, 2**40]
    with virtual_devices(1), program_guard(Program()):
        feeder = DataFeeder([data("ids", [1], "int64", 1, wire_dtype="auto")], "cuda:0")
        reader = feeder.decorate_reader(make_reader(4, lambda i: [([0, largest[i]],), ([],)]))
        for number, feed in enumerate(reader):
            assert feed["ids"].data.ravel().tolist() == [0, largest[number]]
            assert feed["ids"].lod() == [[0, 2, 2]]
            assert feed["ids"].cu_seqlens().tolist() == [0, 2, 2]


def test_the_host_gets_the_values_without_a_detour(monkeypatch):
    monkeypatch.setattr("gpufeed.planned.NarrowColumn", None)
    feed = feed_auto(np.array([[1], [2]]), "cpu")
    assert feed["x"].data.tolist() == [[1], [2]]


def test_refuses_what_is_always_refused():
    with virtual_devices(1), program_guard(Program()):
        feeder = DataFeeder([data("n", [1], "int32", wire_dtype="auto")], "cuda:0")
        with pytest.raises(FieldError, match="field 'n', sample 1"):
            feeder.feed([(1,), (2**40,)])


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 2, 5), 1), ((4, 5, 3), 3)])
@pytest.mark.parametrize("wire_dtype", ["uint8", "auto"])
def test_images_arrive_normalized_by_channel(place, dtype, shape, axis, wire_dtype):
    images = np.random.default_rng(0).integers(0, 256, (6, *shape), "uint8")
    mean, std = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.25, 0.3])
    scale, shift = 1 / (255 * std), -mean / std
    with virtual_devices(1), program_guard(Program()):
        field = data("x", shape, dtype, wire_dtype=wire_dtype, scale=scale, shift=shift)
        got = DataFeeder([field], place).feed([(image,) for image in images])["x"].numpy()
    along = tuple(-1 if k == axis else 1 for k in range(4))
    scale, shift = (each.reshape(along) for each in (scale, shift))
    assert got.dtype == dtype
    np.testing.assert_array_equal(
        got, images.astype(dtype) * scale.astype(dtype) + shift.astype(dtype)
    )
