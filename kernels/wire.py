"""Kernels between what travels and what is used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpufeed.kernels.checks import (
    FAULT_DTYPES,
    FLAG_DTYPES,
    VALUE_DTYPES,
    check_array,
    check_castable,
)
from gpufeed.kernels.dispatch import resolve
from gpufeed.kernels.words import arithmetic_dtype

__all__ = ["convert_values", "narrow_values", "unpack_bits"]


def convert_values(
    values: Any,
    scale: Any | None,
    shift: Any | None,
    out: Any,
    *,
    axis: int | None = None,
    stream: Any | None = None,
) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``.

    >>> out = np.empty((2, 2), "float32")
    >>> convert_values(np.array([[0, 255], [1, 2]], "uint8"), 2.0, -1.0, out)
    >>> out.tolist()
    [[-1.0, 509.0], [1.0, 3.0]]

    With ``axis`` each channel has a factor and a term of its own:

    >>> scale, shift = np.array([1, 10], "float32"), np.array([0, 5], "float32")
    >>> convert_values(np.array([[0, 255], [1, 2]], "uint8"), scale, shift, out, axis=1)
    >>> out.tolist()
    [[0.0, 2555.0], [1.0, 25.0]]

    Args:
        values: Of any shape.
        scale: Factor; None scales nothing. With ``axis``: ``(channels,)``, of ``out``'s dtype
            (float32 for float16), where the values are.
        shift: Term added after scaling; None adds nothing. With ``axis``: like ``scale``.
        out: Of the shape of ``values``; a float array where ``scale`` or ``shift`` is given.
        axis: Of the channels, or None.
        stream: As for `densify_rows`. A device may round product and sum once instead of twice.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    factors = {"scale": scale, "shift": shift} if axis is not None else {}
    run, (values, out, *on_place) = resolve(
        "convert_values", stream, values=values, out=out, **factors
    )
    check_array("convert_values.values", values, (...,))
    check_array("convert_values.out", out, values.shape, is_written=True)
    check_castable("convert_values.values", values, out)
    if (scale is not None or shift is not None) and out.dtype.kind != "f":
        raise TypeError(
            f"convert_values.out must be a float array to be scaled or shifted, got {out.dtype}"
        )
    if axis is None:
        run(values, scale, shift, out)
        return
    if not -out.ndim <= axis < out.ndim:
        raise ValueError(f"convert_values.axis must be in [{-out.ndim}, {out.ndim}), got {axis}")
    for name, factor in zip(factors, on_place, strict=True):
        if factor is None:
            raise ValueError(f"convert_values.{name} must be an array with axis, got None")
        dtypes = (arithmetic_dtype(out.dtype),)
        check_array(f"convert_values.{name}", factor, (out.shape[axis],), dtypes)
    run(values, *on_place, out, num_inner=math.prod(out.shape[axis:][1:]))


def narrow_values(values: Any, out: Any, fault: Any, *, stream: Any | None = None) -> None:
    """Cast to a narrower dtype, and tell whether every value was kept: in one pass.

    A value is kept if it is the same number in ``out``, sign of zero included; NaN is kept. What is
    in ``out`` where a value is not kept, and after it, is not said.

    >>> out, fault = np.empty(3, "uint8"), np.zeros(1, "int64")
    >>> narrow_values(np.array([7, 255, 0]), out, fault)
    >>> out.tolist(), fault.tolist()
    ([7, 255, 0], [0])
    >>> narrow_values(np.array([7, 256, -1]), out, fault)
    >>> fault.tolist()
    [1]

    Args:
        values: Whole or floating-point numbers, of any shape.
        out: Of the shape of ``values`` and another dtype; of whole numbers, if ``values`` are.
        fault: ``(1,)`` int64. Becomes 1 if a value is not kept, else it stays as it is.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (values, out, fault) = resolve(
        "narrow_values", stream, values=values, out=out, fault=fault
    )
    numbers = tuple(dtype for dtype in VALUE_DTYPES if dtype != np.bool_)
    check_array("narrow_values.values", values, (...,), numbers)
    allowed = tuple(d for d in numbers if values.dtype.kind == "f" or d.kind != "f")
    check_array("narrow_values.out", out, values.shape, allowed, is_written=True)
    check_array("narrow_values.fault", fault, (1,), FAULT_DTYPES, is_written=True)
    run(values, out, fault)


def unpack_bits(packed: Any, out: Any, *, stream: Any | None = None) -> None:
    """Turn bits into truth values: the inverse of ``numpy.packbits(..., bitorder="little")``.

    >>> out = np.empty(10, bool)
    >>> unpack_bits(np.array([0b101, 0b10], "uint8"), out)
    >>> np.flatnonzero(out).tolist()
    [0, 2, 9]

    Args:
        packed: ``(ceil(out.size / 8),)`` uint8; bit ``i % 8`` of byte ``i // 8`` is value ``i``.
        out: bool, of any shape; overwritten.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of another dtype, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (packed, out) = resolve("unpack_bits", stream, packed=packed, out=out)
    check_array("unpack_bits.out", out, (...,), FLAG_DTYPES, is_written=True)
    size = -(-out.size // 8)
    check_array("unpack_bits.packed", packed, (size,), (np.dtype("uint8"),))
    run(packed, out)
