"""Narrowing: for each batch the narrowest dtype that keeps every one of its values.

What is found travels, and is widened again where it arrives, so nothing is lost but bytes.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gpufeed.kernels import narrow_values
from gpufeed.lod import Offsets

__all__ = ["NarrowColumn", "narrower"]

Array = np.ndarray[Any, Any]

_BY_KIND = {"i": ("uint8", "int8", "int16", "int32"), "f": ("uint8", "float16", "float32")}


def narrower(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """Return the dtypes that values of ``dtype`` may travel in instead, the narrowest first.

    >>> narrower(np.dtype("int32"))
    [dtype('uint8'), dtype('int8'), dtype('int16')]
    """
    dtypes = map(np.dtype, _BY_KIND.get(dtype.kind, ()))
    return [each for each in dtypes if each.itemsize < dtype.itemsize]


class _Column(Protocol):
    @property
    def offsets(self) -> list[Offsets]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def write(self, out: Array) -> None: ...


class NarrowColumn:
    """A column written ahead of time, to see how narrow its values can travel.

    Attributes:
        offsets: Of the column.
        shape: Of its values.
        wire_shape: Of what travels; another one if that is bits.
        dtype: Of what travels.
        is_packed: Whether that is bits, the lowest first.
    """

    def __init__(self, column: _Column, dtype: np.dtype[Any]) -> None:
        self.offsets, self.shape = column.offsets, column.shape
        values: Array = np.empty(column.shape, dtype)
        column.write(values)
        self.is_packed = dtype == np.bool_
        self._narrow = _packed(values) if self.is_packed else _narrowest(values)
        self.dtype, self.wire_shape = self._narrow.dtype, self._narrow.shape

    def write(self, out: Array) -> None:
        """Write what travels."""
        out[...] = self._narrow


def _packed(values: Array) -> Array:
    return np.packbits(values.reshape(-1), bitorder="little")


def _narrowest(values: Array) -> Array:
    fault = np.zeros(1, np.int64)
    for dtype in narrower(values.dtype):
        narrow: Array = np.empty(values.shape, dtype)
        narrow_values(values, narrow, fault)
        if not fault[0]:
            return narrow
        fault[0] = 0
    return values
