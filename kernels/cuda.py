"""The kernels on device arrays, compiled by numba-cuda.

Every launch is asynchronous: nothing here waits for the device, reads from it or allocates on it.
Order among launches is the caller's, by the stream it passes; the device that the arrays live on
must be current. Like their twins these functions check nothing; `gpufeed.kernels` does.
"""

from __future__ import annotations

import math
from typing import Any

from numba import cuda

from gpufeed.kernels.cuda_densify import densify_rows
from gpufeed.kernels.cuda_launch import (
    Array,
    as_device_array,
    as_numba_stream,
    compiled,
    flat_launch,
    grid_and_block,
)
from gpufeed.kernels.cuda_unpack import unpack_fields
from gpufeed.kernels.words import arithmetic_dtype, as_words, limits, word_of

__all__ = [
    "as_device_array",
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


@compiled
def _pad(
    values: Array,
    offsets: Array,
    width: int,
    pad_word: Any,
    pads_left: bool,
    keeps_end: bool,
    out: Array,
) -> None:
    rows, row_width = out.shape
    left = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    across = cuda.gridDim.y * cuda.blockDim.x
    down = cuda.gridDim.x * cuda.blockDim.y
    for row in range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, rows, down):
        start, end = offsets[row] * width, offsets[row + 1] * width
        length = min(end - start, row_width)
        if keeps_end:
            start = end - length
        begins = row_width - length if pads_left else 0
        for j in range(left, row_width, across):
            out[row, j] = values[start + j - begins] if 0 <= j - begins < length else pad_word


@compiled
def _unpad(padded: Array, offsets: Array, width: int, pads_left: bool, out: Array) -> None:
    rows, row_width = padded.shape
    left = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    across = cuda.gridDim.y * cuda.blockDim.x
    down = cuda.gridDim.x * cuda.blockDim.y
    for row in range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, rows, down):
        start = offsets[row] * width
        length = min(offsets[row + 1] * width - start, row_width)
        begins = row_width - length if pads_left else 0
        for j in range(left, length, across):
            out[start + j] = padded[row, begins + j]


@compiled
def _gather(
    values: Array,
    offsets: Array,
    sequences: Array,
    new_offsets: Array,
    width: int,
    is_reversed: bool,
    out: Array,
) -> None:
    left = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    across = cuda.gridDim.y * cuda.blockDim.x
    down = cuda.gridDim.x * cuda.blockDim.y
    begin = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    for i in range(begin, sequences.size, down):
        start, target = offsets[sequences[i]] * width, new_offsets[i] * width
        length = new_offsets[i + 1] * width - target
        for j in range(left, length, across):
            from_start = j
            if is_reversed:
                from_start = length - width - j + 2 * (j % width)
            out[target + j] = values[start + from_start]


@compiled
def _number(offsets: Array, restarts: bool, out: Array) -> None:
    left = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    across = cuda.gridDim.y * cuda.blockDim.x
    down = cuda.gridDim.x * cuda.blockDim.y
    begin = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    for i in range(begin, offsets.size - 1, down):
        start = offsets[i]
        for j in range(left, offsets[i + 1] - start, across):
            out[start + j] = j if restarts else i


@compiled
def _mask(offsets: Array, pads_left: bool, out: Array) -> None:
    rows, width = out.shape
    left = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    across = cuda.gridDim.y * cuda.blockDim.x
    down = cuda.gridDim.x * cuda.blockDim.y
    for row in range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, rows, down):
        length = min(offsets[row + 1] - offsets[row], width)
        begins = width - length if pads_left else 0
        for j in range(left, width, across):
            out[row, j] = 0 <= j - begins < length


@compiled
def _cast(values: Array, out: Array) -> None:
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = out.dtype.type(values[i])


@compiled
def _scale(values: Array, scale: Any, shift: Any, out: Array) -> None:
    cast = out.dtype.type
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = cast(cast(cast(values[i]) * scale) + shift)


@compiled
def _scale_channels(
    values: Array, scale: Array, shift: Array, zero: Any, num_inner: int, out: Array
) -> None:
    cast = out.dtype.type
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        c = i // num_inner % scale.size
        # Factor and term are rounded to out's dtype too, but calculated with in that of `zero`.
        product = cast(cast(values[i]) * (zero + cast(scale[c])))
        out[i] = cast(product + (zero + cast(shift[c])))


@compiled
def _narrow(values: Array, low: Any, high: Any, keeps_nan: bool, out: Array, fault: Array) -> None:
    cast, back = out.dtype.type, values.dtype.type
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        value = values[i]
        if keeps_nan and value != value:
            out[i] = cast(value)
            continue
        if not low <= value <= high:
            fault[0] = 1
            continue
        out[i] = cast(value)
        again = back(out[i])
        if again != value or math.copysign(1.0, again) != math.copysign(1.0, value):
            fault[0] = 1


