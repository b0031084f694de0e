"""The demo: learns on its own, and learns the same on any number of devices."""

from __future__ import annotations

import re
import struct
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from gpufeed.cli import main
from gpufeed.demo.models import Images, Model, Rows, Sentences, softmax_loss
from gpufeed.demo.tasks import make_task
from gpufeed.demo.train import Trainer, share
from gpufeed.device import cuda_places, virtual_devices
from gpufeed.places import CPUPlace, Place
from gpufeed.tensor import LoDTensor

NUM_SAMPLES = 203


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return small files in the form of the real ones, with something to learn in them."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 10, NUM_SAMPLES)
    images = (
        rng.integers(0, 100, (NUM_SAMPLES, 28, 28))
        + 100 * (np.arange(28) // 3 == labels[:, None])[:, None]
    )
    (root / "mnist").mkdir()
    (root / "mnist/t10k-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x0803, NUM_SAMPLES, 28, 28) + images.astype("u1").tobytes()
    )
    (root / "mnist/t10k-labels-idx1-ubyte").write_bytes(
        struct.pack(">2I", 0x0801, NUM_SAMPLES) + labels.astype("u1").tobytes()
    )
    (root / "rt-polarity").mkdir()
    for name, words in {"neg": "bad dull long", "pos": "good fun new"}.items():
        lines = [
            " ".join(rng.choice([*words.split(), "film", "the", ""], rng.integers(0, 9)))
            for _ in range(NUM_SAMPLES // 2)
        ]
        (root / f"rt-polarity/rt-polarity.{name}").write_text("\n".join(lines))
    (root / "a9a").mkdir()
    for name in ("a9a", "a9a.t"):
        (root / "a9a" / name).write_text("".join(map(census_row, rng.integers(0, 120, (97, 3)))))
    return root


def census_row(features: np.ndarray) -> str:
    indices = sorted(set(features.tolist()))
    label = "+1" if indices[0] < 30 else "-1"
    return " ".join([label, *(f"{index + 1}:1" for index in indices)]) + "\n"


def losses(
    folder: Path | None, name: str, places: list[Place], batch_size: int
) -> list[tuple[int, float, float]]:
    task = make_task(name, folder)
    assert task is not None
    trainer = Trainer(task, places, batch_size=batch_size, seed=3, progress=False)
    sweeps = [sweep for _ in range(3) for sweep in (trainer.train(), trainer.evaluate())]
    return [(sweep.num_samples, sweep.loss, sweep.accuracy) for sweep in sweeps]


# 7 leaves the devices unequal shares, 2 leaves one of three none, 64 a short last batch.
@pytest.mark.parametrize("batch_size", [2, 7, 64])
@pytest.mark.parametrize("name", ["images", "sentences", "census"])
def test_any_number_of_devices_takes_the_same_steps(
    folder: Path, name: str, batch_size: int
) -> None:
    alone = losses(folder, name, [CPUPlace()], batch_size)

    for num_devices in (1, 2, 3):
        with virtual_devices(num_devices):
            shared = losses(folder, name, cuda_places(), batch_size)
        np.testing.assert_allclose(shared, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("num_samples", "num_devices", "sizes"),
    [(7, 3, [3, 2, 2]), (2, 3, [1, 1, 0]), (6, 2, [3, 3]), (5, 1, [5])],
)
def test_a_global_batch_is_shared_evenly(
    num_samples: int, num_devices: int, sizes: list[int]
) -> None:
    shares = [list(part) for part in share(lambda: [list(range(num_samples))], num_devices)()]

    assert [len(part) for part in shares] == sizes
    assert list(chain.from_iterable(shares)) == list(range(num_samples))


def feed_for(model: Model, num_samples: int) -> dict[str, LoDTensor]:
    rng = np.random.default_rng(2)
    if isinstance(model, Images):
        return {"image": LoDTensor(rng.normal(size=(num_samples, model.pixels)))}
    if isinstance(model, Rows):
        return {"row": LoDTensor(rng.integers(0, 2, (num_samples, model.features)) * 1.0)}
    lengths = rng.integers(0, 4, num_samples)
    words = LoDTensor(rng.integers(0, model.words, (lengths.sum(), 1)))  # type: ignore[attr-defined]
    words.set_recursive_sequence_lengths([lengths.tolist()])
    return {"words": words}


MODELS = [Images(5, 3, hidden=4), Sentences(6, 3, width=4), Rows(5, 3)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_gradients_are_slopes_of_the_loss(model: Model) -> None:
    feed, labels = feed_for(model, 9), np.arange(9) % 3
    weights = model.initial_weights(np.random.default_rng(1))

    def loss() -> float:
        return float(softmax_loss(model.forward(weights, feed)[0], labels)[0])

    scores, backward = model.forward(weights, feed)
    gradients = backward(softmax_loss(scores, labels)[2])

    for weight, gradient in zip(weights, gradients, strict=True):
        for where in np.ndindex(weight.shape):
            kept = weight[where]
            weight[where] = kept + 1e-6
            above = loss()
            weight[where] = kept - 1e-6
            below = loss()
            weight[where] = kept
            np.testing.assert_allclose(gradient[where], (above - below) / 2e-6, atol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_an_empty_share_has_zero_gradients(model: Model) -> None:
    weights = model.initial_weights(np.random.default_rng(1))

    scores, backward = model.forward(weights, feed_for(model, 0))
    loss, num_correct, gradient = softmax_loss(scores, np.zeros(0, np.int64))

    assert (loss, num_correct) == (0, 0)
    assert [g.shape for g in backward(gradient)] == [w.shape for w in weights]
    assert not any(g.any() for g in backward(gradient))


def accuracies(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"accuracy (\S+)%", output)]


def test_without_data_it_learns_from_the_standard_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--passes", "2"]) == 0

    output = capsys.readouterr().out
    assert "images: skipped; --data DIR" in output
    baselines = [float(found) for found in re.findall(r"class: (\S+)%", output)]
    first, last = accuracies(output)[::2], accuracies(output)[1::2]
    assert len(baselines) == len(last) == 2
    for chance, before, after in zip(baselines, first, last, strict=True):
        assert after > before > chance + 10
        assert after > 2 * chance


def test_with_data_and_devices(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(
        [*("demo", "--data", str(folder), "--devices", "2", "--passes", "3"), "--batch-size", "20"]
    )

    output = capsys.readouterr().out
    assert status == 0
    assert "training on cuda:0, cuda:1, batch 20" in output
    assert len(accuracies(output)) == 9
    assert "samples/s" in output
    assert "reading" in output


def test_a_file_with_nothing_to_train_on_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a9a").mkdir()
    (tmp_path / "a9a/a9a").write_text("# no rows\n")

    assert main(["demo", "--data", str(tmp_path), "--model", "census"]) == 2

    assert capsys.readouterr().err.splitlines()[-1].startswith("gpufeed: demo: expected samples")


def test_missing_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--data", str(tmp_path), "--model", "census"]) == 2

    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == f"gpufeed: {tmp_path}/a9a/a9a: no such file"


@pytest.mark.parametrize("argument", ["--devices=0", "--passes=x", "--batch-size=-1"])
def test_counts_are_checked(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", argument])

    assert "must be a whole number >= 1" in capsys.readouterr().err


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    with virtual_devices(2):
        assert main(["info"]) == 0

    output = capsys.readouterr().out
    assert "gpufeed 0.1.0" in output
    assert "virtual devices: 2" in output
