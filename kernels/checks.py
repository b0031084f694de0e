"""What the dispatcher asks of its arguments before a kernel may touch memory.

Shapes, dtypes and layout are checked everywhere; the ends of ``offsets`` only on the host, since
reading them from a device would make the host wait. Each check costs the same for any batch size:
that offsets never fall, and indices stay in range, is the caller's promise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["check_array", "check_castable", "check_dtype", "check_offsets", "check_shape"]

Array = npt.NDArray[Any]

VALUE_DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("bool", "float16", "float32", "float64"),
        *("int8", "int16", "int32", "int64", "uint8"),
    )
)
INDEX_DTYPES = (np.dtype("int32"), np.dtype("int64"))


def check_array(name: str, array: Array, min_ndim: int, *, is_written: bool = False) -> None:
    """Raise unless ``array`` is C-contiguous with at least ``min_ndim`` dimensions.

    Args:
        name: Of the argument, as ``operation.argument``.
        array: A NumPy array or numba's view of a device array.
        min_ndim: How many dimensions the operation takes for granted.
        is_written: Whether the operation writes into it, so that it must not be read-only.

    Raises:
        ValueError: It is not.
    """
    if array.ndim < min_ndim:
        raise ValueError(f"{name} must have >= {min_ndim} dimensions, got shape {array.shape}")
    if not array.flags["C_CONTIGUOUS"]:
        raise ValueError(
            f"{name} must be C-contiguous, got shape {array.shape} with strides {array.strides}"
        )
    if is_written and isinstance(array, np.ndarray) and not array.flags["WRITEABLE"]:
        raise ValueError(f"{name} must be writable, got a read-only array")


def check_dtype(name: str, array: Array, dtypes: tuple[np.dtype[Any], ...]) -> None:
    """Raise unless the dtype of ``array`` is one of ``dtypes``.

    Raises:
        TypeError: It is not.
    """
    if array.dtype not in dtypes:
        allowed = ", ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} must have dtype {allowed}, got {array.dtype}")


def check_shape(name: str, array: Array, shape: tuple[int | str, ...]) -> None:
    """Raise unless ``array`` has ``shape``, in which a string stands for any size.

    Raises:
        ValueError: It has not.
    """
    fits = len(array.shape) == len(shape)
    if fits:
        for got, want in zip(array.shape, shape, strict=True):
            if got != want and not isinstance(want, str):
                fits = False
    if not fits:
        wanted = ", ".join(map(str, shape))
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(array.shape)}")


def check_offsets(name: str, offsets: Array, rows: int, total: int) -> None:
    """Raise unless ``offsets`` can cut ``total`` entries into ``rows`` rows.

    Raises:
        TypeError: It is not an array of int32 or int64.
        ValueError: It has another length, or (on the host) other ends.
    """
    check_array(name, offsets, 1)
    check_dtype(name, offsets, INDEX_DTYPES)
    check_shape(name, offsets, (rows + 1,))
    if isinstance(offsets, np.ndarray) and (offsets[0] != 0 or offsets[-1] != total):
        raise ValueError(
            f"{name} must start at 0 and end at {total}, got {offsets[0]} and {offsets[-1]}"
        )


def check_castable(name: str, values: Array, out: Array) -> None:
    """Raise unless a kernel can cast ``values`` to ``out``: numbers never become truth values.

    Raises:
        TypeError: It cannot.
    """
    check_dtype(name, values, VALUE_DTYPES)
    if out.dtype == np.bool_ and values.dtype != np.bool_:
        raise TypeError(f"{name} must have dtype bool when out has, got {values.dtype}")
