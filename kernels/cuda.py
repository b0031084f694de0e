"""The kernels on device arrays, compiled by numba-cuda.

Every launch is asynchronous: nothing here waits for the device, reads from it or allocates on it.
Order among launches is the caller's, by the stream it passes; the device that the arrays live on
must be current. Like their twins these functions check nothing; `gpufeed.kernels` does.

Geometry: a block is ``down`` rows of ``across`` threads, with consecutive threads on consecutive
columns, so that writes coalesce however the rows are cut. The grid's y axis shares the columns of
long rows out among blocks. All loops stride over the grid, so any grid covers any array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from gpufeed.kernels.words import arithmetic_dtype, as_words, limits, word_of

__all__ = [
    "as_device_array",
    "convert_values",
    "densify_rows",
    "gather_sequences",
    "narrow_values",
    "pad_rows",
    "unpack_bits",
    "unpad_rows",
]

# numba's device array; under its simulator, a NumPy array.
Array = npt.NDArray[Any]

WARP = 32
THREADS_PER_BLOCK = 256
# One full wave on the largest devices of today; blocks that find no work end at once.
MIN_BLOCKS = 1024
MAX_BLOCKS = 65_535

# What the hardware adds atomically; other dtypes are added by one owner a column.
ATOMIC_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int32", "int64"))


def _compiled(function: Callable[..., None]) -> Any:
    """Compile ``function`` at its first launch, from the disk cache where there is one."""
    try:
        return cuda.jit(cache=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return cuda.jit()(function)


def _inlined(function: Callable[..., None]) -> Any:
    """Make a function a part of the kernels that call it, whatever device they are for."""
    return cuda.jit(device=True, inline="always")(function)


@_inlined
def _clear(
    old_offsets: Array, old_indices: Array, row: int, low: int, high: int, out: Array
) -> None:
    """Zero a row's columns ``low:high``, or only the old entries in it where these are known."""
    across = cuda.blockDim.x
    if old_offsets.size == 0:
        for j in range(low + cuda.threadIdx.x, high, across):
            out[row, j] = 0
    else:
        for k in range(old_offsets[row] + cuda.threadIdx.x, old_offsets[row + 1], across):
            j = old_indices[k]
            if low <= j < high:
                out[row, j] = 0


@_inlined
def _note(fault: Array, k: int, is_outside: bool) -> None:
    """Remember entry ``k`` if it is outside its row; of all blocks of a row one does so."""
    if is_outside and fault.size and cuda.blockIdx.y == 0:
        cuda.atomic.max(fault, 0, k + 1)


@_compiled
def _set_rows(
    offsets: Array,
    indices: Array,
    one: Any,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    rows, dim = out.shape
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        # Every block clears what it fills itself, so a barrier within the block is enough.
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row] + cuda.threadIdx.x, offsets[row + 1], cuda.blockDim.x):
                j = indices[k]
                if low <= j < high:
                    out[row, j] = one
                _note(fault, k, j < 0 or j >= dim)


@_compiled
def _put_rows(
    offsets: Array,
    indices: Array,
    values: Array,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    """Set values of which no two have the same place."""
    rows, dim = out.shape
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row] + cuda.threadIdx.x, offsets[row + 1], cuda.blockDim.x):
                j = indices[k]
                if low <= j < high:
                    out[row, j] = out.dtype.type(values[k])
                _note(fault, k, j < 0 or j >= dim)


@_compiled
def _add_rows(
    offsets: Array,
    indices: Array,
    values: Array,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    rows, dim = out.shape
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row] + cuda.threadIdx.x, offsets[row + 1], cuda.blockDim.x):
                j = indices[k]
                if low <= j < high:
                    cuda.atomic.add(out, (row, j), out.dtype.type(values[k]))
                _note(fault, k, j < 0 or j >= dim)


@_compiled
def _add_rows_by_owner(
    offsets: Array,
    indices: Array,
    values: Array,
    zero: Any,
    old_offsets: Array,
    old_indices: Array,
    fault: Array,
    columns: int,
    out: Array,
) -> None:
    """Add without atomics: each thread reads the whole row and adds what falls on its columns."""
    rows, dim = out.shape
    across = cuda.blockDim.x
    low = cuda.blockIdx.y * columns
    high = min(low + columns, dim)
    cast = out.dtype.type
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, rows, cuda.gridDim.x * cuda.blockDim.y):
        row = first + cuda.threadIdx.y
        if row < rows:
            _clear(old_offsets, old_indices, row, low, high, out)
        cuda.syncthreads()
        if row < rows:
            for k in range(offsets[row], offsets[row + 1]):
                j = indices[k]
                if low <= j < high and (j - low) % across == cuda.threadIdx.x:
                    out[row, j] = cast(out[row, j] + (zero + cast(values[k])))
                _note(fault, k, (j < 0 or j >= dim) and cuda.threadIdx.x == 0)


