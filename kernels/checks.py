"""What the dispatcher asks of its arguments before a kernel may touch memory.

Shapes, dtypes and layout are checked everywhere; whether ``offsets`` fit only on the host, since
reading them from a device would make the host wait: there it is the caller's promise. Indices and
numbers of sequences are left to the kernels.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["can_fill", "check_array", "check_castable", "check_offsets"]

Array = npt.NDArray[Any]

VALUE_DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("bool", "float16", "float32", "float64"),
        *("int8", "int16", "int32", "int64", "uint8"),
    )
)
INDEX_DTYPES = (np.dtype("int32"), np.dtype("int64"))
FAULT_DTYPES = (np.dtype("int64"),)
FLAG_DTYPES = (np.dtype("bool"),)


def check_array(
    name: str,
    array: Array,
    shape: tuple[Any, ...],
    dtypes: tuple[np.dtype[Any], ...] = VALUE_DTYPES,
    *,
    is_written: bool = False,
) -> None:
    """Raise unless ``array`` is C-contiguous, of this shape and of one of these dtypes.

    Args:
        name: Of the argument, as ``operation.argument``.
        array: A NumPy array or numba's view of a device array.
        shape: In it a string stands for any size, and ``...`` at its end for any more sizes.
        dtypes: Those that the operation takes.
        is_written: Whether the operation writes into it, so that it must not be read-only.

    Raises:
        TypeError: It is of another dtype.
        ValueError: It has another shape, is not contiguous, or is not to be written.
    """
    if array.shape != shape and not _fits(array.shape, shape):
        wanted = ", ".join("..." if size is ... else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(array.shape)}")
    if array.dtype not in dtypes:
        allowed = ", ".join(map(str, dtypes))
        raise TypeError(f"{name} must have dtype {allowed}, got {array.dtype}")
    flags = array.flags
    if not flags["C_CONTIGUOUS"]:
        raise ValueError(
            f"{name} must be C-contiguous, got shape {array.shape} with strides {array.strides}"
        )
    if is_written and isinstance(array, np.ndarray) and not flags["WRITEABLE"]:
        raise ValueError(f"{name} must be writable, got a read-only array")


def _fits(got: tuple[int, ...], shape: tuple[Any, ...]) -> bool:
    if shape and shape[-1] is ...:
        shape = shape[:-1]
        got = got[: len(shape)]
    if len(got) != len(shape):
        return False
    for size, wanted in zip(got, shape, strict=True):
        if size != wanted and not isinstance(wanted, str):
            return False
    return True


def check_offsets(
    name: str,
    offsets: Array,
    rows: int,
    total: int | None,
    dtypes: tuple[np.dtype[Any], ...] = INDEX_DTYPES,
) -> None:
    """Raise unless ``offsets`` can cut ``total`` entries (None: any number) into ``rows`` rows.

    Raises:
        TypeError: It is of another dtype.
        ValueError: It has another length, or (on the host) other ends, or falls.
    """
    check_array(name, offsets, (rows + 1,), dtypes)
    if isinstance(offsets, np.ndarray):
        first, last = offsets.item(0), offsets.item(-1)
        if first != 0 or last != (last if total is None else total):
            end = "" if total is None else f" and end at {total}"
            raise ValueError(f"{name} must start at 0{end}, got {first} and {last}")
        falls = offsets[1:] < offsets[:-1]
        if np.count_nonzero(falls):
            at = int(falls.argmax())
            raise ValueError(
                f"{name} must never fall, got {offsets[at]} then {offsets[at + 1]} at entry {at}"
            )


def can_fill(value: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether ``value`` is one number that ``dtype`` can hold, rounded if it is a float.

    >>> can_fill(0.1, np.dtype("float16")), can_fill(1e5, np.dtype("float16"))
    (True, False)
    >>> can_fill(-(10**30), np.dtype("float32")), can_fill(10**30, np.dtype("int64"))
    (True, False)
    """
    if type(value) is dtype.type:
        return True
    given = np.asarray(value)
    # What NumPy has no dtype for is an object to it, such as a fraction, or a very large int.
    if given.ndim or not (given.dtype.kind in "biuf" or isinstance(value, Real)):
        return False
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            kept = given.astype(dtype)
    except OverflowError:
        return False
    return bool(kept == given or (dtype.kind == "f" and (np.isfinite(kept) or given != given)))


def check_castable(name: str, values: Array, out: Array) -> None:
    """Raise unless a kernel can cast ``values`` to ``out``: numbers never become truth values.

    Raises:
        TypeError: It cannot.
    """
    if out.dtype == np.bool_ and values.dtype != np.bool_:
        raise TypeError(f"{name} must have dtype bool when out has, got {values.dtype}")
