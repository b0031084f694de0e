"""What does it cost to pad ragged rows and to unpad them, against copying what must be moved?

Method: ``pad_rows`` and ``unpad_rows`` between packed rows and a rectangle that is used again,
against one ``np.copyto`` of the rectangle (padding) or of the packed rows (unpadding), a NumPy loop
over rows, for padding PyTorch's ``pad_sequence``, which is given the rows apart, and for both
TensorFlow's ragged tensors; these make new memory. ``gather_sequences`` against NumPy's fancy index
over rows, ``number_rows`` against ``np.repeat``, ``mask_rows`` against a comparison with each row's
length. Of each contestant `NUM_REPEATS` calls are timed at once. Sums weighted by position are
compared first. Then padding on a GPU, by events, against a copy on the device.

Not measured: the search for the longest row, and reading the result afterwards.

Command: ``python benchmarks pad --json out.json && python benchmarks/plots.py out.json plots``

Last result: ``results/cpu-2core-xeon.json``, on two quiet cores. At 4096 rows of up to 512
numbers padding took 0.9 of the copy's time, unpadding 1.4, gathering 1.4, numbering 0.7, masking
0.95 (NumPy: 3.5, 30, 11, 0.7, 9; TensorFlow's padding 2.6, its unpadding 34). Where the copy takes
10 us, a call's own 10 to 30 us are most of it: 1.8 to 3.2 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from devices import require_cupy, timed_by_events
from harness import Case, repeated

from gpufeed.kernels import gather_sequences, mask_rows, number_rows, pad_rows, unpad_rows

NUM_REPEATS = 8
# Rows, their largest length, values a row item.
SHAPES = [(256, 200, 1), (4096, 512, 1), (256, 200, 64), (64, 2048, 128)]
GPU_SHAPES = [(4096, 2048, 1), (1024, 2048, 64)]

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)


def cases() -> Iterator[Case]:
    """Yield the comparisons: on the host, then on a GPU."""
    for shape in SHAPES:
        ragged = _ragged(*shape)
        yield _pad_case(shape, *ragged)
        yield _unpad_case(shape, *ragged)
        yield _gather_case(shape, *ragged)
        if shape[2] == 1:
            yield _number_case(shape, ragged[1])
            yield _mask_case(shape, ragged[1])
    cupy = require_cupy()
    for shape in GPU_SHAPES:
        yield _device_case(shape, cupy)


def _ragged(rows: int, longest: int, width: int) -> tuple[Array, Array]:
    lengths = rng.integers(1, longest + 1, rows)
    lengths[0] = longest
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return rng.integers(0, 9, (offsets[-1], width)).astype(np.float32), offsets


def _case(verb: str, shape: tuple[int, ...], contestants: Any) -> Case:
    rows, longest, width = shape
    return Case(
        name=f"{verb} {rows} rows of up to {longest} x {width} float32",
        contestants={name: repeated(work, NUM_REPEATS) for name, work in contestants.items()},
        num_units=NUM_REPEATS,
        unit="batch",
        checksum=_weighted_sum,
    )


def _weighted_sum(result: Any) -> float:
    if hasattr(result, "get"):
        result = result.get()
    flat = np.asarray(result, np.float64).reshape(-1)
    return float(flat @ (np.arange(flat.size) % 1009))


def _padded_slowly(values: Array, offsets: Array, out: Array) -> Array:
    out[...] = 0
    for row, (start, end) in enumerate(pairwise(offsets.tolist())):
        out[row, : end - start] = values[start:end]
    return out


def _pad_case(shape: tuple[int, ...], values: Array, offsets: Array) -> Case:
    outs = [np.zeros(shape, np.float32) for _ in range(4)]
    padded = _padded_slowly(values, offsets, outs[0])

    def copy() -> Array:
        np.copyto(outs[1], padded)
        return outs[1]

    def pad() -> Array:
        pad_rows(values, offsets, 0, outs[2])
        return outs[2]

    contestants: dict[str, Callable[[], Any]] = {
        "np.copyto of the rectangle": copy,
        "gpufeed": pad,
        "NumPy, row by row": lambda: _padded_slowly(values, offsets, outs[3]),
    }
    try:
        from torch import from_numpy
        from torch.nn.utils.rnn import pad_sequence
    except ImportError:
        pass
    else:
        rows = [from_numpy(values[start:end]) for start, end in pairwise(offsets.tolist())]
        contestants["PyTorch pad_sequence"] = lambda: pad_sequence(rows, batch_first=True)
    ragged = _tensorflow_ragged()
    if ragged is not None:
        tensor = ragged.from_row_splits(values, offsets, validate=False)
        contestants["TensorFlow to_tensor"] = tensor.to_tensor
    return _case("pad", shape, contestants)


def _tensorflow_ragged() -> Any:
    """Return TensorFlow's class of ragged tensors; None where that is not installed."""
    try:
        from tensorflow import RaggedTensor
    except ImportError:
        return None
    return RaggedTensor


