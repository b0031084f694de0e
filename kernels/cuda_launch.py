"""What every kernel on device arrays is compiled and launched with.

Geometry: a block is ``down`` rows of ``across`` threads, with consecutive threads on consecutive
columns, so that writes coalesce however the rows are cut. The grid's y axis shares the columns of
long rows out among blocks. All loops stride over the grid, so any grid covers any array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from numba import cuda

__all__ = [
    "Array",
    "as_device_array",
    "as_numba_stream",
    "compiled",
    "flat_launch",
    "grid_and_block",
    "inlined",
]

# numba's device array; under its simulator, a NumPy array.
Array = npt.NDArray[Any]

WARP = 32
THREADS_PER_BLOCK = 256
# One full wave on the largest devices of today; blocks that find no work end at once.
MIN_BLOCKS = 1024
MAX_BLOCKS = 65_535


def compiled(function: Callable[..., None]) -> Any:
    """Compile ``function`` at its first launch, from the disk cache where there is one."""
    try:
        return cuda.jit(cache=True)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return cuda.jit()(function)


def inlined(function: Callable[..., None]) -> Any:
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


def flat_launch(stream: Any | None) -> tuple[int, int, Any]:
    """Return a launch on ``stream`` for arrays of one dimension, of any size."""
    return MIN_BLOCKS, THREADS_PER_BLOCK, as_numba_stream(stream)
