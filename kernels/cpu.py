"""The kernels on host arrays, compiled by numba.

Compiled code is cached on disk, releases the GIL and touches no Python object. Like their twins
these functions check nothing but what only the data can tell; `gpufeed.kernels` does the rest.

What only moves values runs on words (`gpufeed.kernels.words`). Arithmetic on float16, which
numba's CPU target does not have, and plain casts, at which NumPy is as fast, are left to NumPy.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from gpufeed.kernels import reference
from gpufeed.kernels.cpu_densify import densify_rows
from gpufeed.kernels.cpu_launch import Array, compiled, in_parts
from gpufeed.kernels.jobs import do_jobs
from gpufeed.kernels.words import arithmetic_dtype, as_words, limits, word_of

__all__ = [
    "cache_folder",
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

# A value that is not kept ends `narrow_values` after so many others.
NARROW_AT_ONCE = 1024

# Below, loops over views: numba compiles them to vector copies, several times faster than slice
# assignment and than loops over ``values[start + j]``.


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
    for row in range(rows):
        start, end = offsets[row] * width, offsets[row + 1] * width
        length = min(end - start, row_width)
        kept = values[end - length : end] if keeps_end else values[start : start + length]
        left = row_width - length if pads_left else 0
        target, rest = out[row, left : left + length], out[row, length:]
        if pads_left:
            rest = out[row, :left]
        for j in range(kept.size):
            target[j] = kept[j]
        for j in range(rest.size):
            rest[j] = pad_word


@compiled
def _unpad(padded: Array, offsets: Array, width: int, pads_left: bool, out: Array) -> None:
    rows, row_width = padded.shape
    for row in range(rows):
        start = offsets[row] * width
        length = min(offsets[row + 1] * width - start, row_width)
        left = row_width - length if pads_left else 0
        kept, source = out[start : start + length], padded[row, left : left + length]
        for j in range(kept.size):
            kept[j] = source[j]


@compiled
def _gather(
    values: Array,
    offsets: Array,
    sequences: Array,
    new_offsets: Array,
    width: int,
    is_reversed: bool,
    out: Array,
) -> int:
    """Return the first entry of ``sequences`` that is none, or of another length; else -1."""
    for i in range(sequences.size):
        sequence, length = sequences[i], new_offsets[i + 1] - new_offsets[i]
        if sequence < 0 or sequence >= offsets.size - 1:
            return i
        start = offsets[sequence]
        if offsets[sequence + 1] - start != length:
            return i
        if not is_reversed:
            source = values[start * width : (start + length) * width]
            target = out[new_offsets[i] * width : new_offsets[i + 1] * width]
            for j in range(target.size):
                target[j] = source[j]
            continue
        for row in range(length):
            begin = (start + length - 1 - row) * width
            source = values[begin : begin + width]
            begin = (new_offsets[i] + row) * width
            target = out[begin : begin + width]
            for j in range(target.size):
                target[j] = source[j]
    return -1


@compiled
def _number(offsets: Array, restarts: bool, out: Array) -> None:
    for i in range(offsets.size - 1):
        numbers = out[offsets[i] : offsets[i + 1]]
        if restarts:
            for j in range(numbers.size):
                numbers[j] = j
        else:
            for j in range(numbers.size):
                numbers[j] = i


@compiled
def _mask(offsets: Array, pads_left: bool, out: Array) -> None:
    rows, width = out.shape
    for row in range(rows):
        length = min(offsets[row + 1] - offsets[row], width)
        left = width - length if pads_left else 0
        cells = out[row]
        for j in range(width):
            cells[j] = (j >= left) & (j < left + length)


@compiled
def _scale(values: Array, scale: Array, shift: Array, num_inner: int, out: Array) -> None:
    block = scale.size * num_inner
    for start in range(0, out.size, block):
        if num_inner == 1:  # channels last
            for c in range(scale.size):
                out[start + c] = out.dtype.type(values[start + c]) * scale[c] + shift[c]
            continue
        for c in range(scale.size):
            begin = start + c * num_inner
            source, target = values[begin : begin + num_inner], out[begin : begin + num_inner]
            factor, term = scale[c], shift[c]
            for i in range(target.size):
                target[i] = out.dtype.type(source[i]) * factor + term


@compiled
def _look_up(values: Array, table: Array, num_inner: int, out: Array) -> None:
    for start in range(0, out.size, num_inner):
        row = table[start // num_inner % len(table)]
        source, target = values[start : start + num_inner], out[start : start + num_inner]
        for i in range(target.size):
            target[i] = row[source[i]]


@compiled
def _narrow(values: Array, low: Any, high: Any, keeps_nan: bool, out: Array) -> bool:
    cast, back = out.dtype.type, values.dtype.type
    for start in range(0, out.size, NARROW_AT_ONCE):
        source = values[start : start + NARROW_AT_ONCE]
        target = out[start : start + NARROW_AT_ONCE]
        num_kept = 0
        for i in range(target.size):  # no branch, so that it is compiled to vector code
            value = source[i]
            is_nan = keeps_nan & (value != value)
            is_inside = ((value >= low) & (value <= high)) | is_nan
            narrow = cast(value if is_inside else back(0))
            target[i] = narrow
            again = back(narrow)
            is_same = (again == value) & (np.signbit(again) == np.signbit(value))
            num_kept += is_nan | (is_inside & is_same)
        if num_kept < target.size:
            return False
    return True


def cache_folder() -> str | None:
    """Return where compiled kernels are kept on disk, or None if no folder can be written."""
    kernel: Any = _pad
    folder: str | None = kernel.stats.cache_path
    return folder


def pad_rows(
    values: Array,
    offsets: Array,
    pad_value: float,
    out: Array,
    *,
    pads_left: bool = False,
    keeps_end: bool = False,
) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``."""
    width, word = math.prod(values.shape[1:]), word_of(pad_value, out.dtype)
    words, cells = as_words(values, values.size), as_words(out, len(out), out.shape[1] * width)

    def make(first: int, last: int) -> None:
        part = cells[first:last]
        _pad(words, offsets[first : last + 1], width, word, pads_left, keeps_end, part)

    in_parts(make, len(out), out.nbytes)


