"""Kernels between what travels and what is used."""

from __future__ import annotations

from typing import Any

from gpufeed.kernels.checks import (
    VALUE_DTYPES,
    check_array,
    check_castable,
    check_dtype,
    check_shape,
)
from gpufeed.kernels.dispatch import resolve

__all__ = ["convert_values"]


def convert_values(
    values: Any,
    scale: float | None,
    shift: float | None,
    out: Any,
    *,
    stream: Any | None = None,
) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``.

    >>> import numpy as np
    >>> out = np.empty(2, "float32")
    >>> convert_values(np.array([0, 255], "uint8"), 2.0, -1.0, out)
    >>> out.tolist()
    [-1.0, 509.0]

    Args:
        values: Of any shape.
        scale: Factor; None scales nothing.
        shift: Term added after scaling; None adds nothing.
        out: Of the shape of ``values``; a float array where ``scale`` or ``shift`` is given.
        stream: As for `densify_rows`. A device may round product and sum once instead of twice.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (values, out) = resolve("convert_values", stream, values=values, out=out)
    check_array("convert_values.values", values, 0)
    check_array("convert_values.out", out, 0, is_written=True)
    check_shape("convert_values.out", out, values.shape)
    check_dtype("convert_values.out", out, VALUE_DTYPES)
    check_castable("convert_values.values", values, out)
    if (scale, shift) != (None, None) and out.dtype.kind != "f":
        raise TypeError(
            f"convert_values.out must be a float array to be scaled or shifted, got {out.dtype}"
        )
    run(values, scale, shift, out)
