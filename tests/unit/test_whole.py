"""Whole columns are fed like the same samples one by one, and refused alike."""

from __future__ import annotations

import numpy as np
import pytest

from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FieldError, PlaceError
from gpufeed.feeder import DataFeeder
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard


def feeder_of(*fields, place="cpu", **options):
    with program_guard(Program()):
        return DataFeeder([data(*args, **field) for args, field in fields], place, **options)


def field(*args, **options):
    return args, options


IDS = LoDTensor(np.array([7, 8, 9]), lod=[[0, 2, 2, 3]])
NESTED = LoDTensor(np.array([7, 8, 9]), lod=[[0, 1, 3], [0, 2, 2, 3]])
WORDS = LoDTensor(np.array([[7], [8], [9]]), lod=[[0, 1, 3], [0, 2, 2, 3]])
TAGS = SparseRows([0, 2, 2, 3], [0, 3, 1], None, dim=4)
MARKS = SparseRows([0, 2, 2, 3], [0, 3, 1], [0.5, 2.0, 4.0], dim=4)

COLUMNS = {
    "dense": (field("x", [2]), np.arange(6, dtype=np.float32).reshape(3, 2)),
    "one value a sample": (field("x", [1], "int64"), np.array([1, 0, 1])),
    "flat rows": (field("x", [2, 2]), np.arange(12, dtype=np.float32).reshape(3, 4)),
    "of another dtype": (field("x", [1]), np.array([1, 0, 1], np.int16)),
    "narrower integers": (field("x", [1], "uint8"), np.array([1, 0, 255])),
    "strided": (field("x", [1], "int64"), np.arange(6)[::2]),
    "travels narrower": (field("x", [1], wire_dtype="uint8", scale=0.5), np.array([2, 4, 8], "u1")),
    "ragged": (field("x", [1], "int64", lod_level=1), IDS),
    "two levels": (field("x", [1], "int64", lod_level=2), WORDS),
    "a slice": (field("x", [1], "int64", lod_level=1), IDS[1:]),
    "tensor without a LoD": (field("x", [1], "int64"), LoDTensor(np.arange(3))),
    "binary": (field("x", [4], layout="sparse_binary"), TAGS),
    "binary, as lists of indices": (field("x", [10], layout="sparse_binary"), IDS),
    "sequences of binary rows": (field("x", [10], layout="sparse_binary", lod_level=1), NESTED),
    "with values": (field("x", [4], layout="sparse_float"), MARKS),
    "densified": (field("x", [4], layout="sparse_float", densify=True), MARKS),
    "no sample": (field("x", [1], "int64", lod_level=1), IDS[:0]),
}


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
@pytest.mark.parametrize(("variable", "column"), COLUMNS.values(), ids=COLUMNS.keys())
def test_feeds_what_its_samples_feed(variable, column, place, one_virtual_device):
    feeder = feeder_of(variable, place=place)
    batch = ColumnarBatch({"x": column})
    whole, single = feeder.feed(batch)["x"], feeder.feed(list(batch.rows()))["x"]
    assert type(whole) is type(single)
    assert whole.dtype == single.dtype
    assert whole.lod() == single.lod()
    assert whole.to_list() == single.to_list()


@pytest.fixture
def one_virtual_device():
    from gpufeed.device import virtual_devices

    with virtual_devices(1):
        yield


def test_is_not_written_through_to_the_column():
    given = np.arange(3)
    feed = feeder_of(field("x", [1], "int64")).feed(ColumnarBatch({"x": given}))
    given[:] = -1
    assert feed["x"].data.ravel().tolist() == [0, 1, 2]


def test_loose_mode_converts_as_it_does_samples():
    feeder = feeder_of(field("x", [1], "int64"), strict=False)
    assert feeder.feed(ColumnarBatch({"x": np.array([1.9, 2.1])}))["x"].to_list() == [[1], [2]]


