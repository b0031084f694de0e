"""JAX arrays over gpufeed's memory."""

from __future__ import annotations

from typing import Any

from gpufeed.device.backend import Array
from gpufeed.errors import import_extra

__all__ = ["csr", "from_rows"]


def from_rows(rows: Any) -> Any:
    """Return whatever speaks DLPack as a JAX array over the same memory.

    JAX keeps 64-bit types only with ``jax_enable_x64``; without it such arrays are narrowed.
    """
    return import_extra("jax.dlpack", "jax").from_dlpack(rows)


def csr(offsets: Array, indices: Array, values: Array, dim: int) -> Any:
    """Return CSR rows as a JAX ``BCSR`` array of shape ``(rows, dim)`` over the same memory."""
    sparse = import_extra("jax.experimental.sparse", "jax")
    parts = [from_rows(array) for array in (values, indices, offsets)]
    return sparse.BCSR(parts, shape=(len(offsets) - 1, dim))
