"""``paddle.dataset``: MNIST, where its files are on this machine; nothing is downloaded."""

from __future__ import annotations

from gpufeed.compat.paddle.dataset import common, mnist
from gpufeed.dataset import __getattr__ as __getattr__  # what any other data set ends in

__all__ = ["common", "mnist"]
