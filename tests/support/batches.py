"""Comparing batches: same rows, same types, same LoD, same place."""

from __future__ import annotations

import numpy as np

from gpufeed.places import CPUPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor


def assert_same(got: LoDTensor | SparseRows, expected: LoDTensor | SparseRows) -> None:
    assert type(got) is type(expected)
    assert got.place == expected.place
    assert got.lod() == expected.lod()
    for one, other in zip(_arrays(got), _arrays(expected), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


def _arrays(batch: LoDTensor | SparseRows) -> list[np.ndarray]:
    if isinstance(batch, LoDTensor):
        return [batch.numpy()]
    host = batch.to(CPUPlace())
    parts = [host.offsets, host.indices, host.values, np.array(host.dim)]
    return [part for part in parts if part is not None]
