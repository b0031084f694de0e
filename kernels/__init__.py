"""The kernels: changes of layout and dtype, run where the arrays live.

=================  ==============================================  ==========================
`densify_rows`     CSR rows to dense ones                          zeros, then adds or sets
`pad_rows`         packed rows to rows of one length               cuts, fills with a value
`unpad_rows`       padded rows back to packed ones                 copies
`convert_values`   one dtype to another                            casts, scales, shifts
=================  ==============================================  ==========================

Each has three twins of one meaning: `gpufeed.kernels.reference` (plain NumPy), ``cpu`` (numba) and
``cuda`` (numba-cuda). The functions here check their arguments and call the ``cpu`` twin for NumPy
arrays, the ``cuda`` twin for arrays that have ``__cuda_array_interface__``. numba is imported by
the first call (or `warm_up`), never by the import of this module.

Kernels know arrays, never tensors. They write into ``out``, which is given, and allocate nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

if __name__ == "kernels":
    # The folder stands beside the package, where an unrelated "kernels" would be looked for too.
    raise ImportError("kernels is the source folder of gpufeed.kernels; import gpufeed.kernels")

from gpufeed.kernels.checks import (
    INDEX_DTYPES,
    VALUE_DTYPES,
    check_array,
    check_castable,
    check_dtype,
    check_offsets,
    check_shape,
)

__all__ = ["convert_values", "densify_rows", "pad_rows", "unpad_rows", "warm_up"]


def densify_rows(
    offsets: Any, indices: Any, values: Any | None, out: Any, *, stream: Any | None = None
) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros.

    ``k`` runs over ``offsets[i]:offsets[i + 1]``; duplicates add. Without ``values`` the entries
    named are set to 1, and duplicates change nothing.

    >>> out = np.empty((2, 3), "float32")
    >>> densify_rows(np.array([0, 2, 3]), np.array([0, 0, 2]), None, out)
    >>> out.tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]

    Args:
        offsets: ``(rows + 1,)``, int32 or int64.
        indices: ``(total,)``, int32 or int64. In ``[0, dim)``, which the caller has checked: on a
            host an index out of range writes to other memory.
        values: ``(total,)``, or None for binary rows. Cast to ``out``'s dtype before they add.
        out: ``(rows, dim)``; overwritten.
        stream: For device arrays: has ``__cuda_stream__``; None is the legacy default stream. On a
            device duplicates of a float row add in any order.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, arrays = _resolve(
        "densify_rows", stream, offsets=offsets, indices=indices, values=values, out=out
    )
    offsets, indices, values, out = arrays
    check_array("densify_rows.out", out, 2, is_written=True)
    check_dtype("densify_rows.out", out, VALUE_DTYPES)
    check_shape("densify_rows.out", out, ("rows", "dim"))
    check_array("densify_rows.indices", indices, 1)
    check_dtype("densify_rows.indices", indices, INDEX_DTYPES)
    check_shape("densify_rows.indices", indices, ("total",))
    check_offsets("densify_rows.offsets", offsets, out.shape[0], indices.shape[0])
    if values is not None:
        check_array("densify_rows.values", values, 1)
        check_shape("densify_rows.values", values, indices.shape)
        check_castable("densify_rows.values", values, out)
    run(offsets, indices, values, out)


def pad_rows(
    values: Any, offsets: Any, pad_value: float, out: Any, *, stream: Any | None = None
) -> None:
    """Lay packed rows out side by side: ``out[i, :n] = values[offsets[i]:offsets[i + 1]][:n]``.

    ``n`` is the row's length, at most ``max_length``: longer rows lose their end. The rest of
    ``out`` becomes ``pad_value``.

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
    run, (values, offsets, out) = _resolve(
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
    run, (padded, offsets, out) = _resolve(
        "unpad_rows", stream, padded=padded, offsets=offsets, out=out
    )
    check_array("unpad_rows.padded", padded, 2)
    check_dtype("unpad_rows.padded", padded, VALUE_DTYPES)
    check_array("unpad_rows.out", out, 1, is_written=True)
    check_dtype("unpad_rows.out", out, (padded.dtype,))
    check_shape("unpad_rows.out", out, ("total", *padded.shape[2:]))
    check_offsets("unpad_rows.offsets", offsets, padded.shape[0], out.shape[0])
    run(padded, offsets, out)


def convert_values(
    values: Any,
    scale: float | None,
    shift: float | None,
    out: Any,
    *,
    stream: Any | None = None,
) -> None:
    """Cast, then scale and shift in ``out``'s dtype: ``out = cast(values) * scale + shift``.

    >>> out = np.empty(2, "float32")
    >>> convert_values(np.array([0, 255], "uint8"), 2.0, -1.0, out)
    >>> out.tolist()
    [-1.0, 509.0]

    Args:
        values: Of any shape.
        scale: Factor; None scales nothing.
        shift: Term added after scaling; None adds nothing.
        out: Of the shape of ``values``; a float array where ``scale`` or ``shift`` is given.
        stream: As for `densify_rows`. A device may round product and sum once instead of twice.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, (values, out) = _resolve("convert_values", stream, values=values, out=out)
    check_array("convert_values.values", values, 0)
    check_array("convert_values.out", out, 0, is_written=True)
    check_shape("convert_values.out", out, values.shape)
    check_dtype("convert_values.out", out, VALUE_DTYPES)
    check_castable("convert_values.values", values, out)
    if (scale, shift) != (None, None) and out.dtype.kind != "f":
        raise TypeError(
            f"convert_values.out must be a float array to be scaled or shifted, got {out.dtype}"
        )
    run(values, scale, shift, out)


def warm_up(
    *,
    densify: Iterable[tuple[npt.DTypeLike, npt.DTypeLike | None, npt.DTypeLike]] = (),
    convert: Iterable[tuple[npt.DTypeLike, npt.DTypeLike, bool]] = (),
    zeros: Callable[..., Any] = np.zeros,
) -> None:
    """Compile, or load from the disk cache, what later calls with these dtypes will run.

    It imports numba and makes each call once on arrays of one row, so it can take seconds with a
    cold cache; a feeder does it on a thread when it is constructed.

    >>> warm_up(densify=[("int64", None, "float32")])

    Args:
        densify: (offsets and indices, values or None, out) dtypes of `densify_rows`.
        convert: (values, out) dtypes of `convert_values`, and whether it scales or shifts.
        zeros: ``numpy.zeros`` or ``cupy.zeros``: whose kernels to warm, for the current device.
    """
    for index_dtype, value_dtype, out_dtype in densify:
        offsets, indices = zeros(2, index_dtype), zeros(0, index_dtype)
        values = None if value_dtype is None else zeros(0, value_dtype)
        densify_rows(offsets, indices, values, zeros((1, 1), out_dtype))
    for value_dtype, out_dtype, is_scaled in convert:
        factor = 1.0 if is_scaled else None
        convert_values(zeros(1, value_dtype), factor, None, zeros(1, out_dtype))


def _resolve(
    operation: str, stream: Any | None, **arrays: Any
) -> tuple[Callable[..., None], list[Any]]:
    """Return the twin of ``operation`` for where ``arrays`` live, and the arrays as it takes them.

    Raises:
        TypeError: They live neither all on the host nor all on a device.
        ValueError: A stream for host arrays: host kernels run at once, in no stream's order.
    """
    given = {name: array for name, array in arrays.items() if array is not None}
    on_host = [name for name, array in given.items() if isinstance(array, np.ndarray)]
    if len(on_host) == len(given):
        if stream is not None:
            raise ValueError(f"{operation}.stream must be None for host arrays, got {stream!r}")
        from gpufeed.kernels import cpu

        return getattr(cpu, operation), list(arrays.values())
    for name, array in given.items():
        if not isinstance(array, np.ndarray) and not hasattr(array, "__cuda_array_interface__"):
            raise TypeError(
                f"{operation}.{name} must be a NumPy array or have __cuda_array_interface__, "
                f"got {type(array).__name__}"
            )
    if on_host:
        raise TypeError(
            f"{operation}.{on_host[0]} must live on the device, as the other arrays do, "
            "got a host array"
        )
    from gpufeed.kernels import cuda

    twin = getattr(cuda, operation)
    on_device = [
        None if array is None else cuda.as_device_array(array) for array in arrays.values()
    ]
    return lambda *args: twin(*args, stream=stream), on_device