def _unpad_case(shape: tuple[int, ...], values: Array, offsets: Array) -> Case:
    padded = _padded_slowly(values, offsets, np.zeros(shape, np.float32))
    outs = [np.zeros_like(values) for _ in range(3)]
    lengths = np.diff(offsets)

    def copy() -> Array:
        np.copyto(outs[0], values)
        return outs[0]

    def unpad() -> Array:
        unpad_rows(padded, offsets, outs[1])
        return outs[1]

    def by_mask() -> Array:
        return padded[np.arange(shape[1]) < lengths[:, None]]

    contestants: dict[str, Callable[[], Any]] = {
        "np.copyto of the rows": copy,
        "gpufeed": unpad,
        "NumPy, by a mask": by_mask,
    }
    ragged = _tensorflow_ragged()
    if ragged is not None:
        contestants["TensorFlow from_tensor"] = lambda: (
            ragged.from_tensor(padded, lengths=lengths).flat_values
        )
    return _case("unpad", shape, contestants)


def _gather_case(shape: tuple[int, ...], values: Array, offsets: Array) -> Case:
    order = rng.permutation(shape[0]).astype(np.int32)
    lengths = np.diff(offsets)[order]
    new_offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    out, copied = np.zeros_like(values), np.zeros_like(values)

    def gather() -> Array:
        gather_sequences(values, offsets, order, new_offsets, out)
        return out

    def by_rows() -> Array:
        starts = np.repeat(offsets[order] - new_offsets[:-1], lengths)
        return values[starts + np.arange(len(values))]

    expected = by_rows()

    def copy() -> Array:
        np.copyto(copied, expected)
        return copied

    contestants = {"np.copyto of the rows": copy, "gpufeed": gather, "NumPy, by rows": by_rows}
    return _case("gather", shape, contestants)


def _number_case(shape: tuple[int, ...], offsets: Array) -> Case:
    numbers, copied = np.zeros((2, int(offsets[-1])), np.int64)
    expected = np.repeat(np.arange(shape[0]), np.diff(offsets))

    def copy() -> Array:
        np.copyto(copied, expected)
        return copied

    def number() -> Array:
        number_rows(offsets, numbers)
        return numbers

    def by_repeat() -> Array:
        return np.repeat(np.arange(shape[0]), np.diff(offsets))

    works = {"np.copyto of the numbers": copy, "gpufeed": number, "NumPy repeat": by_repeat}
    return _case("number", shape, works)


def _mask_case(shape: tuple[int, ...], offsets: Array) -> Case:
    mask, copied = np.zeros((2, *shape[:2]), bool)
    expected = np.arange(shape[1]) < np.diff(offsets)[:, None]

    def copy() -> Array:
        np.copyto(copied, expected)
        return copied

    def fill() -> Array:
        mask_rows(offsets, mask)
        return mask

    def by_comparison() -> Array:
        return np.arange(shape[1]) < np.diff(offsets)[:, None]

    works = {"np.copyto of the mask": copy, "gpufeed": fill, "NumPy comparison": by_comparison}
    return _case("mask", shape, works)


def _device_case(shape: tuple[int, ...], cupy: Any) -> Case:
    values, offsets = map(cupy.asarray, _ragged(*shape))
    out, other = cupy.zeros(shape, cupy.float32), cupy.zeros(shape, cupy.float32)
    pad_rows(values, offsets, 0, other, stream=cupy.cuda.get_current_stream())
    copied = cupy.empty_like(other)

    def copy() -> Any:
        copied[...] = other
        return copied

    def pad() -> Any:
        pad_rows(values, offsets, 0, out, stream=cupy.cuda.get_current_stream())
        return out

    contestants = {"copy": timed_by_events(copy), "gpufeed": timed_by_events(pad)}
    return Case(
        name=f"GPU: pad {shape[0]} rows of up to {shape[1]} x {shape[2]} float32",
        contestants=contestants,
        num_units=1,
        unit="batch",
        checksum=_weighted_sum,
        target="80% of the copy's rate for the bytes moved",
    )
