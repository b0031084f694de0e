"""JAX arrays over gpufeed's memory."""

from __future__ import annotations

from typing import Any

from gpufeed.errors import import_extra

__all__ = ["csr", "from_rows"]


def from_rows(rows: Any) -> Any:
    """Return whatever speaks DLPack as a JAX array, over the same memory where JAX can."""
    return import_extra("jax.dlpack", "jax").from_dlpack(rows)


def csr(offsets: Any, indices: Any, values: Any, dim: int) -> Any:
    """Return CSR rows as a JAX ``BCSR`` array of shape ``(rows, dim)``."""
    sparse = import_extra("jax.experimental.sparse", "jax")
    parts = [from_rows(array) for array in (values, indices, offsets)]
    return sparse.BCSR(parts, shape=(len(offsets) - 1, dim))
