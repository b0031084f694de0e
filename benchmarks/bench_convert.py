"""What does it cost to widen, scale and narrow what travels, against copying it?

Method: ``convert_values`` of bytes to float32 and float16, with one factor and with one a channel,
into an output that is used again, against NumPy's ``multiply(..., out=)`` and ``add``, PyTorch's
and TensorFlow's; the floor is a memset of the output. ``narrow_values`` of int64 ids to int32 (cast
and range check in one) against NumPy's minimum, maximum and cast. Sums are compared first. Then the
same conversion on a GPU, by events.

Not measured: reading the output afterwards, and the transfer that the narrower dtype shortens.

Command: ``python benchmarks convert --json out.json && python benchmarks/plots.py out.json plots``

Last result: ``results/cpu-2core-xeon.json``, on two quiet cores. Bytes became float32 in 1.04
times the memset's time, float16 in 1.4 (NumPy: 2.0 and 36, TensorFlow: 3.6 and 6.0); ids were
narrowed and checked in 1.8 times the time of the unchecked cast (NumPy: 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from devices import require_cupy, timed_by_events
from harness import Case

from gpufeed.kernels import convert_values, narrow_values

IMAGES = (64, 3, 224, 224)
NUM_IDS = 1_000_000
# Powers of two, so that every way of rounding gives the same.
SCALE, SHIFT = 1 / 256, -0.5

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)


def cases() -> Iterator[Case]:
    """Yield the comparisons: on the host, then on a GPU."""
    images = rng.integers(0, 256, IMAGES, np.uint8)
    for dtype in ("float32", "float16"):
        yield _convert_case(images, dtype)
    yield _narrow_case()
    cupy = require_cupy()
    for dtype in ("float32", "float16"):
        yield _device_case(cupy.asarray(images), dtype, cupy)


def _sum(result: Any) -> float:
    return float(np.asarray(result).sum(dtype=np.float64))


def _convert_case(images: Array, dtype: str) -> Case:
    outs = [np.zeros(IMAGES, dtype) for _ in range(4)]
    expected = images.astype(dtype) * np.dtype(dtype).type(SCALE) + np.dtype(dtype).type(SHIFT)
    scale, shift = (np.full(IMAGES[1], factor, np.float32) for factor in (SCALE, SHIFT))

    def memset() -> Array:
        outs[0].fill(0)
        return expected

    def convert() -> Array:
        convert_values(images, SCALE, SHIFT, outs[1])
        return outs[1]

    def by_channel() -> Array:
        convert_values(images, scale, shift, outs[2], axis=1)
        return outs[2]

    def numpy() -> Array:
        np.copyto(outs[3], images)
        np.multiply(outs[3], outs[3].dtype.type(SCALE), out=outs[3])
        np.add(outs[3], outs[3].dtype.type(SHIFT), out=outs[3])
        return outs[3]

    contestants: dict[str, Callable[[], Any]] = {
        "memset of the output": memset,
        "gpufeed": convert,
        "gpufeed, by channel": by_channel,
        "NumPy, three passes": numpy,
    }
    try:
        import torch
    except ImportError:
        pass
    else:
        tensor, kind = torch.from_numpy(images), getattr(torch, dtype)
        contestants["PyTorch"] = lambda: tensor.to(kind).mul_(SCALE).add_(SHIFT).numpy()
    try:
        import tensorflow as tf
    except ImportError:
        pass
    else:
        given, factor, term = tf.constant(images), tf.cast(SCALE, dtype), tf.cast(SHIFT, dtype)
        contestants["TensorFlow"] = lambda: tf.cast(given, dtype) * factor + term
    return Case(
        name=f"{IMAGES} uint8 to {dtype}, scaled and shifted",
        contestants=contestants,
        num_units=images.size / 1e6,
        unit="MB",
        checksum=_sum,
    )


def _narrow_case() -> Case:
    ids = rng.integers(0, 2**31, NUM_IDS)
    outs, fault = [np.zeros(NUM_IDS, np.int32) for _ in range(3)], np.zeros(1, np.int64)

    def cast() -> Array:
        np.copyto(outs[0], ids, casting="unsafe")
        return outs[0]

    def narrow() -> Array:
        narrow_values(ids, outs[1], fault)
        return outs[1] if not fault[0] else ids

    def numpy() -> Array:
        if ids.min() < -(2**31) or ids.max() >= 2**31:
            return ids
        np.copyto(outs[2], ids, casting="unsafe")
        return outs[2]

    return Case(
        name=f"{NUM_IDS} int64 ids to int32, checked",
        contestants={"cast, unchecked": cast, "gpufeed": narrow, "NumPy min, max, cast": numpy},
        num_units=ids.nbytes / 1e6,
        unit="MB",
        checksum=_sum,
    )


def _device_case(images: Any, dtype: str, cupy: Any) -> Case:
    out = cupy.zeros(IMAGES, dtype)
    copied = cupy.zeros(IMAGES, dtype)
    stream = cupy.cuda.get_current_stream()
    expected = images.astype(dtype) * out.dtype.type(SCALE) + out.dtype.type(SHIFT)

    def memset() -> Any:
        copied.data.memset_async(0, copied.nbytes)
        return expected

    def convert() -> Any:
        convert_values(images, SCALE, SHIFT, out, stream=stream)
        return out

    def by_cupy() -> Any:
        return images.astype(dtype) * out.dtype.type(SCALE) + out.dtype.type(SHIFT)

    works = {"memset of the output": memset, "gpufeed": convert, "CuPy": by_cupy}
    return Case(
        name=f"GPU: {IMAGES} uint8 to {dtype}, scaled and shifted",
        contestants={name: timed_by_events(work) for name, work in works.items()},
        num_units=images.size / 1e6,
        unit="MB",
        checksum=lambda result: _sum(result.get()),
    )
