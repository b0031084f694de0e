"""``paddle.dataset.mnist``: what `gpufeed.dataset.mnist` reads, where Paddle has left it.

The files are looked for in the folder ``mnist`` of `gpufeed.compat.paddle.dataset.common.DATA_HOME`
at the time of the call; a folder of one's own may be given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpufeed.compat.paddle.dataset import common
from gpufeed.dataset import mnist
from gpufeed.formats import PathLike
from gpufeed.reader.base import Reader

__all__ = ["test", "train"]


def train(folder: PathLike | None = None) -> Reader[Any]:
    """Read the training set: ``(image, label)``, an image of 784 floats in [-1, 1].

    Raises:
        MissingFile: A file is not there.
    """
    return mnist.train(_folder(folder))


def test(folder: PathLike | None = None) -> Reader[Any]:  # noqa: PT028 - it is no test
    """Read the test set, else as `train`."""
    return mnist.test(_folder(folder))


def _folder(folder: PathLike | None) -> PathLike:
    return Path(common.DATA_HOME, "mnist") if folder is None else folder
