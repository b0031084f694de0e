"""What each kernel means, in plain NumPy.

These are the specification: slow, short and obviously right. The twins in `gpufeed.kernels.cpu`
and `gpufeed.kernels.cuda` are tested against them. They check nothing; `gpufeed.kernels` does.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.kernels.jobs import do_jobs

__all__ = [
    "convert_values",
    "densify_rows",
    "gather_sequences",
    "mask_rows",
    "narrow_values",
    "number_rows",
    "pad_rows",
    "unpack_bits",
    "unpack_fields",
    "unpad_rows",
]

Array = npt.NDArray[Any]


def densify_rows(
    offsets: Array,
    indices: Array,
    values: Array | None,
    out: Array,
    *,
    assume_unique: bool = False,
    previous: tuple[Array, Array] | None = None,
    fault: Array | None = None,
) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros.

    >>> out = np.empty((2, 3), "float32")
    >>> densify_rows(np.array([0, 2, 3]), np.array([0, 0, 2]), np.array([1.0, 2.0, 3.0]), out)
    >>> out.tolist()
    [[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]]
    """
    rows = np.repeat(np.arange(len(out)), np.diff(offsets))
    inside = (indices >= 0) & (indices < out.shape[1])
    if previous is None:
        out[...] = 0
    else:
        densify_rows(*previous, None, was_written := np.empty(out.shape, bool))
        out[was_written] = 0
    if values is None:
        out[rows[inside], indices[inside]] = 1
    elif assume_unique:
        out[rows[inside], indices[inside]] = values[inside].astype(out.dtype)
    else:
        np.add.at(out, (rows[inside], indices[inside]), values[inside].astype(out.dtype))
    if fault is not None and not inside.all():
        fault[0] = max(fault[0], 1 + np.flatnonzero(~inside)[-1])


def pad_rows(
    values: Array,
    offsets: Array,
    pad_value: float,
    out: Array,
    *,
    pads_left: bool = False,
    keeps_end: bool = False,
) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``.

    >>> out = np.empty((2, 2), "int64")
    >>> pad_rows(np.array([7, 8, 9, 5]), np.array([0, 3, 4]), -1, out)
    >>> out.tolist()
    [[7, 8], [5, -1]]
    """
    out[...] = pad_value
    width = out.shape[1]
    for row, (start, end) in enumerate(pairwise(offsets.tolist())):
        kept = values[max(start, end - width) : end] if keeps_end else values[start:end][:width]
        first = width - len(kept) if pads_left else 0
        out[row, first : first + len(kept)] = kept


def unpad_rows(padded: Array, offsets: Array, out: Array, *, pads_left: bool = False) -> None:
    """Pack padded rows end to end: ``out[offsets[i]:offsets[i + 1]] = padded[i, :n]``.

    >>> out = np.empty(3, "int64")
    >>> unpad_rows(np.array([[7, 8], [5, -1]]), np.array([0, 2, 3]), out)
    >>> out.tolist()
    [7, 8, 5]
    """
    width = padded.shape[1]
    for row, (start, end) in enumerate(pairwise(offsets.tolist())):
        length = min(end - start, width)
        first = width - length if pads_left else 0
        out[start : start + length] = padded[row, first : first + length]


def gather_sequences(
    values: Array,
    offsets: Array,
    sequences: Array,
    new_offsets: Array,
    out: Array,
    *,
    is_reversed: bool = False,
) -> None:
    """Copy sequences in another order, some more than once, some not at all.

    >>> out = np.empty(2, "int64")
    >>> gather_sequences(np.array([7, 8]), np.array([0, 1, 2]), np.array([1, 0]), np.arange(3), out)
    >>> out.tolist()
    [8, 7]
    """
    for sequence, (start, end) in zip(sequences, pairwise(new_offsets), strict=True):
        rows = values[offsets[sequence] : offsets[sequence + 1]]
        out[start:end] = rows[::-1] if is_reversed else rows


def number_rows(offsets: Array, out: Array, *, restarts: bool = False) -> None:
    """Number packed rows by sequence, ``out[offsets[i]:offsets[i + 1]] = i``, or within it.

    >>> out = np.empty(3, "int64")
    >>> number_rows(np.array([0, 2, 3]), out)
    >>> out.tolist()
    [0, 0, 1]
    """
    for sequence, (start, end) in enumerate(pairwise(offsets.tolist())):
        out[start:end] = np.arange(end - start) if restarts else sequence


def mask_rows(offsets: Array, out: Array, *, pads_left: bool = False) -> None:
    """Tell which cells of padded rows hold values: ``out[i, j] = j < n``.

    >>> out = np.empty((2, 2), bool)
    >>> mask_rows(np.array([0, 3, 4]), out)
    >>> out.tolist()
    [[True, True], [True, False]]
    """
    pad_rows(np.ones(offsets[-1], bool), offsets, False, out, pads_left=pads_left)


def convert_values(
    values: Array, scale: Any | None, shift: Any | None, out: Array, *, num_inner: int = 1
) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``.

    >>> out = np.empty(2, "float32")
    >>> convert_values(np.array([0, 255], "uint8"), 2.0, -1.0, out)
    >>> out.tolist()
    [-1.0, 509.0]
    """
    np.copyto(out, values, casting="unsafe")
    for factor, operation in ((scale, np.multiply), (shift, np.add)):
        if isinstance(factor, np.ndarray):
            num_outer = out.size // max(1, factor.size * num_inner)
            channels = out.reshape(num_outer, factor.size, num_inner)
            operation(channels, factor.astype(out.dtype)[:, None], out=channels)
        elif factor is not None:
            operation(out, out.dtype.type(factor), out=out)


def narrow_values(values: Array, out: Array, fault: Array) -> None:
    """Cast to a narrower dtype, and tell whether every value was kept: in one pass.

    >>> out, fault = np.empty(2, "uint8"), np.zeros(1, "int64")
    >>> narrow_values(np.array([7, 256]), out, fault)
    >>> fault.tolist()
    [1]
    """
    with np.errstate(all="ignore"):
        np.copyto(out, values, casting="unsafe")
    kept = out == values
    if values.dtype.kind == "f":
        back = out.astype(values.dtype)
        kept = (kept & (np.signbit(back) == np.signbit(values))) | (
            np.isnan(back) & np.isnan(values)
        )
    if not kept.all():
        fault[0] = 1


def unpack_bits(packed: Array, out: Array) -> None:
    """Turn bits into truth values: the inverse of ``numpy.packbits(..., bitorder="little")``.

    >>> out = np.empty(3, bool)
    >>> unpack_bits(np.array([0b101], "uint8"), out)
    >>> out.tolist()
    [True, False, True]
    """
    bits = np.unpackbits(packed, count=out.size, bitorder="little")
    out[...] = bits.reshape(out.shape)


def unpack_fields(slab: Array, fault: Array, *, has_late: bool = False) -> None:
    """Do what the table at the start of ``slab`` says, and note an index outside its row."""
    do_jobs(sys.modules[__name__], slab, fault)