@_compiled
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


@_compiled
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


@_compiled
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


@_compiled
def _cast(values: Array, out: Array) -> None:
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = out.dtype.type(values[i])


@_compiled
def _scale(values: Array, scale: Any, shift: Any, out: Array) -> None:
    cast = out.dtype.type
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = cast(cast(cast(values[i]) * scale) + shift)


@_compiled
def _scale_channels(
    values: Array, scale: Array, shift: Array, zero: Any, num_inner: int, out: Array
) -> None:
    cast = out.dtype.type
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        c = i // num_inner % scale.size
        # Factor and term are rounded to out's dtype too, but calculated with in that of `zero`.
        product = cast(cast(values[i]) * (zero + cast(scale[c])))
        out[i] = cast(product + (zero + cast(shift[c])))


@_compiled
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


@_compiled
def _unpack_bits(packed: Array, out: Array) -> None:
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = (packed[i >> 3] >> (i & 7)) & 1


def as_device_array(array: Any) -> Array:
    """Return numba's view of an array that has ``__cuda_array_interface__``.

    numba would make the host wait for the stream that the interface names; ordering the launch
    behind that stream's work is the caller's part here, so ``sync=False``.
    """
    return cuda.as_cuda_array(array, sync=False)  # type: ignore[no-any-return]


def _as_numba_stream(stream: Any | None) -> Any:
    """Return numba's name for ``stream``; None is the legacy default stream."""
    if stream is None:
        return 0
    _version, handle = stream.__cuda_stream__()
    return cuda.external_stream(int(handle))


def _grid_and_block(rows: int, row_width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return a launch for ``rows`` rows of ``row_width`` columns (module docstring)."""
    across = WARP
    while across < min(row_width, THREADS_PER_BLOCK):
        across *= 2
    down = THREADS_PER_BLOCK // across
    blocks_down = min(-(-rows // down), MAX_BLOCKS)
    return (blocks_down, -(-MIN_BLOCKS // blocks_down)), (across, down)


def densify_rows(
    offsets: Array,
    indices: Array,
    values: Array | None,
    out: Array,
    *,
    assume_unique: bool = False,
    previous: tuple[Array, Array] | None = None,
    fault: Array | None = None,
    stream: Any | None = None,
) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros."""
    if not out.size:
        return
    rows, dim = out.shape
    grid, block = _grid_and_block(rows, dim)
    launch = (grid, block, _as_numba_stream(stream))
    # Of each block, in whole multiples of its width, so that rows are cut at aligned addresses.
    columns = -(-dim // (grid[1] * block[0])) * block[0]
    # An empty array stands for none, which has no type that a kernel takes.
    old_offsets, old_indices = previous or (offsets[:0], indices[:0])
    rest = (old_offsets, old_indices, offsets[:0] if fault is None else fault, columns)
    if values is None:
        one = word_of(1, out.dtype)
        _set_rows[launch](offsets, indices, one, *rest, as_words(out, rows, dim))
    elif assume_unique:
        _put_rows[launch](offsets, indices, values, *rest, out)
    elif out.dtype in ATOMIC_DTYPES:
        _add_rows[launch](offsets, indices, values, *rest, out)
    else:
        zero = arithmetic_dtype(out.dtype).type(0)
        _add_rows_by_owner[launch](offsets, indices, values, zero, *rest, out)


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
    grid, block = _grid_and_block(rows, row_width)
    _pad[grid, block, _as_numba_stream(stream)](
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
    grid, block = _grid_and_block(rows, row_width)
    _unpad[grid, block, _as_numba_stream(stream)](
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
    grid, block = _grid_and_block(sequences.size, -(-out.size // sequences.size))
    words, out_words = as_words(values, values.size), as_words(out, out.size)
    _gather[grid, block, _as_numba_stream(stream)](
        words, offsets, sequences, new_offsets, width, is_reversed, out_words
    )


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
    launch = (MIN_BLOCKS, THREADS_PER_BLOCK, _as_numba_stream(stream))
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
        launch = (MIN_BLOCKS, THREADS_PER_BLOCK, _as_numba_stream(stream))
        low, high = limits(values.dtype, out.dtype)
        keeps_nan = out.dtype.kind == "f"
        flat, flat_out = values.reshape(values.size), out.reshape(out.size)
        _narrow[launch](flat, low, high, keeps_nan, flat_out, fault)


def unpack_bits(packed: Array, out: Array, *, stream: Any | None = None) -> None:
    """Turn bits into truth values: the inverse of ``numpy.packbits(..., bitorder="little")``."""
    if out.size:
        launch = (MIN_BLOCKS, THREADS_PER_BLOCK, _as_numba_stream(stream))
        _unpack_bits[launch](packed, out.reshape(out.size))