REFUSED = {
    "a float among integers": (
        field("x", [1], "int64"),
        np.array([1.0, 2.5]),
        r"field 'x', sample 0: expected int64 values, got float64 1.0",
    ),
    "out of range": (
        field("x", [1], "int8"),
        np.array([1, 300]),
        r"field 'x', sample 1: expected int8 values in \[-128, 127\], got 300",
    ),
    "out of range in a sequence": (
        field("x", [1], "uint8", lod_level=1),
        LoDTensor(np.array([1, 2, -3]), lod=[[0, 2, 3]]),
        r"field 'x', sample 1: expected uint8 values in \[0, 255\], got -3",
    ),
    "another row shape": (
        field("x", [3]),
        np.zeros((2, 4), np.float32),
        r"field 'x': expected rows of shape \(3,\), got \(4,\)",
    ),
    "too few levels": (
        field("x", [1], "int64", lod_level=2),
        IDS,
        r"field 'x': expected a column cut 2 levels deep, got LoDTensor",
    ),
    "sparse for dense": (field("x", [4]), TAGS, r"expected dense rows, got SparseRows"),
    "dense for sparse": (
        field("x", [4], layout="sparse_float"),
        np.zeros((2, 4)),
        r"field 'x': expected SparseRows, got an array of float64",
    ),
    "another dim": (
        field("x", [5], layout="sparse_binary"),
        TAGS,
        r"field 'x': expected sparse_binary rows of dim 5, got SparseRows",
    ),
    "values where there are none": (
        field("x", [4], layout="sparse_binary"),
        MARKS,
        r"expected sparse_binary rows of dim 4",
    ),
    "an index beyond dim": (
        field("x", [9], layout="sparse_binary"),
        IDS,
        r"field 'x', sample 2: expected indices in \[0, 9\), got 9",
    ),
    "indices that are no numbers": (
        field("x", [9], layout="sparse_binary"),
        LoDTensor(np.array([0.5]), lod=[[0, 1]]),
        r"field 'x': expected one whole number an index",
    ),
    "another batch size": (
        field("x", [3, 1], append_batch_size=False),
        np.zeros((2, 1), np.float32),
        r"field 'x': expected a batch of 3 rows, got 2",
    ),
}


@pytest.mark.parametrize(("variable", "column", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(variable, column, message):
    with pytest.raises(FieldError, match=message):
        feeder_of(variable).feed(ColumnarBatch({"x": column}))


def test_refuses_a_column_on_a_device(one_virtual_device):
    with pytest.raises(PlaceError, match="'x': a column must be on the host, got one on cuda:0"):
        feeder_of(field("x", [1], "int64", lod_level=1)).feed(
            ColumnarBatch({"x": IDS.to("cuda:0")})
        )


class TestFields:
    def test_are_found_by_name(self):
        feeder = feeder_of(field("b", [1], "int64"), field("a", [1], "int64"))
        feed = feeder.feed(
            ColumnarBatch({"a": np.array([1]), "b": np.array([2]), "c": np.array([3])})
        )
        assert {name: tensor.to_list() for name, tensor in feed.items()} == {"b": [[2]], "a": [[1]]}

    def test_or_by_their_number(self):
        feeder = feeder_of(field("x", [1], "int64"), feeding={"x": 1})
        feed = feeder.feed(ColumnarBatch({"a": np.array([1]), "b": np.array([2])}))
        assert feed["x"].to_list() == [[2]]

    def test_must_be_there(self):
        with pytest.raises(FieldError, match="expected a column 'x', got a, b"):
            feeder_of(field("x", [1])).feed(ColumnarBatch({"a": np.ones(1), "b": np.ones(1)}))

    def test_must_have_that_number(self):
        with pytest.raises(FieldError, match="expected at least 2 columns"):
            feeder_of(field("x", [1]), feeding={"x": 1}).feed(ColumnarBatch({"a": np.ones(1)}))


def test_a_remainder_is_split_by_slices():
    batches = [ColumnarBatch({"x": np.arange(start, start + 3)}) for start in (0, 3, 6)]
    feeder = feeder_of(field("x", [1], "int64"), place=["cpu", "cpu"])
    reader = feeder.decorate_reader(lambda: batches, multi_devices=True, remainder="split")
    assert [[feed["x"].data.ravel().tolist() for feed in feeds] for feeds in reader] == [
        [[0, 1, 2], [3, 4, 5]],
        [[6, 7], [8]],
    ]
