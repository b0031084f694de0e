"""Kernels on packed rows: to padded ones and back, in another order, and their numbers."""

from __future__ import annotations

from typing import Any

from gpufeed.kernels.checks import (
    FLAG_DTYPES,
    INDEX_DTYPES,
    can_fill,
    check_array,
    check_offsets,
)
from gpufeed.kernels.dispatch import resolve

__all__ = ["gather_sequences", "mask_rows", "number_rows", "pad_rows", "unpad_rows"]


def pad_rows(
    values: Any,
    offsets: Any,
    pad_value: float,
    out: Any,
    *,
    pads_left: bool = False,
    keeps_end: bool = False,
    stream: Any | None = None,
) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``.

    ``n`` is the row's length, at most ``max_length``: longer rows lose their end. The rest of
    ``out`` becomes ``pad_value``.

    >>> import numpy as np
    >>> out = np.empty((2, 2), "int64")
    >>> pad_rows(np.array([7, 8, 9, 5]), np.array([0, 3, 4]), -1, out)
    >>> out.tolist()
    [[7, 8], [5, -1]]
    >>> pad_rows(np.array([7, 8, 9, 5]), np.array([0, 3, 4]), -1, out, pads_left=True)
    >>> out.tolist()
    [[7, 8], [-1, 5]]

    Args:
        values: ``(total, *item)``.
        offsets: ``(rows + 1,)``, int32 or int64.
        pad_value: One number for all, which the dtype of ``out`` can hold.
        out: ``(rows, max_length, *item)``, of the dtype of ``values``; overwritten.
        pads_left: Put ``pad_value`` before a short row and not after it.
        keeps_end: Of a long row drop the beginning and not the end.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (values, offsets, out) = resolve(
        "pad_rows", stream, values=values, offsets=offsets, out=out
    )
    check_array("pad_rows.values", values, ("total", ...))
    shape = ("rows", "max_length", *values.shape[1:])
    check_array("pad_rows.out", out, shape, (values.dtype,), is_written=True)
    check_offsets("pad_rows.offsets", offsets, out.shape[0], values.shape[0])
    if not can_fill(pad_value, out.dtype):
        raise ValueError(
            f"pad_rows.pad_value must be a number that {out.dtype} can hold, got {pad_value!r}"
        )
    run(values, offsets, pad_value, out, pads_left=bool(pads_left), keeps_end=bool(keeps_end))


def unpad_rows(
    padded: Any, offsets: Any, out: Any, *, pads_left: bool = False, stream: Any | None = None
) -> None:
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
        pads_left: A row's values are the last ones of its padded row.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (padded, offsets, out) = resolve(
        "unpad_rows", stream, padded=padded, offsets=offsets, out=out
    )
    check_array("unpad_rows.padded", padded, ("rows", "max_length", ...))
    shape = ("total", *padded.shape[2:])
    check_array("unpad_rows.out", out, shape, (padded.dtype,), is_written=True)
    check_offsets("unpad_rows.offsets", offsets, padded.shape[0], out.shape[0])
    run(padded, offsets, out, pads_left=bool(pads_left))


def gather_sequences(
    values: Any,
    offsets: Any,
    sequences: Any,
    new_offsets: Any,
    out: Any,
    *,
    is_reversed: bool = False,
    stream: Any | None = None,
) -> None:
    """Copy sequences in another order, some more than once, some not at all.

    ``out[new_offsets[i]:new_offsets[i + 1]] = values[offsets[j]:offsets[j + 1]]`` with
    ``j = sequences[i]``.

    >>> import numpy as np
    >>> out = np.empty(5, "int64")
    >>> offsets, order = np.array([0, 1, 3]), np.array([1, 0, 1])
    >>> gather_sequences(np.array([7, 8, 9]), offsets, order, np.array([0, 2, 3, 5]), out)
    >>> out.tolist()
    [8, 9, 7, 8, 9]

    Args:
        values: ``(total, *item)``.
        offsets: ``(entries + 1,)``, int32 or int64.
        sequences: ``(taken,)``, of the dtype of ``offsets``, in ``[0, entries)``.
        new_offsets: ``(taken + 1,)``, of that dtype: as far apart as the sequences are long. On a
            device that both fit is the caller's promise.
        out: ``(new total, *item)``, of the dtype of ``values``.
        is_reversed: Copy the rows of each sequence last to first.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape; on the host also a
            sequence that is not there, or has not the length that ``new_offsets`` says.
    """
    run, (values, offsets, sequences, new_offsets, out) = resolve(
        "gather_sequences",
        stream,
        values=values,
        offsets=offsets,
        sequences=sequences,
        new_offsets=new_offsets,
        out=out,
    )
    check_array("gather_sequences.values", values, ("total", ...))
    shape = ("new total", *values.shape[1:])
    check_array("gather_sequences.out", out, shape, (values.dtype,), is_written=True)
    check_offsets("gather_sequences.offsets", offsets, len(offsets[1:]), values.shape[0])
    dtypes = (offsets.dtype,)
    check_array("gather_sequences.sequences", sequences, ("taken",), dtypes)
    taken, total = len(sequences), out.shape[0]
    check_offsets("gather_sequences.new_offsets", new_offsets, taken, total, dtypes)
    run(values, offsets, sequences, new_offsets, out, is_reversed=bool(is_reversed))


def number_rows(
    offsets: Any, out: Any, *, restarts: bool = False, stream: Any | None = None
) -> None:
    """Number packed rows by sequence, ``out[offsets[i]:offsets[i + 1]] = i``, or within it.

    >>> import numpy as np
    >>> out = np.empty(5, "int64")
    >>> number_rows(np.array([0, 3, 3, 5]), out)
    >>> out.tolist()
    [0, 0, 0, 2, 2]
    >>> number_rows(np.array([0, 3, 3, 5]), out, restarts=True)
    >>> out.tolist()
    [0, 1, 2, 0, 1]

    Args:
        offsets: ``(sequences + 1,)``, int32 or int64.
        out: ``(total,)``, int32 or int64; overwritten.
        restarts: Count 0, 1, 2 ... in each sequence anew.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (offsets, out) = resolve("number_rows", stream, offsets=offsets, out=out)
    check_array("number_rows.out", out, ("total",), INDEX_DTYPES, is_written=True)
    check_offsets("number_rows.offsets", offsets, len(offsets[1:]), out.shape[0])
    run(offsets, out, restarts=bool(restarts))


def mask_rows(
    offsets: Any, out: Any, *, pads_left: bool = False, stream: Any | None = None
) -> None:
    """Tell which cells of padded rows hold values: ``out[i, j] = j < n``.

    ``n`` is the row's length, at most ``max_length``: see `pad_rows`.

    >>> import numpy as np
    >>> out = np.empty((2, 2), bool)
    >>> mask_rows(np.array([0, 3, 4]), out)
    >>> out.tolist()
    [[True, True], [True, False]]

    Args:
        offsets: ``(rows + 1,)``, int32 or int64.
        out: ``(rows, max_length)`` bool; overwritten.
        pads_left: A row's values are the last ones of its padded row: ``j >= max_length - n``.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (offsets, out) = resolve("mask_rows", stream, offsets=offsets, out=out)
    check_array("mask_rows.out", out, ("rows", "max_length"), FLAG_DTYPES, is_written=True)
    check_offsets("mask_rows.offsets", offsets, len(out), None)
    run(offsets, out, pads_left=bool(pads_left))
