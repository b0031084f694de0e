"""The reference's conversions, for ``strict=False``: whatever NumPy can make of a column.

Floats are cut to integers, integers wrap, None is NaN and text is parsed. The declared shape is
used only where the rank differs from it, and not at all if it leaves two or more dimensions open.

Source: ``fluid.DataFeeder`` of PaddlePaddle 1.x.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from gpufeed.errors import FieldError
from gpufeed.variables import Variable

__all__ = ["LooseColumn"]

Array = np.ndarray[Any, Any]


class LooseColumn:
    """A column that was converted as a whole; has the interface of `DenseColumn`.

    Attributes:
        offsets: One int64 array a level, the top level first.
        shape: Of the values.
    """

    __slots__ = ("_values", "offsets", "shape")

    def __init__(self, variable: Variable, samples: Sequence[Any], dtype: np.dtype[Any]) -> None:
        lengths: list[list[int]] = []
        rows: Sequence[Any] = samples
        for level in range(variable.lod_level):
            try:
                lengths.append([len(row) for row in rows])
                rows = list(chain.from_iterable(rows))
            except TypeError as error:
                raise FieldError(
                    f"field {variable.name!r}: expected sequences nested "
                    f"{variable.lod_level} deep, got {error} at depth {level}"
                ) from None
        self._values = _reshaped(variable, _converted(variable, rows, dtype))
        self.offsets = [np.cumsum([0, *level], dtype=np.int64) for level in lengths]
        self.shape = self._values.shape
        if self.offsets and self.offsets[-1][-1] != len(self._values):
            raise FieldError(
                f"field {variable.name!r}: expected {self.offsets[-1][-1]} rows of shape "
                f"{variable.item_shape}, got values of shape {self.shape}"
            )

    def write(self, out: Array) -> None:
        """Copy the values into ``out``, which has this column's shape."""
        np.copyto(out, self._values)


def _converted(variable: Variable, rows: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    try:
        try:
            return np.array(rows, dtype)
        except OverflowError:  # Python integers that do not fit wrap, as arrays of them do
            return np.array(rows).astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise FieldError(
            f"field {variable.name!r}: expected values of {dtype}, got {error}"
        ) from None


def _reshaped(variable: Variable, values: Array) -> Array:
    declared = variable.shape
    if values.ndim == len(declared) or sum(dim < 0 for dim in declared) > 1:
        return values
    try:
        return values.reshape(declared)
    except ValueError:
        raise FieldError(
            f"field {variable.name!r}: Reshape error. What is defined in data layer is "
            f"{list(declared)}, but receive {list(values.shape)}"
        ) from None
