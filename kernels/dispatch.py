"""Where a kernel runs: on the host for NumPy arrays, on a device for arrays that live there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

__all__ = ["resolve"]


def resolve(
    operation: str, stream: Any | None, **arrays: Any
) -> tuple[Callable[..., None], list[Any]]:
    """Return the twin of ``operation`` for where ``arrays`` live, and the arrays as it takes them.

    numba is imported by the first call.

    Args:
        operation: Name of the kernel.
        stream: For device arrays: has ``__cuda_stream__``; None is the legacy default stream.
        arrays: By argument name; None where one is left out.

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
    return partial(twin, stream=stream), on_device
