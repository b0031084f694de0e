"""``paddle.trainer``: its providers, in `PyDataProvider2`. There is no trainer here."""

from __future__ import annotations

from gpufeed.compat.paddle.trainer import PyDataProvider2

__all__ = ["PyDataProvider2"]
