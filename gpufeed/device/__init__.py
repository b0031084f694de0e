"""Devices: which there are, what the caller's current stream is, and copies between them.

CuPy is imported by ``gpufeed.device.cuda`` and ``cuda_sparse`` only, and these only once a real
device is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from gpufeed.device.backend import Array, Backend
from gpufeed.device.virtual import (
    VirtualBackend,
    num_virtual_devices,
    virtual_devices,
    virtual_stream,
)
from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPinnedPlace, CUDAPlace, Place, PlaceLike, as_place

__all__ = [
    "array_module",
    "backend_for",
    "cuda_places",
    "describe_cuda_devices",
    "num_cuda_devices",
    "num_virtual_devices",
    "transfer",
    "virtual_devices",
    "virtual_stream",
    "working_on",
]


def num_cuda_devices() -> int:
    """Return how many real CUDA devices CuPy can use; 0 without CuPy or without a driver."""
    if importlib.util.find_spec("cupy") is None or _broken_cupy():
        return 0
    from gpufeed.device import cuda

    return cuda.num_devices()


def describe_cuda_devices() -> list[str]:
    """Return lines on the CUDA driver and on every real device, how fast it is copied to included.

    None without devices; copying takes a fraction of a second for each.
    """
    if not num_cuda_devices():
        return []
    from gpufeed.device import cuda_info

    return cuda_info.describe()


def _broken_cupy() -> str:
    """Return why CuPy is there and cannot be imported; empty if it can, or is not there."""
    try:
        importlib.import_module("gpufeed.device.cuda")
    except ModuleNotFoundError:
        return ""
    except ImportError as error:
        return f" (CuPy cannot be imported: {error})"
    return ""


def cuda_places(ids: Iterable[int] | None = None) -> list[Place]:
    """Return a place for every CUDA (or virtual) device, or for those in ``ids``.

    >>> with virtual_devices(2):
    ...     cuda_places()
    [CUDAPlace(device_id=0), CUDAPlace(device_id=1)]

    Raises:
        PlaceError: There is no such device, or none at all, or ``ids`` is no list.
    """
    if ids is None:
        ids = list(range(num_virtual_devices() or num_cuda_devices())) or [0]
    elif not isinstance(ids, Iterable):
        raise PlaceError(f"cuda_places.ids must be a list of device numbers, got {ids!r}")
    places: list[Place] = [CUDAPlace(number) for number in ids]
    for place in places:
        backend_for(place)
    return places


def backend_for(place: Place) -> Backend:
    """Return the backend of a device that is there.

    Raises:
        PlaceError: There is no such device, or ``place`` is not a device at all.
    """
    if not isinstance(place, CUDAPlace):
        raise PlaceError(f"expected a CUDAPlace, got {place}")
    if virtual := num_virtual_devices():
        if place.device_id >= virtual:
            raise PlaceError(f"CUDAPlace({place.device_id}): there are {virtual} virtual devices")
        return VirtualBackend(place)
    real = num_cuda_devices()
    if not real:
        raise PlaceError(
            f"CUDAPlace({place.device_id}): no CUDA device{_broken_cupy()}; use CPUPlace(), "
            "gpufeed.virtual_devices(1), or install gpufeed[cuda13]"
        )
    if place.device_id >= real:
        raise PlaceError(f"CUDAPlace({place.device_id}): there are {real} CUDA devices")
    from gpufeed.device import cuda

    return cuda.CudaBackend(place)


def array_module(of: Array | PlaceLike) -> ModuleType:
    """Return the module, numpy or cupy, whose functions work on an array or on a place's arrays.

    >>> array_module("cpu").__name__
    'numpy'

    Arrays of virtual devices are NumPy arrays.
    """
    if isinstance(of, (Place, str)):
        on_gpu = isinstance(as_place(of), CUDAPlace) and not num_virtual_devices()
        on_gpu = on_gpu and num_cuda_devices() > 0
    else:
        on_gpu = hasattr(of, "__cuda_array_interface__")
    if not on_gpu:
        return np
    from gpufeed.device import cuda

    return cuda.array_module()


def transfer(array: Array, source: Place, target: Place) -> Array:
    """Copy ``array`` from one place to another and wait for it; the same place gives it back.

    >>> from gpufeed.places import CPUPlace, CUDAPlace
    >>> ids = np.array([7, 8])
    >>> with virtual_devices(1):
    ...     there = transfer(ids, CPUPlace(), CUDAPlace(0))
    >>> there.tolist(), there is ids
    ([7, 8], False)
    """
    if source == target:
        return array
    host: np.ndarray[Any, Any] = array
    if isinstance(source, CUDAPlace):
        host = _to_host(array, source)
    if isinstance(target, CUDAPlace):
        return backend_for(target).from_host(host)
    return _pinned(host) if isinstance(target, CUDAPinnedPlace) else host


def _to_host(array: Array, source: CUDAPlace) -> np.ndarray[Any, Any]:
    if isinstance(array, np.ndarray) and source.device_id >= num_virtual_devices():
        # A virtual device's array outlives the device, and is in plain memory.
        return array.copy()
    return backend_for(source).to_host(array)


def _pinned(array: np.ndarray[Any, Any]) -> Array:
    """Copy an array into memory that the first device reads at full speed."""
    memory = backend_for(CUDAPlace(0)).host_memory(array.nbytes)
    pinned: np.ndarray[Any, Any] = np.ndarray(array.shape, array.dtype, memory)
    pinned[...] = array
    return pinned


def working_on(place: Place) -> AbstractContextManager[object]:
    """Return the context for computing with arrays of ``place``, in the order of its stream.

    CuPy enqueues such work; NumPy does it at once, so on a virtual device it has to wait for the
    current stream first.
    """
    if isinstance(place, CUDAPlace) and place.device_id < num_virtual_devices():
        VirtualBackend(place).wait()
    return place


def _make_current(place: Place) -> AbstractContextManager[object]:
    if isinstance(place, CUDAPlace) and not num_virtual_devices():
        backend_for(place)
        from gpufeed.device import cuda

        return cuda.make_current(place.device_id)
    return nullcontext()


Place.make_current = _make_current
