"""Arrow lists over gpufeed's memory, and back.

A LoD level is a ``large_list`` (its offsets are int64 too), an item dimension a fixed-size list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.errors import FieldError, import_extra
from gpufeed.lod import LoD

__all__ = ["from_rows", "to_rows"]


def from_rows(rows: npt.NDArray[Any], lod: LoD) -> Any:
    """Return rows and the LoD that cuts them as an Arrow array over the same memory.

    Args:
        rows: ``(rows, *item)``.
        lod: Offsets, the top level first.
    """
    arrow = import_extra("pyarrow", "arrow")
    array = arrow.array(rows.reshape(-1))
    for size in reversed(rows.shape[1:]):
        array = arrow.FixedSizeListArray.from_arrays(array, size)
    for offsets in reversed(lod):
        array = arrow.LargeListArray.from_arrays(offsets, array)
    return array


def to_rows(array: Any) -> tuple[npt.NDArray[Any], LoD]:
    """Return an Arrow array of (nested) lists as rows and the LoD that cuts them.

    The values are not copied, except for bools, which Arrow packs, and several chunks.

    Raises:
        FieldError: It is no Arrow array, or holds nulls, or something else than numbers.
    """
    arrow = import_extra("pyarrow", "arrow")
    if isinstance(array, arrow.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, arrow.Array):
        raise FieldError(f"from_arrow.array must be a pyarrow array, got {type(array).__name__}")
    lod: list[npt.NDArray[np.int64]] = []
    while _no_nulls(array) and (
        arrow.types.is_list(array.type) or arrow.types.is_large_list(array.type)
    ):
        offsets = array.offsets.to_numpy().astype(np.int64)
        lod.append(offsets - offsets[0])
        array = array.values[offsets[0] : offsets[-1]]
    rows, item = len(array), []
    while _no_nulls(array) and arrow.types.is_fixed_size_list(array.type):
        item.append(array.type.list_size)
        array = array.flatten()
    kinds = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean)
    if not any(is_kind(array.type) for is_kind in kinds):
        raise FieldError(f"from_arrow.array must hold lists of numbers, got {array.type}")
    return array.to_numpy(zero_copy_only=False).reshape(rows, *item), tuple(lod)


def _no_nulls(array: Any) -> bool:
    if array.null_count:
        raise FieldError(f"from_arrow.array must hold no nulls, got {array.null_count}")
    return True
