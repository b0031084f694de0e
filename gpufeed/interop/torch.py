"""Torch tensors over gpufeed's memory."""

from __future__ import annotations

from typing import Any

from gpufeed.device.backend import Array
from gpufeed.errors import import_extra

__all__ = ["csr", "from_rows", "nested"]


def from_rows(rows: Any) -> Any:
    """Return whatever speaks DLPack as a torch tensor over the same memory."""
    return import_extra("torch", "torch").from_dlpack(rows)


def nested(rows: Any, offsets: Array, max_length: int) -> Any:
    """Return rows and the offsets that cut them as a jagged torch tensor over the same memory.

    Args:
        rows: ``(rows, *item)``, speaks DLPack.
        offsets: ``(sequences + 1,)``, on the same place.
        max_length: Length of the longest sequence: without it torch asks the device, and waits.
    """
    torch = import_extra("torch", "torch")
    return torch.nested.nested_tensor_from_jagged(
        from_rows(rows), from_rows(offsets), min_seqlen=0, max_seqlen=max_length
    )


def csr(offsets: Any, indices: Any, values: Any, dim: int) -> Any:
    """Return CSR rows as a sparse torch tensor of shape ``(rows, dim)`` over the same memory."""
    torch = import_extra("torch", "torch")
    parts = [from_rows(array) for array in (offsets, indices, values)]
    return torch.sparse_csr_tensor(*parts, size=(len(offsets) - 1, dim), check_invariants=False)
