"""The kernels: changes of layout and dtype, run where the arrays live.

================== =============================================== ==========================
`densify_rows`     CSR rows to dense ones                          zeros, then adds or sets
`pad_rows`         packed rows to rows of one length               cuts, fills with a value
`unpad_rows`       padded rows back to packed ones                 copies
`gather_sequences` packed rows in another order                    copies, forth or back
`number_rows`      offsets to sequence numbers, or places in them  counts
`mask_rows`        offsets to the cells of padded rows in use      compares
`convert_values`   one dtype to another                            casts, scales, shifts
`narrow_values`    one dtype to a narrower one                     casts, finds what is lost
`unpack_bits`      bits to truth values                            shifts, masks
`unpack_fields`    what travelled to what is fed, a batch at once  does all of the above
================== =============================================== ==========================

Each has three twins of one meaning: `gpufeed.kernels.reference` (plain NumPy), ``cpu`` (numba) and
``cuda`` (numba-cuda). The functions here check their arguments and call the ``cpu`` twin for NumPy
arrays, the ``cuda`` twin for arrays that have ``__cuda_array_interface__``. numba is imported by
the first call (or `warm_up`), never by the import of this module.

Kernels know arrays, never tensors. They write into ``out``, which is given, and allocate nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

if __name__ == "kernels":
    # The folder stands beside the package, where an unrelated "kernels" would be looked for too.
    raise ImportError("kernels is the source folder of gpufeed.kernels; import gpufeed.kernels")

from gpufeed.kernels.jobs import FAULT_WORDS
from gpufeed.kernels.ragged import (
    gather_sequences,
    mask_rows,
    number_rows,
    pad_rows,
    unpad_rows,
)
from gpufeed.kernels.sparse import densify_rows
from gpufeed.kernels.unpack import prepare_unpack, unpack_fields
from gpufeed.kernels.wire import convert_values, narrow_values, unpack_bits
from gpufeed.kernels.words import arithmetic_dtype

__all__ = [
    "convert_values",
    "densify_rows",
    "gather_sequences",
    "mask_rows",
    "narrow_values",
    "number_rows",
    "pad_rows",
    "prepare_unpack",
    "unpack_bits",
    "unpack_fields",
    "unpad_rows",
    "warm_up",
]


def warm_up(
    *,
    densify: Iterable[tuple[npt.DTypeLike, npt.DTypeLike | None, npt.DTypeLike]] = (),
    convert: Iterable[tuple[npt.DTypeLike, npt.DTypeLike, bool | Literal["channels"]]] = (),
    narrow: Iterable[tuple[npt.DTypeLike, npt.DTypeLike]] = (),
    pad: Iterable[tuple[npt.DTypeLike, npt.DTypeLike]] = (),
    unpack: bool = False,
    zeros: Callable[..., Any] = np.zeros,
) -> None:
    """Compile, or load from the disk cache, what later calls with these dtypes will run.

    It imports numba and makes each call once on arrays of one row, so it can take seconds with a
    cold cache; a feeder does it on a thread when it is constructed.

    >>> warm_up(densify=[("int64", None, "float32")])

    Args:
        densify: (offsets and indices, values or None, out) dtypes of `densify_rows`.
        convert: (values, out) dtypes of `convert_values`, and whether it scales or shifts:
            ``"channels"`` if each channel by its own factor.
        narrow: (values, out) dtypes of `narrow_values`, which runs on the host.
        pad: (values, offsets) dtypes of `pad_rows`, `unpad_rows` and `gather_sequences`; of the
            offsets also `number_rows` and `mask_rows`.
        unpack: Whether to warm `prepare_unpack`, which on a device is one kernel for all dtypes.
        zeros: ``numpy.zeros`` or ``cupy.zeros``: whose kernels to warm, for the current device.
    """
    for index_dtype, value_dtype, out_dtype in densify:
        offsets, indices = zeros(2, index_dtype), zeros(0, index_dtype)
        values = None if value_dtype is None else zeros(0, value_dtype)
        for previous in (None, (offsets, indices)):
            densify_rows(offsets, indices, values, zeros((1, 1), out_dtype), previous=previous)
    for value_dtype, out_dtype, is_scaled in convert:
        scale, shift, axis = (1.0 if is_scaled else None), None, None
        if is_scaled == "channels":
            scale = shift = zeros(1, arithmetic_dtype(np.dtype(out_dtype)))
            axis = 0
        convert_values(zeros(1, value_dtype), scale, shift, zeros(1, out_dtype), axis=axis)
    for value_dtype, out_dtype in narrow:
        narrow_values(np.zeros(1, value_dtype), np.zeros(1, out_dtype), np.zeros(1, np.int64))
    if unpack:
        run = prepare_unpack(zeros(4096, np.uint8), zeros(FAULT_WORDS, np.int64))
        run(False)  # a table of no jobs
    for value_dtype, index_dtype in pad:
        offsets, rows, padded = (
            zeros(2, index_dtype),
            zeros(0, value_dtype),
            zeros((1, 1), value_dtype),
        )
        pad_rows(rows, offsets, 0, padded)
        unpad_rows(padded, offsets, rows)
        gather_sequences(rows, offsets, zeros(1, index_dtype), offsets, rows)
        number_rows(offsets, zeros(0, np.int64))
        mask_rows(offsets, zeros((1, 1), bool))