@compiled
def _unpack_bits(packed: Array, out: Array) -> None:
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = (packed[i >> 3] >> (i & 7)) & 1


def pad_rows(
    values: Array,
    offsets: Array,
    pad_value: float,
    out: Array,
    *,
    pads_left: bool = False,
    keeps_end: bool = False,
    stream: Any | None = None,
) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``."""
    if not out.size:
        return
    width = math.prod(values.shape[1:])
    rows, row_width = out.shape[0], out.shape[1] * width
    grid, block = grid_and_block(rows, row_width)
    _pad[grid, block, as_numba_stream(stream)](
        as_words(values, values.size),
        offsets,
        width,
        word_of(pad_value, out.dtype),
        pads_left,
        keeps_end,
        as_words(out, rows, row_width),
    )


def unpad_rows(
    padded: Array,
    offsets: Array,
    out: Array,
    *,
    pads_left: bool = False,
    stream: Any | None = None,
) -> None:
    """Pack padded rows end to end: ``out[offsets[i]:offsets[i + 1]] = padded[i, :n]``."""
    if not padded.size:
        return
    width = math.prod(out.shape[1:])
    rows, row_width = padded.shape[0], padded.shape[1] * width
    grid, block = grid_and_block(rows, row_width)
    _unpad[grid, block, as_numba_stream(stream)](
        as_words(padded, rows, row_width), offsets, width, pads_left, as_words(out, out.size)
    )


def gather_sequences(
    values: Array,
    offsets: Array,
    sequences: Array,
    new_offsets: Array,
    out: Array,
    *,
    is_reversed: bool = False,
    stream: Any | None = None,
) -> None:
    """Copy sequences in another order, some more than once, some not at all."""
    if not out.size:
        return
    width = math.prod(values.shape[1:])
    # The lengths are on the device; the grid is made for sequences that are about equally long.
    grid, block = grid_and_block(sequences.size, -(-out.size // sequences.size))
    words, out_words = as_words(values, values.size), as_words(out, out.size)
    _gather[grid, block, as_numba_stream(stream)](
        words, offsets, sequences, new_offsets, width, is_reversed, out_words
    )


def number_rows(
    offsets: Array, out: Array, *, restarts: bool = False, stream: Any | None = None
) -> None:
    """Number packed rows by sequence, ``out[offsets[i]:offsets[i + 1]] = i``, or within it."""
    if out.size:
        sequences = offsets.size - 1
        grid, block = grid_and_block(sequences, -(-out.size // sequences))
        _number[grid, block, as_numba_stream(stream)](offsets, restarts, out)


def mask_rows(
    offsets: Array, out: Array, *, pads_left: bool = False, stream: Any | None = None
) -> None:
    """Tell which cells of padded rows hold values: ``out[i, j] = j < n``."""
    if out.size:
        grid, block = grid_and_block(*out.shape)
        _mask[grid, block, as_numba_stream(stream)](offsets, pads_left, out)


def convert_values(
    values: Array,
    scale: Any | None,
    shift: Any | None,
    out: Array,
    *,
    num_inner: int | None = None,
    stream: Any | None = None,
) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``.

    float32 and float64 are scaled and shifted with a single rounding.
    """
    if not out.size:
        return
    launch = flat_launch(stream)
    flat, flat_out = values.reshape(values.size), out.reshape(out.size)
    scalar = arithmetic_dtype(out.dtype).type
    if num_inner is not None:
        _scale_channels[launch](flat, scale, shift, scalar(0), num_inner, flat_out)
    elif scale is None and shift is None:
        _cast[launch](flat, flat_out)
    else:
        _scale[launch](
            flat,
            # x * 1 and x + -0.0 are x, to the sign of a zero. Both are rounded to out's dtype.
            scalar(out.dtype.type(1.0 if scale is None else scale)),
            scalar(out.dtype.type(-0.0 if shift is None else shift)),
            flat_out,
        )


def narrow_values(values: Array, out: Array, fault: Array, *, stream: Any | None = None) -> None:
    """Cast to a narrower dtype, and tell whether every value was kept: in one pass."""
    if out.size:
        launch = flat_launch(stream)
        low, high = limits(values.dtype, out.dtype)
        keeps_nan = out.dtype.kind == "f"
        flat, flat_out = values.reshape(values.size), out.reshape(out.size)
        _narrow[launch](flat, low, high, keeps_nan, flat_out, fault)


def unpack_bits(packed: Array, out: Array, *, stream: Any | None = None) -> None:
    """Turn bits into truth values: the inverse of ``numpy.packbits(..., bitorder="little")``."""
    if out.size:
        launch = flat_launch(stream)
        _unpack_bits[launch](packed, out.reshape(out.size))
