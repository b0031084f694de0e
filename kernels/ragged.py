"""Kernels between packed rows and padded ones."""

from __future__ import annotations

from typing import Any

from gpufeed.kernels.checks import (
    VALUE_DTYPES,
    check_array,
    check_dtype,
    check_offsets,
    check_shape,
)
from gpufeed.kernels.dispatch import resolve

__all__ = ["pad_rows", "unpad_rows"]


def pad_rows(
    values: Any, offsets: Any, pad_value: float, out: Any, *, stream: Any | None = None
) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``.

    ``n`` is the row's length, at most ``max_length``: longer rows lose their end. The rest of
    ``out`` becomes ``pad_value``.

    >>> import numpy as np
    >>> out = np.empty((2, 2), "int64")
    >>> pad_rows(np.array([7, 8, 9, 5]), np.array([0, 3, 4]), -1, out)
    >>> out.tolist()
    [[7, 8], [5, -1]]

    Args:
        values: ``(total, *item)``.
        offsets: ``(rows + 1,)``, int32 or int64.
        pad_value: One number for all.
        out: ``(rows, max_length, *item)``, of the dtype of ``values``; overwritten.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (values, offsets, out) = resolve(
        "pad_rows", stream, values=values, offsets=offsets, out=out
    )
    check_array("pad_rows.values", values, 1)
    check_dtype("pad_rows.values", values, VALUE_DTYPES)
    check_array("pad_rows.out", out, 2, is_written=True)
    check_dtype("pad_rows.out", out, (values.dtype,))
    check_shape("pad_rows.out", out, ("rows", "max_length", *values.shape[1:]))
    check_offsets("pad_rows.offsets", offsets, out.shape[0], values.shape[0])
    run(values, offsets, pad_value, out)


def unpad_rows(padded: Any, offsets: Any, out: Any, *, stream: Any | None = None) -> None:
    """Pack padded rows end to end: ``out[offsets[i]:offsets[i + 1]] = padded[i, :n]``.

    ``n`` is the row's length. Of a row longer than ``max_length`` only what ``padded`` holds is
    written.

    >>> import numpy as np
    >>> out = np.empty(3, "int64")
    >>> unpad_rows(np.array([[7, 8], [5, -1]]), np.array([0, 2, 3]), out)
    >>> out.tolist()
    [7, 8, 5]

    Args:
        padded: ``(rows, max_length, *item)``.
        offsets: ``(rows + 1,)``, int32 or int64.
        out: ``(total, *item)``, of the dtype of ``padded``.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (padded, offsets, out) = resolve(
        "unpad_rows", stream, padded=padded, offsets=offsets, out=out
    )
    check_array("unpad_rows.padded", padded, 2)
    check_dtype("unpad_rows.padded", padded, VALUE_DTYPES)
    check_array("unpad_rows.out", out, 1, is_written=True)
    check_dtype("unpad_rows.out", out, (padded.dtype,))
    check_shape("unpad_rows.out", out, ("total", *padded.shape[2:]))
    check_offsets("unpad_rows.offsets", offsets, padded.shape[0], out.shape[0])
    run(padded, offsets, out)
