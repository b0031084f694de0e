from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from gpufeed import dataset
from gpufeed.dataset import mnist
from gpufeed.errors import MissingFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = struct.pack(">I3I", 0x0803, 2, 28, 28) + bytes(784) + b"\xff" * 784
    labels = struct.pack(">II", 0x0801, 2) + bytes([3, 8])
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    return tmp_path


def test_mnist_gives_flat_images_in_minus_one_to_one(folder: Path) -> None:
    (dark, three), (light, eight) = mnist.train(folder)()

    assert dark.dtype == np.float32
    assert dark.shape == (784,)
    assert set(dark.tolist()) == {-1.0}
    np.testing.assert_allclose(light, 1.0, rtol=1e-6)
    assert [three, eight] == [3, 8]
    assert type(three) is int


def test_mnist_skips(folder: Path) -> None:
    assert [label for _, label in mnist.train(folder).open(0, 1)] == [8]


def test_mnist_is_divided_over_ranks(folder: Path) -> None:
    assert [label for _, label in mnist.train(folder, shard=(2, 1))] == [8]
    assert mnist.train(folder).count() == 2


def test_a_missing_part_is_named(folder: Path) -> None:
    with pytest.raises(MissingFile, match="t10k-images-idx3-ubyte: no such file"):
        mnist.test(folder)


def test_other_data_sets_point_to_the_creators() -> None:
    with pytest.raises(AttributeError, match=r"no data set 'imdb'.*gpufeed.creator"):
        dataset.imdb  # noqa: B018
