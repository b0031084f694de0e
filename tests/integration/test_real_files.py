"""The published files that the demo learns from, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpufeed import creator
from gpufeed.dataset import mnist

DATA = Path(__file__).parents[2] / "../shared/data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}")


def test_mnist_test_images() -> None:
    samples = list(mnist.test(DATA / "mnist")())

    labels = np.array([label for _, label in samples])
    # The published numbers of test images a digit.
    assert np.bincount(labels).tolist() == [
        *(980, 1135, 1032, 1010, 982),
        *(892, 958, 1028, 974, 1009),
    ]
    assert samples[0][1] == 7
    pixels = np.stack([image for image, _ in samples])
    np.testing.assert_allclose((pixels.mean() + 1) / 2, 0.1325, atol=1e-4)


def test_rt_polarity_sentences() -> None:
    for name in ("neg", "pos"):
        lines = list(creator.text_file(DATA / "rt-polarity" / f"rt-polarity.{name}")())

        assert len(lines) == 5331
        assert all(lines)
        assert sum(map(len, map(str.split, lines))) > 100_000


@pytest.mark.parametrize("name", ["a9a", "a9a.t"])
def test_a9a_agrees_with_a_plain_reading(name: str) -> None:
    path = DATA / "a9a" / name
    expected = []
    for line in path.read_text().splitlines():
        label, *features = line.split()
        expected.append((int(label), [int(feature.split(":")[0]) - 1 for feature in features]))

    samples = list(creator.svmlight(path, 123, binary=True)())

    assert [(label, row.tolist()) for row, label in samples] == expected
