"""The kernels on device arrays, compiled by numba-cuda.

Every launch is asynchronous: nothing here waits for the device, reads from it or allocates on it.
Order among launches is the caller's, by the stream it passes; the device that the arrays live on
must be current. Like their twins these functions check nothing; `gpufeed.kernels` does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from gpufeed.kernels import cuda_launch
from gpufeed.kernels.cuda_densify import densify_rows
from gpufeed.kernels.cuda_launch import (
    Array,
    as_device_array,
    as_numba_stream,
    compiled,
    flat_launch,
    grid_and_block,
    inlined,
)
from gpufeed.kernels.cuda_runs import (
    LOADS,
    copy_words,
    count_channels,
    divided,
    expand_bits,
    fill_words,
    load_run,
    run_of,
    store_run,
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


@inlined
def _run_in_row() -> tuple[int, int]:
    """Return the first run of a thread in each of its rows, and the step to the next one."""
    x = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    return run_of(x), cuda.gridDim.y * cuda.blockDim.x * LOADS


@compiled
def _pad(
    values: Array,
    offsets: Array,
    width: int,
    pad_word: Any,
    pads_left: bool,
    keeps_end: bool,
    row_width: int,
    out: Array,
) -> None:
    first, step = _run_in_row()
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    while row < offsets.size - 1:
        start, end = offsets[row] * width, offsets[row + 1] * width
        length = max(0, min(end - start, row_width))
        begin, num_pads = row * row_width, row_width - length
        fill_words(out, begin + (0 if pads_left else length), num_pads, pad_word, first, step)
        copy_words(
            values,
            end - length if keeps_end else start,
            out,
            begin + (num_pads if pads_left else 0),
            length,
            first,
            step,
        )
        row += cuda.gridDim.x * cuda.blockDim.y


@compiled
def _unpad(
    padded: Array, offsets: Array, width: int, pads_left: bool, row_width: int, out: Array
) -> None:
    first, step = _run_in_row()
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    while row < offsets.size - 1:
        start = offsets[row] * width
        length = min(offsets[row + 1] * width - start, row_width)
        begin = row * row_width + (row_width - length if pads_left else 0)
        copy_words(padded, begin, out, start, length, first, step)
        row += cuda.gridDim.x * cuda.blockDim.y


@compiled
def _gather(
    values: Array, offsets: Array, sequences: Array, new_offsets: Array, width: int, out: Array
) -> None:
    first, step = _run_in_row()
    i = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    while i < sequences.size:
        start, begin = offsets[sequences[i]] * width, new_offsets[i] * width
        copy_words(values, start, out, begin, new_offsets[i + 1] * width - begin, first, step)
        i += cuda.gridDim.x * cuda.blockDim.y


@compiled
def _gather_reversed(
    values: Array, offsets: Array, sequences: Array, new_offsets: Array, width: int, out: Array
) -> None:
    i = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    while i < sequences.size:
        start, begin = offsets[sequences[i]] * width, new_offsets[i] * width
        last = new_offsets[i + 1] * width - begin - width
        j = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        while j < last + width:
            row = divided(j, width) * width
            out[np.uint64(begin + j)] = values[np.uint64(start + last - row + (j - row))]
            j += cuda.gridDim.y * cuda.blockDim.x
        i += cuda.gridDim.x * cuda.blockDim.y


@compiled
def _number(offsets: Array, restarts: bool, out: Array) -> None:
    i = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    while i < offsets.size - 1:
        start, end = offsets[i], offsets[i + 1]
        j = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        while j < end - start:
            out[np.uint64(start + j)] = j if restarts else i
            j += cuda.gridDim.y * cuda.blockDim.x
        i += cuda.gridDim.x * cuda.blockDim.y


@compiled
def _mask(offsets: Array, pads_left: bool, row_width: int, out: Array) -> None:
    first, step = _run_in_row()
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    while row < offsets.size - 1:
        length = max(0, min(offsets[row + 1] - offsets[row], row_width))
        begin, num_pads = row * row_width, row_width - length
        fill_words(out, begin + (0 if pads_left else length), num_pads, False, first, step)
        fill_words(out, begin + (num_pads if pads_left else 0), length, True, first, step)
        row += cuda.gridDim.x * cuda.blockDim.y


@compiled
def _cast(values: Array, out: Array) -> None:
    held = cuda.local.array(LOADS, values.dtype)
    first = run_of(cuda.grid(1))
    while first < out.size:
        left = min(out.size - first, cuda_launch.WARP * LOADS)
        load_run(values, first, left, held)
        store_run(held, out, first, left)
        first += cuda.gridsize(1) * LOADS


@compiled
def _scale(values: Array, scale: Any, shift: Any, out: Array) -> None:
    held = cuda.local.array(LOADS, out.dtype)
    cast = out.dtype.type
    first = run_of(cuda.grid(1))
    while first < out.size:
        left = min(out.size - first, cuda_launch.WARP * LOADS)
        load_run(values, first, left, held)
        for k in range(LOADS):
            held[k] = cast(cast(held[k] * scale) + shift)
        store_run(held, out, first, left)
        first += cuda.gridsize(1) * LOADS


@compiled
def _scale_channels(
    values: Array, scale: Array, shift: Array, zero: Any, num_inner: int, out: Array
) -> None:
    held, channels = cuda.local.array(LOADS, out.dtype), cuda.local.array(LOADS, np.int64)
    cast = out.dtype.type
    first = run_of(cuda.grid(1))
    while first < out.size:
        left = min(out.size - first, cuda_launch.WARP * LOADS)
        load_run(values, first, left, held)
        count_channels(first, num_inner, scale.size, channels)
        for k in range(LOADS):
            c = np.uint64(channels[k])
            # Factor and term are rounded to out's dtype too, but calculated with in that of `zero`.
            product = cast(held[k] * (zero + cast(scale[c])))
            held[k] = cast(product + (zero + cast(shift[c])))
        store_run(held, out, first, left)
        first += cuda.gridsize(1) * LOADS


@compiled
def _narrow(
    values: Array, zero: Any, low: Any, high: Any, keeps_nan: bool, out: Array, fault: Array
) -> None:
    cast, back = out.dtype.type, values.dtype.type
    i = cuda.grid(1)
    while i < out.size:
        at = np.uint64(i)
        i += cuda.gridsize(1)
        value = zero + values[at]  # in the dtype of `zero`, as halves are compared by a library
        if keeps_nan and value != value:
            out[at] = cast(value)
            continue
        if not low <= value <= high:
            fault[0] = 1
            continue
        out[at] = cast(value)
        again = zero + back(out[at])
        if again != value or math.copysign(1.0, again) != math.copysign(1.0, value):
            fault[0] = 1


@compiled
def _unpack_bits(packed: Array, out: Array) -> None:
    expand_bits(packed, 0, out, 0, out.size, run_of(cuda.grid(1)), cuda.gridsize(1) * LOADS)


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
    row_width = out.shape[1] * width
    grid, block = grid_and_block(out.shape[0], -(-row_width // LOADS))
    _pad[grid, block, as_numba_stream(stream)](
        as_words(values, values.size),
        offsets,
        width,
        word_of(pad_value, out.dtype),
        pads_left,
        keeps_end,
        row_width,
        as_words(out, out.size),
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
    row_width = padded.shape[1] * width
    grid, block = grid_and_block(padded.shape[0], -(-row_width // LOADS))
    words, out_words = as_words(padded, padded.size), as_words(out, out.size)
    _unpad[grid, block, as_numba_stream(stream)](
        words, offsets, width, pads_left, row_width, out_words
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
    at_once, kernel = (1, _gather_reversed) if is_reversed else (LOADS, _gather)
    grid, block = grid_and_block(sequences.size, -(-out.size // (sequences.size * at_once)))
    words, out_words = as_words(values, values.size), as_words(out, out.size)
    kernel[grid, block, as_numba_stream(stream)](
        words, offsets, sequences, new_offsets, width, out_words
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
        rows, row_width = out.shape
        grid, block = grid_and_block(rows, -(-row_width // LOADS))
        flat = out.reshape(out.size)
        _mask[grid, block, as_numba_stream(stream)](offsets, pads_left, row_width, flat)


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
        scalar = arithmetic_dtype(values.dtype).type
        low, high = map(scalar, limits(values.dtype, out.dtype))
        zero = scalar(-0.0) if values.dtype.kind == "f" else scalar(0)  # which leaves signs alone
        keeps_nan = out.dtype.kind == "f"
        flat, flat_out = values.reshape(values.size), out.reshape(out.size)
        _narrow[launch](flat, zero, low, high, keeps_nan, flat_out, fault)


def unpack_bits(packed: Array, out: Array, *, stream: Any | None = None) -> None:
    """Turn bits into truth values: the inverse of ``numpy.packbits(..., bitorder="little")``."""
    if out.size:
        launch = flat_launch(stream)
        _unpack_bits[launch](packed, out.reshape(out.size))
