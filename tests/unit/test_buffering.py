from __future__ import annotations

import numpy as np
import pytest

from gpufeed.buffering import double_buffer
from gpufeed.device import array_module, virtual_devices
from gpufeed.errors import FieldError, PlaceError
from gpufeed.feeder import DataFeeder
from gpufeed.places import CUDAPlace
from gpufeed.reader import batch, firstn
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard


@pytest.fixture
def device():
    with virtual_devices(1):
        yield CUDAPlace(0)


def feed_of(step):
    return {
        "x": np.full((2, 3), step, np.float32),
        "ids": LoDTensor(np.arange(step), lod=[[0, step // 2, step]]),
        "tags": SparseRows([0, 1, 2], [step % 4, 3], None, dim=4),
        "marks": SparseRows([0, 1, 2], [step % 4, 3], [0.5, step], dim=4),
    }


def listed(feed):
    return {
        name: column.tolist() if isinstance(column, np.ndarray) else column.to_list()
        for name, column in feed.items()
    }


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_brings_every_feed_to_its_place_unchanged(device, depth):
    reader = double_buffer(lambda: map(feed_of, range(8)), device, depth)
    for step, feed in enumerate(reader):
        assert feed.place == device
        assert {tensor.place for tensor in feed.values()} == {device}
        assert listed(feed) == listed(feed_of(step))
    assert step == 7


def test_feeds_that_are_kept_keep_their_values(device):
    kept = list(double_buffer(lambda: map(feed_of, range(8)), device, 1))
    assert [listed(feed) for feed in kept] == [listed(feed_of(step)) for step in range(8)]


def test_takes_what_a_feeder_for_the_host_yields(device):
    with program_guard(Program()):
        feeder = DataFeeder([data("ids", [1], "int64", lod_level=1)], "cpu")
    host = feeder.decorate_reader(batch(lambda: ([[n] * n] for n in range(5)), 2))
    sent = double_buffer(host, device)
    assert [feed["ids"].to_list() for feed in sent] == [feed["ids"].to_list() for feed in host]


def test_leaves_open_what_a_dtype_says(device):
    (feed,) = double_buffer(lambda: [{"x": np.ones((2, 0, 3), np.float16)}], device)
    assert (feed["x"].shape, feed["x"].dtype) == ((2, 0, 3), np.float16)
    assert isinstance(feed["x"].data, array_module(device).ndarray)


def test_a_position_is_that_of_its_reader(device):
    def make(depth):
        return double_buffer(firstn(lambda: map(feed_of, range(8)), 6), device, depth)

    reader = make(2)
    for step, _ in enumerate(reader):
        if step == 3:
            state = reader.state_dict()
    again = make(0)
    again.load_state_dict(state)
    assert [float(feed["x"].data[0, 0]) for feed in again] == [4, 5]
    assert reader.identity() == firstn(lambda: 0, 6).identity()


def test_an_error_of_the_reader_arrives_after_the_feeds_before_it(device):
    def reader():
        yield feed_of(0)
        raise KeyError("lost")

    seen = []
    with pytest.raises(KeyError, match="lost"):
        seen.extend(double_buffer(reader, device))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ([1], "double_buffer.reader must yield mappings from field name to tensor, got list"),
        ({}, "double_buffer.reader must yield mappings"),
        ({"x": [1]}, "field 'x' must be a LoDTensor, SparseRows or an array of numbers"),
        ({"x": np.array(1)}, "field 'x' must be .* with a first axis"),
        ({"x": np.array(["a"])}, "field 'x' must be .* got ndarray <U1"),
    ],
)
def test_refuses_what_is_no_feed(device, step, message):
    with pytest.raises(FieldError, match=message):
        list(double_buffer(lambda: [step], device))


def test_refuses_a_tensor_that_is_there_already(device):
    feeds = [{"ids": LoDTensor([1, 2], lod=[[0, 2]], place=device)}]
    with pytest.raises(PlaceError, match="must be on the host"):
        list(double_buffer(lambda: feeds, device))


def test_refuses_a_device_that_is_not_there():
    with virtual_devices(1), pytest.raises(PlaceError, match=r"CUDAPlace\(1\)"):
        double_buffer(list, CUDAPlace(1))


def test_refuses_a_depth_below_zero():
    with pytest.raises(FieldError, match=r"double_buffer\.depth must be a whole number >= 0"):
        double_buffer(list, "cpu", -1)
