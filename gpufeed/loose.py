"""The reference's conversions, for ``strict=False``: whatever NumPy can make of a column.

Floats are cut to integers, integers wrap, None is NaN and text is parsed. The declared shape is
used only where the rank differs from it, and not at all if it leaves two or more dimensions open.
What no integer can stand for, NaN and the infinities, is refused even here.

Source: ``fluid.DataFeeder`` of PaddlePaddle 1.x.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from gpufeed.errors import FieldError
from gpufeed.lod import offsets_of
from gpufeed.variables import Variable

__all__ = ["LooseColumn"]

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]
Rows = Sequence[Any]

# What NumPy (ArithmeticError: out of range) and torch (RuntimeError) say to what they cannot take.
REFUSALS = (TypeError, ValueError, ArithmeticError, RuntimeError)


class LooseColumn:
    """A column that was converted as a whole; has the interface of `DenseColumn`.

    Attributes:
        offsets: One int64 array a level, the top level first.
        shape: Of the values.
    """

    __slots__ = ("_values", "offsets", "shape")

    def __init__(self, variable: Variable, samples: Rows, dtype: DType) -> None:
        try:
            self.offsets, rows = _peel(samples, variable.lod_level)
            values = _converted(rows, dtype)
        except REFUSALS as error:
            raise _explain(variable, samples, dtype, error) from None
        self._values = _reshaped(variable, values)
        self.shape = self._values.shape
        if self.offsets and self.offsets[-1][-1] != len(self._values):
            raise FieldError(
                f"field {variable.name!r}: expected {self.offsets[-1][-1]} rows of shape "
                f"{variable.item_shape}, got values of shape {self.shape}"
            )

    def write(self, out: Array) -> None:
        """Copy the values into ``out``, which has this column's shape."""
        np.copyto(out, self._values)


def _peel(samples: Rows, levels: int) -> tuple[list[Array], Rows]:
    """Return the offsets of each level, and the rows below the lowest one."""
    offsets = []
    rows = samples
    for _ in range(levels):
        offsets.append(offsets_of(list(map(len, rows))))
        rows = list(chain.from_iterable(rows))
    return offsets, rows


def _converted(rows: Rows, dtype: DType) -> Array:
    try:
        # NumPy only warns of an array's NaN as an integer, and of floats that become infinite.
        with np.errstate(invalid="raise", over="ignore"):
            return np.array(rows, dtype)
    except ArithmeticError:
        if dtype.kind not in "iu":
            raise
    # What does not fit wraps; NumPy does that to arrays of integers, but not to Python's own.
    whole = np.frompyfunc(int, 1, 1)(np.array(rows, object))
    low_bits: Array = whole & (2**64 - 1)
    return low_bits.astype(np.uint64).astype(dtype)


def _explain(variable: Variable, samples: Rows, dtype: DType, error: Exception) -> FieldError:
    """Return the error that names the first sample that cannot be converted, or is no such shape.

    ``error`` is what was said of the column as a whole.
    """
    before = None
    for number, sample in enumerate(samples):
        where = f"field {variable.name!r}, sample {number}"
        try:
            _, rows = _peel([sample], variable.lod_level)
            shape = _converted(rows, dtype).shape[1:]
        except REFUSALS as refusal:
            depth = f" nested {variable.lod_level} deep" * (variable.lod_level > 0)
            got = f"{type(sample).__name__} ({refusal})"
            return FieldError(f"{where}: expected {dtype} values{depth}, got {got}")
        if rows and shape != (before := before if before is not None else shape):
            return FieldError(f"{where}: expected shape {before} as before it, got {shape}")
    return FieldError(f"field {variable.name!r}: expected {dtype} values, got {error}")


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
