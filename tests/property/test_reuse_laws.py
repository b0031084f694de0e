"""densify="reuse" feeds what densify=True feeds, whatever came before in the same memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.feeding import raw

from gpufeed import planned
from gpufeed.device import virtual_devices, virtual_stream
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.variables import Program, data, program_guard

DIM = 9


@pytest.fixture(autouse=True)
def unpoisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poison would overwrite what is to be found again."""
    monkeypatch.setenv("GPUFEED_POISON", "0")


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    with virtual_devices(1, seed=3, jitter=True):
        yield request.param


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note of each field that is densified whether it found what it wrote before."""
    calls: list[bool] = []

    def note(*arrays: Any) -> Any:
        *_, previous = arrays
        calls.append(previous is not None)
        return densify_job(*arrays)

    densify_job = planned.densify_job
    monkeypatch.setattr(planned, "densify_job", note)
    return calls


def make_feeder(place: Any, densify: Any = "reuse") -> DataFeeder:
    with program_guard(Program()):
        return DataFeeder(
            [
                data("seen", [DIM], layout="sparse_binary", densify=densify),
                data("ids", [1], "int64", lod_level=1),
                data("price", [DIM], layout="sparse_float", lod_level=1, densify=densify),
            ],
            place,
        )


def entries(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.integers(0, DIM - 1), max_size=4))


@st.composite
def samples(draw: st.DrawFn) -> tuple[Any, ...]:
    rows = [[(i, 0.5 * (i + 1)) for i in entries(draw)] for _ in range(draw(st.integers(0, 2)))]
    return entries(draw), list(range(draw(st.integers(0, 300)))), rows


BATCHES = st.lists(st.lists(samples(), min_size=1, max_size=3), min_size=3, max_size=8)


def values(feed: Any) -> dict[str, list[Any]]:
    return {name: [tensor.numpy().tolist(), tensor.lod()] for name, tensor in feed.items()}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BATCHES)
def test_reuse_feeds_what_zeroing_feeds(place: str, batches: list[Any]) -> None:
    expected = [values(make_feeder("cpu", True).feed(batch)) for batch in batches]
    direct, ahead = make_feeder(place), make_feeder(place).decorate_reader(lambda: batches)
    assert [values(direct.feed(batch)) for batch in batches] == expected
    for _ in range(2):
        assert [values(feed) for feed in ahead] == expected
    kept = list(ahead)
    assert [values(feed) for feed in kept] == expected


def fixed_batch(number: int, rows: int = 2) -> list[Any]:
    """Return a batch whose sparse rows are as many every time, and whose ids are not."""
    return [
        ([number % DIM, (number + i) % DIM], list(range(number * 7 % 40)), [[(number % DIM, 2.0)]])
        for i in range(rows)
    ]


def test_the_same_memory_is_not_zeroed_twice(place: str, found: list[bool]) -> None:
    feeder = make_feeder(place)
    for number in range(10):
        values(feeder.feed(fixed_batch(number)))
    # Both fields of each batch, but for those of the first in each of a few slabs.
    assert len(found) == 20
    assert sum(found) >= 12


def test_another_number_of_rows_is_zeroed(place: str, found: list[bool]) -> None:
    feeder = make_feeder(place)
    for number in range(10):
        feed = feeder.feed(fixed_batch(number, rows=2 + number))
        assert feed["price"].numpy().sum() == 2 * (2 + number)
    assert not any(found)


def test_so_is_poisoned_memory(place: str, found: list[bool], monkeypatch: Any) -> None:
    monkeypatch.setenv("GPUFEED_POISON", "1")
    feeder = make_feeder(place)
    for number in range(10):
        assert feeder.feed(fixed_batch(number))["price"].numpy().sum() == 4
    assert not any(found)


def test_a_batch_that_fails_leaves_nothing_to_be_found(place: str, found: list[bool]) -> None:
    feeder = make_feeder(place)
    for number in range(12):
        with pytest.raises(FieldError, match="got 99"):
            feeder.feed([([99], [], []), ([], list(range(200)), [])])
        feed = feeder.feed(fixed_batch(number))
        assert values(feed) == values(make_feeder("cpu", True).feed(fixed_batch(number)))
        del feed


def test_a_late_reader_sees_its_own_rows() -> None:
    batches = [fixed_batch(number) for number in range(20)]
    with virtual_devices(1, seed=5, jitter=True):
        reader = make_feeder("cuda:0").decorate_reader(lambda: batches)
        seen: list[np.ndarray] = []
        with virtual_stream("cuda:0") as stream:
            for feed in reader:
                dense = raw(feed["seen"].data)
                stream.call(lambda dense=dense: seen.append(dense.copy()))
    plain = make_feeder("cpu", True)
    for got, batch in zip(seen, batches, strict=True):
        np.testing.assert_array_equal(got, plain.feed(batch)["seen"].data)


def test_a_row_with_an_index_outside_it_is_cleared_too(place: str) -> None:
    with program_guard(Program()):
        field = data("seen", [DIM], layout="sparse_binary", densify="reuse")
        feeder = DataFeeder([field], place, check_indices="device")
    bad, good = [([1],), ([DIM, 2],)], [([4],), ([3],)]
    reader = feeder.decorate_reader(lambda: [passes.pop()], prefetch=0)
    passes = [good, bad] * 10
    while passes:
        with pytest.raises(FieldError, match=rf"sample 1: expected .* \[0, {DIM}\), got {DIM}"):
            next(reader())
        (feed,) = reader
        assert np.argwhere(feed["seen"].numpy()).tolist() == [[0, 4], [1, 3]]
        del feed
