"""The second look: every sample by itself, slowly, to convert what may be converted.

Rules (API "Feeding"): any integer or bool becomes a float, a bool becomes an integer, a float
becomes a narrower float unless a finite value would become infinite, an integer becomes another
integer if it is in range. A float never becomes an integer, nothing but a bool becomes a bool, and
text, None and objects become nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpufeed.errors import FieldError
from gpufeed.variables import Variable

__all__ = [
    "batch_size",
    "dense_rows",
    "explain",
    "in_range",
    "is_exact",
    "matches",
    "may_fit",
    "sparse_rows",
]

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]


def matches(shape: Shape, declared: Shape) -> bool:
    """Return whether ``shape`` is ``declared``, in which -1 is any size.

    >>> matches((4, 8), (-1, 8)), matches((4, 9), (-1, 8))
    (True, False)
    """
    return len(shape) == len(declared) and all(
        want in (-1, got) for got, want in zip(shape, declared, strict=True)
    )


def is_exact(source: DType, target: DType) -> bool:
    """Return whether every value of ``source`` may become a ``target`` (apart from overflow)."""
    if target.kind == "f":
        return source.kind in "biuf"
    return source.kind in "biu" and np.can_cast(source, target, "safe")


def may_fit(source: DType, target: DType) -> bool:
    """Return whether values of ``source`` may become ``target`` if they are in its range."""
    return is_exact(source, target) or (source.kind in "biu" and target.kind in "iu")


def in_range(values: Array, target: DType) -> bool:
    """Return whether integers are in the range of ``target``."""
    if values.dtype.kind not in "biu":
        return False
    bounds = np.iinfo(target)
    return not values.size or (int(values.min()) >= bounds.min and int(values.max()) <= bounds.max)


def batch_size(variable: Variable, got: int) -> FieldError:
    """Return the error of a batch that has not the declared number of rows."""
    return FieldError(
        f"field {variable.name!r}: expected a batch of {variable.shape[0]} rows, got {got}"
    )


def explain(variable: Variable, samples: Sequence[Any], error: Exception) -> FieldError:
    """Return the error that names the sample for which a column could not be sized."""
    try:
        dense_rows(variable, samples, variable.item_shape, variable.dtype)
    except FieldError as found:
        return found
    return FieldError(f"field {variable.name!r}: {error}")


def dense_rows(
    variable: Variable, samples: Sequence[Any], item: Shape, dtype: DType
) -> list[Array]:
    """Convert every row (or sequence of rows) to an array of shape ``(rows, *item)``.

    Args:
        variable: Names the field and gives its LoD level.
        samples: The column.
        item: Shape of one row.
        dtype: Of the result.

    Raises:
        FieldError: The first sample that does not fit.
    """
    arrays = []
    for number, sample in enumerate(samples):
        where = f"field {variable.name!r}, sample {number}"
        for leaf in _leaves(sample, variable.lod_level, where):
            found = _as_array(leaf, dtype, where)
            shaped = _as_sequence if variable.lod_level else _as_row
            arrays.append(convert(shaped(found, item, where), dtype, where))
    return arrays


def _leaves(sample: Any, levels: int, where: str, depth: int = 0) -> Iterator[Any]:
    """Walk down to what the lowest LoD level counts the rows of."""
    if depth < levels and not _is_sequence(sample):
        raise FieldError(
            f"{where}: expected sequences nested {levels} deep, got {_kind(sample)} "
            f"at depth {depth}"
        )
    if depth >= levels - 1:
        yield sample
    else:
        for inner in sample:
            yield from _leaves(inner, levels, where, depth + 1)


def _is_sequence(value: Any) -> bool:
    if isinstance(value, (str, bytes, dict, set, frozenset)):
        return False
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) != 0


def _kind(value: Any) -> str:
    return type(value).__name__


def _as_array(value: Any, dtype: DType, where: str) -> Array:
    try:
        found = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise FieldError(f"{where}: expected rows of one shape, got {error}") from None
    if found.dtype.kind == "O":
        found = _whole_numbers(found, dtype, where)
    return found


def _whole_numbers(found: Array, dtype: DType, where: str) -> Array:
    """Take apart an object array: Python integers beyond 64 bits are numbers, nothing else is."""
    for value in found.flat:
        if not isinstance(value, (int, np.integer, float, np.floating)):
            raise FieldError(f"{where}: expected {dtype} values, got {_kind(value)} {value!r:.40}")
    if dtype.kind != "f":
        raise FieldError(f"{where}: expected {dtype} values, got {max(found.flat, key=abs)}")
    try:
        return found.astype(np.float64)
    except OverflowError:
        raise FieldError(
            f"{where}: expected finite {dtype} values, got {max(found.flat, key=abs):.3e}"
        ) from None


def _as_row(found: Array, item: Shape, where: str) -> Array:
    """Return one row as ``(1, *item)``; a flat row of the declared size is reshaped."""
    flat = found.ndim <= 1 and -1 not in item and found.size == math.prod(item)
    if not (flat or matches(found.shape, item)):
        raise FieldError(f"{where}: expected shape {item}, got {found.shape}")
    return found.reshape(1, *item) if flat else found[np.newaxis]


def _as_sequence(found: Array, item: Shape, where: str) -> Array:
    """Return a sequence as ``(rows, *item)``; single values may be given bare."""
    if found.shape == (0,):
        return found.reshape(0, *(max(0, dim) for dim in item))
    bare = found.ndim == 1 and all(dim == 1 for dim in item)
    if not (bare or matches(found.shape[1:], item)) or found.ndim == 0:
        raise FieldError(f"{where}: expected shape {(-1, *item)}, got {found.shape}")
    return found.reshape(-1, *item) if bare else found


def convert(found: Array, dtype: DType, where: str) -> Array:
    """Convert an array by the rules at the head of this module.

    Raises:
        FieldError: The rules forbid it for this dtype, or for a value.
    """
    if found.dtype == dtype or not found.size:
        return found.astype(dtype, copy=False)
    if not may_fit(found.dtype, dtype):
        raise FieldError(
            f"{where}: expected {dtype} values, got {_plain(found.dtype)} {found.flat[0]!s:.40}"
        )
    if is_exact(found.dtype, dtype):
        with np.errstate(over="ignore"):
            converted = found.astype(dtype)
        if dtype.kind == "f":
            _require_finite(found, converted, where)
        return converted
    if not in_range(found, dtype):
        bounds = np.iinfo(dtype)
        outside = found[(found < bounds.min) | (found > bounds.max)]
        raise FieldError(
            f"{where}: expected {dtype} values in [{bounds.min}, {bounds.max}], got {outside[0]}"
        )
    return found.astype(dtype)


def _require_finite(found: Array, converted: Array, where: str) -> None:
    overflowed = np.isinf(converted) & np.isfinite(found)
    if overflowed.any():
        raise FieldError(
            f"{where}: expected values in the range of {converted.dtype}, got "
            f"{found[overflowed][0]}"
        )


def _plain(dtype: DType) -> str:
    return {"U": "str", "S": "bytes"}.get(dtype.kind, str(dtype))


def sparse_rows(
    variable: Variable, samples: Sequence[Any], dtype: DType | None = None
) -> list[tuple[Array, Array]]:
    """Convert every sparse row to its int64 indices and its values.

    Args:
        variable: Names the field, its LoD level, dim and layout.
        samples: The column.
        dtype: Of the values; the variable's by default.

    Raises:
        FieldError: The first sample that is not sparse rows, or has an index outside ``[0, dim)``.
    """
    rows = []
    for number, sample in enumerate(samples):
        where = f"field {variable.name!r}, sample {number}"
        for row in _leaves(sample, variable.lod_level + 1, where):
            indices, values = _entries(variable, row, where)
            indices = convert(_flat(indices, "indices", where), np.dtype(np.int64), where)
            outside = indices[(indices < 0) | (indices >= variable.dim)]
            if outside.size:
                raise FieldError(
                    f"{where}: expected indices in [0, {variable.dim}), got {outside[0]}"
                )
            values = convert(_flat(values, "values", where), dtype or variable.dtype, where)
            if len(indices) != len(values):
                raise FieldError(
                    f"{where}: expected as many values as indices, got {len(values)} "
                    f"and {len(indices)}"
                )
            rows.append((indices, values))
    return rows


def _flat(value: Any, what: str, where: str) -> Array:
    found = _as_array(value, np.dtype(np.int64), where)
    if found.ndim != 1:
        raise FieldError(f"{where}: expected flat {what}, got shape {found.shape}")
    return found


def _entries(variable: Variable, row: Any, where: str) -> tuple[Any, Any]:
    """Return the indices and the values of one sparse row, as they were given."""
    if variable.layout == "sparse_binary":
        return row, np.ones(len(row), bool)
    if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], np.ndarray):
        return row
    for entry in row:
        if not isinstance(entry, (tuple, list, np.ndarray)) or len(entry) != 2:
            raise FieldError(f"{where}: expected (index, value) pairs, got {entry!r:.40}")
    return [entry[0] for entry in row], [entry[1] for entry in row]
