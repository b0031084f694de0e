"""Any library's array as a NumPy or CuPy array over the same memory, and the place it is on."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from gpufeed.device import array_module
from gpufeed.device.backend import Array
from gpufeed.errors import FieldError, GpufeedError
from gpufeed.places import CPUPlace, CUDAPinnedPlace, CUDAPlace, Place

__all__ = ["as_array"]


class _Kind(IntEnum):
    """DLPack's numbers of the device types that gpufeed has places for."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3


def as_array(data: object, owner: str) -> tuple[Array, Place]:
    """Return ``data`` as an array without a copy where that can be, and where it is.

    >>> as_array([[1, 2], [3, 4]], "data")
    (array([[1, 2],
           [3, 4]]), CPUPlace())

    Args:
        data: A list, or whatever speaks DLPack or ``__array__``.
        owner: How error messages call it.

    Raises:
        FieldError: It is not a rectangle of numbers or bools, or DLPack cannot share it.
    """
    place: Place = CPUPlace()
    if isinstance(data, np.ndarray) or not hasattr(data, "__dlpack_device__"):
        try:
            array: Any = np.asarray(data)
        except ValueError as error:
            raise FieldError(
                f"{owner} must be rectangular ({error}); pack the rows end to end, with a lod"
            ) from error
    else:
        array, place = _exchange(data, owner)
    if array.dtype.kind not in "biufc":
        raise FieldError(
            f"{owner} must hold numbers or bools, got {type(data).__name__} of {array.dtype}"
        )
    if not array.dtype.isnative:  # neither kernels nor DLPack know another byte order
        array = array.astype(array.dtype.newbyteorder("="))
    return array, place


def _exchange(data: Any, owner: str) -> tuple[Array, Place]:
    try:
        kind, number = data.__dlpack_device__()
        if kind == _Kind.CUDA:
            place = CUDAPlace(number)
            with place:
                return array_module(place).from_dlpack(data), place
        return np.from_dlpack(data), CUDAPinnedPlace() if kind == _Kind.CUDA_HOST else CPUPlace()
    except GpufeedError:
        raise
    except (BufferError, RuntimeError, ValueError) as error:
        remedy = "; use .detach()" if getattr(data, "requires_grad", False) else ""
        raise FieldError(
            f"{owner} must be an array that DLPack can share, got {type(data).__name__} of "
            f"{getattr(data, 'dtype', 'no dtype')} ({error}){remedy}"
        ) from error
