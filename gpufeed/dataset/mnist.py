"""MNIST, from its IDX files in a local folder, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpufeed.creator import idx
from gpufeed.errors import MissingFile
from gpufeed.formats import PathLike
from gpufeed.formats.source import SUFFIXES
from gpufeed.reader.base import Reader, reading

__all__ = ["test", "train"]


def train(folder: PathLike) -> Reader[Any]:
    """Read the training set: ``(image, label)``, 60,000 times in the published files.

    An image is float32 ``(784,)`` in [-1, 1], a label an int in 0 .. 9.

    Args:
        folder: Holds ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``, also with a
            suffix ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.

    Raises:
        MissingFile: A file is not there.
        FormatError: When iterated: a file is damaged, or they differ in length.

    Source: ``paddle.dataset.mnist.train``, which gives the same samples.
    """
    return _Mnist(folder, "train")


def test(folder: PathLike) -> Reader[Any]:
    """Read the test set, from the files named ``t10k-...``; else as `train`."""
    return _Mnist(folder, "t10k")


class _Mnist(Reader[tuple[np.ndarray[Any, Any], int]]):
    def __init__(self, folder: PathLike, part: str) -> None:
        self._items = idx(
            _find(folder, f"{part}-images-idx3-ubyte"), _find(folder, f"{part}-labels-idx1-ubyte")
        )
        super().__init__("mnist", self._items)

    def open(self, epoch: int, skip: int) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
        to_unit = np.float32(2 / 255)
        with reading(self._items, epoch, skip) as items:
            for image, label in items:
                yield image.reshape(-1) * to_unit - np.float32(1), int(label)


def _find(folder: PathLike, name: str) -> Path:
    for suffix in ("", *SUFFIXES):
        path = Path(folder, name + suffix)
        if path.exists():
            return path
    raise MissingFile(f"{Path(folder, name)}: no such file, nor with {', '.join(SUFFIXES)}")
