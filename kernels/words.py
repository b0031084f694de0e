"""Values as words: unsigned integers of the same size.

A kernel that only moves values, or writes one constant, need not know their dtype. Run on words it
is compiled once for each of four sizes instead of once for each of nine dtypes, and it works for
float16, which numba's CPU target cannot load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["arithmetic_dtype", "as_words", "limits", "word_of"]


def as_words(array: npt.NDArray[Any], *shape: int) -> npt.NDArray[Any]:
    """Return a view of contiguous ``array`` as words, in another shape of the same size.

    >>> as_words(np.ones((2, 1), "float16"), 2).tolist()
    [15360, 15360]
    """
    return array.reshape(shape).view(f"u{array.dtype.itemsize}")


def word_of(value: object, dtype: np.dtype[Any]) -> Any:
    """Return the word that holds ``value`` as ``dtype``.

    >>> word_of(1.0, np.dtype("float16"))
    np.uint16(15360)
    """
    return np.array(value).astype(dtype).view(f"u{dtype.itemsize}")[()]


def arithmetic_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to calculate in for results of ``dtype``, which are rounded to it after.

    numba calls a library of C++ functions, compiled and linked apart, for every float16 operation.
    In float32, one operation on float16 values rounded to float16 gives the same bits.
    """
    return np.result_type(dtype, np.float32 if dtype.kind == "f" else np.int64)


def limits(dtype: np.dtype[Any], narrow: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least and the largest value of ``dtype`` that can be cast to ``narrow``.

    What the cast of a float to whole numbers does beyond them is not defined.

    >>> limits(np.dtype("float32"), np.dtype("int32"))
    (np.float32(-2.1474836e+09), np.float32(2.1474835e+09))
    >>> limits(np.dtype("int8"), np.dtype("uint8"))
    (np.int8(0), np.int8(127))
    """
    if narrow.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    low, high = np.iinfo(narrow).min, np.iinfo(narrow).max
    if dtype.kind != "f":
        return dtype.type(max(low, np.iinfo(dtype).min)), dtype.type(min(high, np.iinfo(dtype).max))
    largest = dtype.type(min(high, int(np.finfo(dtype).max)))
    least = dtype.type(max(low, -int(np.finfo(dtype).max)))
    return least, largest if int(largest) <= high else np.nextafter(largest, dtype.type(0))
