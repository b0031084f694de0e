"""Where a kernel runs: on the host for NumPy arrays, on a device for arrays that live there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

__all__ = ["resolve"]

_WRITTEN = ("out", "fault")


@dataclass(frozen=True)
class _Stream:
    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class _Unlocked:
    """A read-only array, shown as one like any other: numba would compile kernels for it apart."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        interface: dict[str, Any] = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def resolve(
    operation: str, stream: Any | None, **arrays: Any
) -> tuple[Callable[..., None], Iterable[Any]]:
    """Return the twin of ``operation`` for where ``arrays`` live, and the arrays as it takes them.

    numba is imported by the first call.

    Args:
        operation: Name of the kernel.
        stream: For device arrays: has ``__cuda_stream__``; None is the one that ``out`` names in
            its ``__cuda_array_interface__``, or else the legacy default stream.
        arrays: By argument name; None where one is left out.

    Raises:
        TypeError: They live neither all on the host nor all on a device.
        ValueError: A stream for host arrays: host kernels run at once, in no stream's order.
    """
    for name, array in arrays.items():
        if array is None:
            continue
        if not isinstance(array, np.ndarray):
            return _on_device(operation, stream, arrays)
        if not array.flags.writeable and name not in _WRITTEN:
            arrays[name] = np.asarray(_Unlocked(array))
    if stream is not None:
        raise ValueError(f"{operation}.stream must be None for host arrays, got {stream!r}")
    from gpufeed.kernels import cpu

    return getattr(cpu, operation), arrays.values()


def _on_device(
    operation: str, stream: Any | None, arrays: dict[str, Any]
) -> tuple[Callable[..., None], Iterable[Any]]:
    given = {name: array for name, array in arrays.items() if array is not None}
    on_host = [name for name, array in given.items() if isinstance(array, np.ndarray)]
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

    if stream is None:  # CuPy's arrays name the stream that is current in their thread
        handle = arrays["out"].__cuda_array_interface__.get("stream")
        stream = None if handle is None else _Stream(handle)
    twin = partial(getattr(cuda, operation), stream=stream)
    return twin, [
        None if array is None else cuda.as_device_array(array) for array in arrays.values()
    ]
