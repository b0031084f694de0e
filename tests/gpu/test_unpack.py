"""What a batch needs done on a GPU: one launch, of any field, and faults that the host hears of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import HAS_CUDA_DEVICE

from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.places import CUDAPlace
from gpufeed.variables import Program, data, program_guard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
]

PLACE = CUDAPlace(0)
DIM, STEPS = 1000, 30
rng = np.random.default_rng(7)


def make_feeder(place: Any, densify: Any = True, check: Any = "host") -> DataFeeder:
    with program_guard(Program()):
        fields = [
            data("image", [3, 8, 8], wire_dtype="uint8", scale=[0.5, 0.25, 2.0], shift=-1.0),
            data("half", [5], "float16", wire_dtype="uint8", scale=0.5),
            data("ids", [1], "int64", lod_level=1, wire_dtype="auto"),
            data("flags", [9], "bool", wire_dtype="auto"),
            data("seen", [DIM], layout="sparse_binary", densify=densify),
            data("price", [DIM], layout="sparse_float", densify=densify),
            data("count", [DIM], "int8", layout="sparse_float", densify=densify),
            data("label", [1], "int64", wire_dtype="int32"),
        ]
        return DataFeeder(fields, place, check_indices=check)


def batch(size: int = 16, bad: int | None = None) -> list[Any]:
    """Return random samples; of the last one an index of ``price`` is ``bad``."""
    samples = []
    for number in range(size):
        seen, price, count = (rng.integers(0, DIM, rng.integers(0, 30)) for _ in range(3))
        if bad is not None and number == size - 1:
            price = np.array([bad])
        images = rng.integers(0, 256, (3, 8, 8), np.uint8), rng.integers(0, 256, 5, np.uint8)
        ids, flags = rng.integers(0, 70_000, rng.integers(0, 9)), rng.integers(0, 2, 9) > 0
        prices, counts = np.ones(len(price), np.float32), np.ones(len(count), np.int8)
        samples.append((*images, ids, flags, seen, (price, prices), (count, counts), number))
    return samples


def content(feed: Any) -> dict[str, np.ndarray]:
    return {name: each.to("cpu").numpy() for name, each in feed.items()}


@pytest.mark.parametrize("densify", [True, "reuse"])
def test_a_gpu_makes_of_every_kind_of_field_what_the_host_makes(densify):
    batches = [batch() for _ in range(STEPS)]
    host = make_feeder("cpu", densify)
    reader = make_feeder(PLACE, densify).decorate_reader(lambda: batches)
    for feed, samples in zip(reader, batches, strict=True):
        expected = content(host.feed(samples))
        for name, values in content(feed).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=name)
        del feed


def test_a_batch_is_one_launch_that_was_prepared(monkeypatch):
    from cuda import core

    launched = []
    launch = core.launch
    monkeypatch.setattr(core, "launch", lambda *args: (launched.append(args), launch(*args)))
    feeder = make_feeder(PLACE)
    feeder.feed(batch())["label"].numpy()
    launched.clear()
    for _ in range(3):
        feeder.feed(batch())
    assert len(launched) == 3


@pytest.mark.parametrize("densify", [True, "reuse", False])
@pytest.mark.parametrize("index", [-1, DIM, 2**31 - 1])
@pytest.mark.parametrize("bad", [0, 11, STEPS - 1])
def test_an_index_outside_its_row_is_an_error_of_its_pass(densify, index, bad):
    broken = [batch(bad=index if number == bad else None) for number in range(STEPS)]
    passes = iter([broken, [batch() for _ in range(STEPS)]])
    reader = make_feeder(PLACE, densify, "device").decorate_reader(lambda: next(passes))
    with pytest.raises(FieldError, match=f"'price', sample 15: .* got {index}") as caught:
        list(reader)
    assert caught.value.__notes__ == [f"in step {bad} of this pass"]
    assert len(list(reader)) == STEPS


def test_it_leaves_all_other_values_as_they_are():
    samples, feeder = batch(bad=DIM), make_feeder(PLACE, True, "device")
    staging = feeder._staging
    staged = staging.stage(feeder._plan(samples, PLACE))
    staged.ready.synchronize()
    nothing = np.zeros(0, np.int64), np.zeros(0, np.float32)
    samples[-1] = (*samples[-1][:5], nothing, *samples[-1][6:])
    expected = content(make_feeder("cpu").feed(samples))
    for name, values in content(staged.feed).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-6, err_msg=name)
