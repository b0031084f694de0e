"""Arrow arrays over gpufeed's memory, and back.

A LoD level is a list (``large_list`` where gpufeed makes one, whose offsets are int64 too), an item
dimension a fixed-size list.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.errors import FieldError, import_extra
from gpufeed.lod import LoD, Offsets, offsets_of

__all__ = ["from_rows", "to_rows", "unpack"]


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
    """Return an Arrow array of (nested) lists of numbers as rows and the LoD that cuts them.

    The values are not copied, except for bools, which Arrow packs, and several chunks.

    Raises:
        FieldError: It is no Arrow array, or holds nulls, or something else than numbers.
    """
    arrow = import_extra("pyarrow", "arrow")
    if isinstance(array, arrow.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, arrow.Array):
        raise FieldError(f"from_arrow.array must be a pyarrow array, got {type(array).__name__}")
    return unpack(array, "from_arrow.array", numbers_only=True)


def unpack(
    array: Any,
    owner: str,
    *,
    first_row: int = 0,
    fill: object = None,
    numbers_only: bool = False,
) -> tuple[npt.NDArray[Any], LoD]:
    """Return the values of an Arrow array, and the LoD that its lists are.

    Numbers and times are views, bools are unpacked, text and bytes become Python objects. The
    offsets of the lists are taken as they are: a damaged array has damaged ones.

    >>> import pyarrow
    >>> values, (offsets,) = unpack(pyarrow.array([[7, 8], [], [9]]), "column 'ids'")
    >>> values.tolist(), offsets.tolist()
    ([7, 8, 9], [0, 2, 2, 3])

    Args:
        array: A pyarrow array.
        owner: How errors call it.
        first_row: Number of its first row, for errors.
        fill: Stands for null values, and makes null lists empty; None refuses both.
        numbers_only: Whether text, bytes and times are refused outside of lists too.

    Returns:
        ``(rows, *item)``, and one array of offsets a level, the top level first.

    Raises:
        FieldError: The array holds nulls, or something that no column is made of.
    """
    arrow = import_extra("pyarrow", "arrow")
    array = _plain(array)
    lod: list[Offsets] = []
    while arrow.types.is_list(array.type) or arrow.types.is_large_list(array.type):
        if array.null_count:
            if fill is None:
                raise _nulls(array, lod, owner, first_row)
            lengths, values = array.value_lengths().fill_null(0), array.flatten()
            lod.append(offsets_of(lengths.to_numpy()))
        else:
            offsets = array.offsets.to_numpy().astype(np.int64)
            values = array.values[offsets[0] : offsets[-1]]  # of a slice too they are all there
            lod.append(offsets - offsets[0])
        array = _plain(values)
    num_rows = len(array)
    item: list[int] = []
    while arrow.types.is_fixed_size_list(array.type):
        if array.null_count:  # one would have to be filled by as many values
            raise _nulls(array, lod, owner, first_row, math.prod(item))
        item.append(array.type.list_size)
        array = _plain(array.flatten())
    if array.null_count:
        if fill is None:
            raise _nulls(array, lod, owner, first_row, math.prod(item))
        array = _filled(array, fill, owner)
    values = _values(array, owner, numbers_only or bool(lod))
    return values.reshape(num_rows, *item, *values.shape[1:]), tuple(lod)


def _plain(array: Any) -> Any:
    """Return an array of a dictionary or extension type as the array that it stands for."""
    arrow = import_extra("pyarrow", "arrow")
    while True:
        if arrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif isinstance(array, arrow.ExtensionArray) and not _is_tensor(array):
            array = array.storage
        else:
            return array


def _is_tensor(array: Any) -> bool:
    """Tell whether every row is a tensor of one shape: Arrow's own extension type, or Ray's."""
    return isinstance(getattr(array.type, "shape", None), (list, tuple))


def _values(array: Any, owner: str, numbers_only: bool) -> npt.NDArray[Any]:
    """Return an array that is no list and holds no nulls."""
    arrow = import_extra("pyarrow", "arrow")
    values: npt.NDArray[Any]
    if isinstance(array, arrow.ExtensionArray):
        if hasattr(array, "to_numpy_ndarray"):
            values = array.to_numpy_ndarray()
        else:
            values, _ = unpack(array.storage, owner, numbers_only=True)
            values = values.reshape(len(array), *array.type.shape)
        return values
    numbers, others = _kinds(arrow.types)
    if not any(is_kind(array.type) for is_kind in (numbers if numbers_only else numbers + others)):
        rule = "" if numbers_only else "numbers, times, text or bytes, or "
        raise FieldError(f"{owner} must hold {rule}lists of numbers, got {array.type}")
    values = array.to_numpy(zero_copy_only=False)
    return values


def _kinds(types: Any) -> tuple[list[Any], list[Any]]:
    """Return the tests for numbers, and for what else an array without lists may hold."""
    return [types.is_integer, types.is_floating, types.is_boolean], [
        *(types.is_timestamp, types.is_date, types.is_duration),
        *(types.is_string, types.is_large_string, types.is_string_view),
        *(types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    ]


def _filled(array: Any, fill: object, owner: str) -> Any:
    arrow = import_extra("pyarrow", "arrow")
    try:
        scalar = arrow.scalar(fill, array.type)
        if arrow.types.is_integer(array.type) and scalar.as_py() != fill:  # it cuts fractions off
            raise ValueError
    except (arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise FieldError(
            f"{owner} must be filled by a value of {array.type}, got {fill!r}"
        ) from error
    return array.fill_null(scalar)


def _nulls(
    array: Any, lod: list[Offsets], owner: str, first_row: int, per_row: int = 1
) -> FieldError:
    """Return the error that names the row of the first null, which is some levels down."""
    index = int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // per_row
    for offsets in reversed(lod):
        index = int(np.searchsorted(offsets, index, side="right")) - 1
    return FieldError(
        f"{owner} must hold no nulls, got {array.null_count}, the first in row {first_row + index}"
    )
