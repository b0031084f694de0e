"""Data sets that are read from local files; nothing is ever downloaded."""

from __future__ import annotations

from typing import NoReturn

from gpufeed.dataset import mnist

__all__ = ["mnist"]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"gpufeed.dataset has no data set {name!r}, only mnist; "
        "read your own files with gpufeed.creator: text_file, csv, idx, svmlight, open"
    )
