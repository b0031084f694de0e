"""Random batches for property tests: lengths, tensors and sparse rows of every shape there is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor

DTYPES = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


@st.composite
def nested_lengths(
    draw: DrawFn, levels: int | None = None, max_samples: int = 6
) -> list[list[int]]:
    """Return sequence lengths of ``levels`` levels (0 to 3 if None), empty ones included."""
    if levels is None:
        levels = draw(st.integers(0, 3))
    lengths: list[list[int]] = []
    entries = draw(st.integers(0, max_samples))
    for _ in range(levels):
        lengths.append(draw(st.lists(st.integers(0, 4), min_size=entries, max_size=entries)))
        entries = sum(lengths[-1])
    return lengths


@st.composite
def lod_tensors(
    draw: DrawFn, levels: int | None = None, dtypes: tuple[str, ...] = DTYPES
) -> LoDTensor:
    """Return a tensor whose values are all different where its dtype allows."""
    lengths = draw(nested_lengths(levels))
    rows = sum(lengths[-1]) if lengths else draw(st.integers(0, 6))
    item = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    data = np.arange(rows * int(np.prod(item))).reshape(rows, *item)
    tensor = LoDTensor(data.astype(draw(st.sampled_from(dtypes))))
    tensor.set_recursive_sequence_lengths(lengths)
    return tensor


@st.composite
def sparse_rows(draw: DrawFn, levels: int | None = None) -> SparseRows:
    """Return sparse rows, binary or not, some of them empty; no column twice in a row."""
    lengths = draw(nested_lengths(levels))
    rows = sum(lengths[-1]) if lengths else draw(st.integers(0, 6))
    dim = draw(st.integers(1, 9))
    columns = [sorted(draw(st.sets(st.integers(0, dim - 1), max_size=4))) for _ in range(rows)]
    indices = np.array([index for row in columns for index in row], np.int64)
    values = None if draw(st.booleans()) else np.arange(1, 1 + len(indices), dtype=np.float32)
    offsets = np.cumsum([0, *map(len, columns)])
    made = SparseRows(offsets, indices, values, dim)
    made.set_recursive_sequence_lengths(lengths)
    return made


def slices(size: int) -> SearchStrategy[slice]:
    """Return slices of something with ``size`` samples: any step, any side, out of range too."""
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = st.none() | st.integers(-3, 3).filter(bool)
    return st.builds(slice, bound, bound, step)


def cut(rows: list[object], lengths: list[list[int]]) -> list[object]:
    """Return flat rows as nested lists: what a LoD means, said without offsets arithmetic."""
    for level in reversed(lengths):
        ends = np.cumsum([0, *level]).tolist()
        rows = [rows[begin:end] for begin, end in pairwise(ends)]
    return rows