def unpad_rows(padded: Array, offsets: Array, out: Array, *, pads_left: bool = False) -> None:
    """Pack padded rows end to end: ``out[offsets[i]:offsets[i + 1]] = padded[i, :n]``."""
    width = math.prod(out.shape[1:])
    cells = as_words(padded, len(padded), padded.shape[1] * width)
    words = as_words(out, out.size)

    def make(first: int, last: int) -> None:
        _unpad(cells[first:last], offsets[first : last + 1], width, pads_left, words)

    in_parts(make, len(padded), out.nbytes)


def gather_sequences(
    values: Array,
    offsets: Array,
    sequences: Array,
    new_offsets: Array,
    out: Array,
    *,
    is_reversed: bool = False,
) -> None:
    """Copy sequences in another order, some more than once, some not at all."""
    width = math.prod(values.shape[1:])
    words, out_words = as_words(values, values.size), as_words(out, out.size)

    def make(first: int, last: int) -> int:
        part = sequences[first:last], new_offsets[first : last + 1]
        wrong: int = _gather(words, offsets, *part, width, is_reversed, out_words)
        return wrong if wrong < 0 else first + wrong

    wrong = max(in_parts(make, len(sequences), out.nbytes))
    if wrong >= 0:
        _raise_for_sequence(offsets, sequences[wrong], new_offsets[wrong : wrong + 2])


def _raise_for_sequence(offsets: Array, sequence: int, bounds: Array) -> None:
    num = len(offsets) - 1
    if not 0 <= sequence < num:
        raise ValueError(f"gather_sequences.sequences must be in [0, {num}), got {sequence}")
    raise ValueError(
        f"gather_sequences.new_offsets must leave {np.diff(offsets)[sequence]} rows "
        f"for sequence {sequence}, got {np.diff(bounds)[0]}"
    )


def number_rows(offsets: Array, out: Array, *, restarts: bool = False) -> None:
    """Number packed rows by sequence, ``out[offsets[i]:offsets[i + 1]] = i``, or within it."""
    _number(offsets, restarts, out)


def mask_rows(offsets: Array, out: Array, *, pads_left: bool = False) -> None:
    """Tell which cells of padded rows hold values: ``out[i, j] = j < n``."""
    _mask(offsets, pads_left, out)


def convert_values(
    values: Array, scale: Any | None, shift: Any | None, out: Array, *, num_inner: int | None = None
) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``."""
    is_plain = scale is None and shift is None
    if not out.size:
        return
    factors: Any = scale
    terms: Any = shift
    if num_inner is None:
        # x * 1 and x + -0.0 are x, to the sign of a zero.
        dtype = arithmetic_dtype(out.dtype)
        factors = np.array([1.0 if scale is None else scale], dtype)
        terms = np.array([-0.0 if shift is None else shift], dtype)
        num_inner = out.size
    if out.dtype == np.float16 and values.itemsize == 1:
        # NumPy is slow at float16, but there are no more than 256 results a channel.
        table = np.empty((np.size(factors), 256), np.float16)
        every = np.tile(np.arange(256, dtype=np.uint8).view(values.dtype), len(table))
        reference.convert_values(every, factors, terms, table.reshape(-1), num_inner=256)
        words = as_words(table, *table.shape)
        _look_up(as_words(values, values.size), words, num_inner, as_words(out, out.size))
    elif is_plain or np.float16 in (values.dtype, out.dtype):
        reference.convert_values(values, scale, shift, out, num_inner=num_inner)
    else:
        _scale(values.reshape(values.size), factors, terms, num_inner, out.reshape(out.size))


def narrow_values(values: Array, out: Array, fault: Array) -> None:
    """Cast to a narrower dtype, and tell whether every value was kept: in one pass."""
    if np.float16 in (values.dtype, out.dtype):
        reference.narrow_values(values, out, fault)
        return
    low, high = limits(values.dtype, out.dtype)
    keeps_nan = out.dtype.kind == "f"
    if not _narrow(values.reshape(values.size), low, high, keeps_nan, out.reshape(out.size)):
        fault[0] = 1


def unpack_bits(packed: Array, out: Array) -> None:
    """Turn bits into truth values: the inverse of ``numpy.packbits(..., bitorder="little")``."""
    reference.unpack_bits(packed, out)


def unpack_fields(slab: Array, fault: Array, *, has_late: bool = False) -> None:
    """Do what the table at the start of ``slab`` says, and note an index outside its row."""
    do_jobs(sys.modules[__name__], slab, fault)
