"""How every kernel on host arrays is compiled.

The disk cache knows a kernel by the text of its own file. After a change of what it calls from
another one (`gpufeed.kernels.half`, `streaming`), the ``.nbi`` files in ``__pycache__`` have to go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from numba import njit

__all__ = ["Array", "compiled", "inlined"]

Array = npt.NDArray[Any]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` at its first call, from the disk cache where there is one."""
    try:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written.
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function a part of the kernels that call it."""
    return njit(function)  # type: ignore[no-any-return]
