"""Awkward arrays over gpufeed's memory."""

from __future__ import annotations

from typing import Any

from gpufeed.device.backend import Array
from gpufeed.errors import import_extra
from gpufeed.lod import LoD

__all__ = ["from_rows"]


def from_rows(rows: Array, lod: LoD) -> Any:
    """Return rows and the LoD that cuts them as an awkward array over the same memory.

    Args:
        rows: ``(rows, *item)``, NumPy or CuPy.
        lod: Offsets, the top level first.
    """
    awkward = import_extra("awkward", "awkward")
    layout = awkward.from_numpy(rows, regulararray=False, highlevel=False)
    for offsets in reversed(lod):
        layout = awkward.contents.ListOffsetArray(awkward.index.Index64(offsets), layout)
    return awkward.Array(layout)
