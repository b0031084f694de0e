"""A batch that another process has collated is fed as one that was collated here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.columns import make_feeder
from support.elsewhere import collating_here

from gpufeed.device import virtual_devices
from gpufeed.device.host import view_at
from gpufeed.feeder import DataFeeder
from gpufeed.testing import assert_equal

SCALED = {"dtype": "float32", "wire_dtype": "uint8", "scale": 0.5, "shift": -1.0}
CHANNELS = {"dtype": "float32", "wire_dtype": "uint8", "scale": (0.5, 2.0), "shift": (1.0, 0.0)}
DENSE = [
    ({"shape": [1], "dtype": "int64"}, st.integers(-(2**63), 2**63 - 1)),
    ({"shape": [1], "dtype": "int64", "wire_dtype": "int32"}, st.integers(-(2**31), 2**31 - 1)),
    ({"shape": [1], "dtype": "int64", "wire_dtype": "auto"}, st.integers(-300, 70_000)),
    ({"shape": [1], "dtype": "bool", "wire_dtype": "auto"}, st.booleans()),
    ({"shape": [2], "dtype": "float32"}, st.lists(st.floats(width=32), min_size=2, max_size=2)),
    ({"shape": [1], **SCALED}, st.integers(0, 255)),
    ({"shape": [2], **CHANNELS}, st.lists(st.integers(0, 255), min_size=2, max_size=2)),
]
SPARSE = [
    ({"layout": "sparse_binary"}, st.lists(st.integers(0, 8), max_size=4)),
    (
        {"layout": "sparse_float"},
        st.lists(st.tuples(st.integers(0, 8), st.floats(-2, 2, width=32)), max_size=4),
    ),
]


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    with virtual_devices(1, seed=5):
        yield request.param


@st.composite
def fields(draw: st.DrawFn) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    """Return what declares a field, and its samples."""
    lod_level = draw(st.integers(0, 2))
    if draw(st.booleans()):
        declared, samples = draw(st.sampled_from(DENSE))
    else:
        declared, samples = draw(st.sampled_from(SPARSE))
        densify = draw(st.sampled_from([False, True, "reuse"]))
        declared = {**declared, "shape": [9], "densify": densify}
    for _ in range(lod_level):
        samples = st.lists(samples, max_size=3)
    return {**declared, "lod_level": lod_level}, samples


@st.composite
def feedings(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return declared fields and mini-batches for them, empty ones included."""
    drawn = draw(st.lists(fields(), min_size=1, max_size=4))
    declared = [{"name": f"x{number}", **field} for number, (field, _) in enumerate(drawn)]
    sample = st.tuples(*(samples for _, samples in drawn))
    return declared, draw(st.lists(st.lists(sample, max_size=4), min_size=1, max_size=3))


def fed(feeder: DataFeeder, batches: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the feeds of all steps, on the host, one device after the other."""
    with collating_here():
        steps = feeder.decorate_reader(lambda: batches, prefetch=0, **options)
        feeds = [feed for step in steps for feed in (step if isinstance(step, list) else [step])]
    return [{name: tensor.to("cpu") for name, tensor in feed.items()} for feed in feeds]


def assert_same_feeds(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for feed, same in zip(one, other, strict=True):
        assert list(feed) == list(same)
        for name in feed:
            assert_equal(feed[name], same[name])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(feedings())
def test_any_fields(place: str, feeding: tuple[Any, Any]) -> None:
    declared, batches = feeding
    feeder = make_feeder(*declared, place=place)
    assert_same_feeds(fed(feeder, batches, isolate=True), fed(feeder, batches))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(feedings(), st.integers(2, 3))
def test_any_fields_that_devices_share(place: str, feeding: Any, num_places: int) -> None:
    declared, batches = feeding
    feeder = make_feeder(*declared, place=[place] * num_places)
    how = {"multi_devices": True, "remainder": "split"}
    assert_same_feeds(fed(feeder, batches, isolate=True, **how), fed(feeder, batches, **how))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(feedings())
def test_the_block_is_what_travels(place: str, feeding: Any) -> None:
    declared, batches = feeding
    feeder = make_feeder(*declared, place=place)
    with collating_here():
        reader = feeder.decorate_reader(lambda: batches, isolate=True)
    for batch, samples in zip(reader._reader.open(0, 0), batches, strict=True):
        plan = feeder._plan(samples, feeder.place)
        memory = np.zeros(plan.wire_nbytes, np.uint8)
        plan.write(partial(view_at, memory))
        assert (batch.plan.nbytes, len(batch)) == (plan.nbytes, plan.num_samples)
        arrived = batch.plan.wire_arrays(partial(view_at, batch.plan.source.memory))
        for one, other in zip(arrived, plan.wire_arrays(partial(view_at, memory)), strict=True):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()
