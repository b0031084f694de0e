"""``paddle.dataset.common``: where the files of data sets are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DATA_HOME"]

DATA_HOME = str(Path.home() / ".cache" / "paddle" / "dataset")
