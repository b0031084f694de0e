"""SciPy's sparse arrays over gpufeed's memory."""

from __future__ import annotations

from typing import Any

from gpufeed.device.backend import Array
from gpufeed.errors import FieldError, import_extra

__all__ = ["csr", "from_csr"]


def csr(offsets: Array, indices: Array, values: Array, shape: tuple[int, int]) -> Any:
    """Return CSR rows as a SciPy ``csr_array`` over the same memory."""
    scipy_sparse = import_extra("scipy.sparse", "scipy")
    return scipy_sparse.csr_array((values, indices, offsets), shape=shape)


def from_csr(matrix: Any) -> tuple[Array, Array, Array, int]:
    """Return offsets, indices, values and width of a SciPy sparse array; of CSR, its own arrays.

    Raises:
        FieldError: ``matrix`` is no such thing, or has not two dimensions.
    """
    if not hasattr(matrix, "tocsr") or matrix.ndim != 2:
        raise FieldError(
            "SparseRows.from_scipy.matrix must be a SciPy sparse array of two dimensions, "
            f"got {type(matrix).__name__}"
        )
    rows = matrix.tocsr()
    return rows.indptr, rows.indices, rows.data, rows.shape[1]
