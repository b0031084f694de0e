"""Feeding one column: the shortest way from samples to a tensor, and its parts as plain lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpufeed.feeder import DataFeeder
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard

__all__ = ["csr", "feed_column", "make_feeder"]


def make_feeder(*fields: dict[str, Any], place: Any = "cpu", **options: Any) -> DataFeeder:
    """Return a feeder of the variables that ``fields`` declare."""
    with program_guard(Program()):
        return DataFeeder([data(**field) for field in fields], place, **options)


def feed_column(
    values: Iterable[Any],
    shape: list[int | None],
    dtype: str = "float32",
    lod_level: int = 0,
    *,
    strict: bool = True,
    place: Any = "cpu",
    **declared: Any,
) -> Any:
    """Feed ``values``, one a sample, to one variable called ``x`` and return its tensor."""
    field = {"name": "x", "shape": shape, "dtype": dtype, "lod_level": lod_level, **declared}
    feeder = make_feeder(field, strict=strict, place=place)
    tensor: LoDTensor | SparseRows = feeder.feed([(value,) for value in values])["x"]
    return tensor


def csr(rows: SparseRows) -> tuple[list[int], list[int], list[float] | None]:
    """Return the offsets, indices and values of host rows as lists."""
    values = None if rows.values is None else rows.values.tolist()
    return rows.offsets.tolist(), rows.indices.tolist(), values
