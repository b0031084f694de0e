"""MNIST, from its IDX files in a local folder, plain or compressed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpufeed.creator import idx
from gpufeed.errors import MissingFile
from gpufeed.formats import PathLike
from gpufeed.formats.source import SUFFIXES
from gpufeed.reader.aligned import map_readers
from gpufeed.reader.base import Reader
from gpufeed.reader.sharding import ShardLike

__all__ = ["test", "train"]

Sample = tuple[npt.NDArray[np.float32], int]


def train(folder: PathLike, *, shard: ShardLike | None = None) -> Reader[Sample]:
    """Read the training set: ``(image, label)``, 60,000 times in the published files.

    An image is float32 ``(784,)`` in [-1, 1], a label an int in 0 .. 9.

    Args:
        folder: Holds ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, also with a
            suffix ``.gz``, ``.bz2`` or ``.xz``.
        shard: The part to read, as for `creator.open`, sample by sample.

    Raises:
        FieldError: ``shard`` is out of range.
        MissingFile: A file is not there.
        FormatError: When iterated: a file is damaged, or they differ in length.

    Source: ``paddle.dataset.mnist.train``, which gives the same samples.
    """
    return _read(folder, "train", shard)


def test(
    folder: PathLike,
    *,
    shard: ShardLike | None = None,  # noqa: PT028 - this is no test
) -> Reader[Sample]:
    """Read the test set, from the files named ``t10k-...``; else as `train`."""
    return _read(folder, "t10k", shard)


def _read(folder: PathLike, part: str, shard: ShardLike | None) -> Reader[Sample]:
    images = _find(folder, f"{part}-images-idx3-ubyte")
    return map_readers(
        _scaled, idx(images, _find(folder, f"{part}-labels-idx1-ubyte"), shard=shard)
    )


def _scaled(item: tuple[npt.NDArray[np.uint8], np.uint8]) -> Sample:
    image, label = item
    return image.reshape(-1) * np.float32(2 / 255) - np.float32(1), int(label)


def _find(folder: PathLike, name: str) -> Path:
    for suffix in ("", *SUFFIXES):
        path = Path(folder, name + suffix)
        if path.exists():
            return path
    raise MissingFile(f"{Path(folder, name)}: no such file, nor with {', '.join(SUFFIXES)}")
