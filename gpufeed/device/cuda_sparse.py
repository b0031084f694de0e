"""CuPy's sparse matrices over arrays that are on a GPU."""

from __future__ import annotations

from typing import Any

import cupyx.scipy.sparse

from gpufeed.device.backend import Array

__all__ = ["csr_matrix"]


def csr_matrix(values: Array, indices: Array, offsets: Array, shape: tuple[int, int]) -> Any:
    """Return CSR rows as a CuPy matrix over the same memory, where CuPy takes the dtypes."""
    return cupyx.scipy.sparse.csr_matrix((values, indices, offsets), shape=shape)
