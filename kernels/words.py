"""Values as words: unsigned integers of the same size.

A kernel that only moves values, or writes one constant, need not know their dtype. Run on words it
is compiled once for each of four sizes instead of once for each of nine dtypes, and it works for
float16, which numba's CPU target cannot load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["as_words", "word_of"]


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
