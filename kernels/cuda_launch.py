"""What every kernel on device arrays is compiled and launched with.

Geometry: a block is ``down`` rows of ``across`` threads, with consecutive threads on consecutive
columns, so that writes coalesce however the rows are cut. The grid's y axis shares the columns of
long rows out among blocks. All loops stride over the grid, so any grid covers any array.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import config, cuda

__all__ = [
    "Array",
    "as_device_array",
    "as_numba_stream",
    "callable_from_kernels",
    "compiled",
    "flat_launch",
    "grid_and_block",
    "inlined",
    "prepared",
]

# numba's device array; under its simulator, a NumPy array.
Array = npt.NDArray[Any]

WARP = 32
THREADS_PER_BLOCK = 256
# One full wave on the largest devices of today; blocks that find no work end at once.
MIN_BLOCKS = 1024
MAX_BLOCKS = 65_535

# numba fails where two threads load the same kernel at once, such as a feeder's and its warm-up's.
_loading = threading.Lock()


def _load_overloads() -> None:
    """Let numba-cuda load beside NumPy 2.5, which has no ``row_stack``.

    numba-cuda gives that function a meaning in kernels before it compiles the first of them, and
    will not learn to do without: https://github.com/NVIDIA/numba-cuda/issues/907.
    """
    names = vars(np)
    if config.ENABLE_CUDASIM or "row_stack" in names:
        return
    names["row_stack"] = object()
    try:
        import numba.cuda.np.arrayobj  # noqa: F401
    except ImportError:  # of a numba-cuda that is arranged in another way
        pass
    finally:
        del names["row_stack"]


_load_overloads()


def compiled(function: Callable[..., None]) -> Any:
    """Compile ``function`` at its first launch, from the disk cache where there is one."""
    try:
        return cuda.jit(cache=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return cuda.jit()(function)


def callable_from_kernels(function: Callable[..., Any]) -> Any:
    """Compile a function with the kernels that call it, once for all its callers."""
    return cuda.jit(device=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Make a function a part of the kernels that call it, whatever device they are for."""
    return cuda.jit(device=True, inline="always")(function)


def as_device_array(array: Any) -> Array:
    """Return numba's view of an array that has ``__cuda_array_interface__``.

    numba would make the host wait for the stream that the interface names; ordering the launch
    behind that stream's work is the caller's part here, so ``sync=False``.
    """
    return cuda.as_cuda_array(array, sync=False)  # type: ignore[no-any-return]


def as_numba_stream(stream: Any | None) -> Any:
    """Return numba's name for ``stream``; None is the legacy default stream."""
    if stream is None:
        return 0
    _version, handle = stream.__cuda_stream__()
    return cuda.external_stream(int(handle))


def grid_and_block(rows: int, row_width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return a launch for ``rows`` rows of ``row_width`` columns (module docstring)."""
    across = WARP
    while across < min(row_width, THREADS_PER_BLOCK):
        across *= 2
    down = THREADS_PER_BLOCK // across
    blocks_down = min(-(-rows // down), MAX_BLOCKS)
    return (blocks_down, -(-MIN_BLOCKS // blocks_down)), (across, down)


def prepared(kernel: Any, geometry: tuple[int, int], stream: Any | None, *args: Any) -> Any:
    """Return a function that launches ``kernel`` on these arguments, for less than a launch costs.

    Most of numba's part of a launch is finding out what its arguments are, each time again: 14 us
    for two arrays, which it wrapped before. Here numba does that once, and what is left for each
    launch is one call of ``cuda.core``, by which numba launches too.
    """
    launch = kernel[(*geometry, as_numba_stream(stream))]
    by_numba = partial(launch, *args)
    if config.ENABLE_CUDASIM:
        return by_numba
    try:
        from cuda import core

        with _loading:
            found = kernel.compile(tuple(map(kernel.typeof_pyval, args)))
            function = found._codelibrary.get_cufunc().kernel
        words: list[Any] = []
        for kind, value in zip(found.argument_types, args, strict=True):
            found._prepare_args(kind, value, launch.stream, [], words)
        grid, block = geometry
        by_core = core.LaunchConfig(grid=grid, block=block)
    except (AttributeError, ImportError):  # of a numba-cuda that launches in another way
        return by_numba

    def launch_again(_alive: object = args) -> None:
        core.launch(launch.stream, by_core, function, *words)

    return launch_again


def flat_launch(stream: Any | None) -> tuple[int, int, Any]:
    """Return a launch on ``stream`` for arrays of one dimension, of any size."""
    return MIN_BLOCKS, THREADS_PER_BLOCK, as_numba_stream(stream)
