"""The second look: every sample by itself, slowly, to convert what may be converted.

Rules (API "Feeding"): any integer or bool becomes a float, a bool becomes an integer, a float
becomes a narrower float unless a finite value would become infinite, an integer becomes another
integer if it is in range. A float never becomes an integer, nothing but a bool becomes a bool, and
text, None and objects become nothing at all. Text, sets and mappings are no sequences, although
Python can count and iterate them. Masked arrays are refused, as a feed has no place for the mask.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal
from numbers import Real
from operator import countOf
from typing import Any

import numpy as np

from gpufeed.errors import FieldError
from gpufeed.variables import Variable

__all__ = [
    "batch_size",
    "dense_rows",
    "explain",
    "has_masked",
    "in_range",
    "is_exact",
    "matches",
    "may_fit",
    "require_sequences",
    "sparse_rows",
]

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]

NO_SEQUENCES = (str, bytes, Mapping, Set)
# Python's numbers that may become a dtype of this kind; `isinstance` takes a tuple.
NUMBERS = {
    "b": (bool, np.bool_),
    "i": (int, np.integer, np.bool_),
    "u": (int, np.integer, np.bool_),
    "f": (Real, Decimal, np.bool_),
}


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


def require_sequences(blocks: Sequence[Any]) -> None:
    """Refuse text, sets and mappings where sequences are expected.

    Raises:
        TypeError: There is one among ``blocks``.
    """
    if any(issubclass(kind, NO_SEQUENCES) for kind in set(map(type, blocks))):
        raise TypeError("text, a set or a mapping where a sequence is expected")


def has_masked(values: Sequence[Any]) -> bool:
    """Return whether there is a masked array among ``values``, or in a list among them.

    >>> has_masked([1, [np.ma.array([2, 3], mask=[0, 1])]])
    True
    """
    if "numpy.ma" not in sys.modules:  # Nobody can have made one; spares the look at every type.
        return False
    if countOf(map(type, values), np.ndarray) == len(values):  # half the cost of what follows
        return False
    kinds = set(map(type, values))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        return True
    return any(issubclass(kind, (list, tuple)) for kind in kinds) and any(
        has_masked(value) for value in values if isinstance(value, (list, tuple))
    )


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
    variable: Variable, samples: Sequence[Any], item: Shape, dtype: DType, *, first: int = 0
) -> list[Array]:
    """Convert every row (or sequence of rows) to an array of shape ``(rows, *item)``.

    Args:
        variable: Names the field and gives its LoD level.
        samples: The column.
        item: Shape of one row.
        dtype: Of the result.
        first: Number of the first sample, for the message.

    Raises:
        FieldError: The first sample that does not fit.
    """
    arrays = []
    for number, sample in enumerate(samples, first):
        where = f"field {variable.name!r}, sample {number}"
        for leaf in _leaves(sample, variable.lod_level, where):
            found = _as_array(leaf, dtype, where)
            if variable.lod_level:
                found = _as_sequence(found, len(leaf), item, variable.item_shape, where)
            else:
                found = _as_row(found, item, variable.item_shape, where)
            arrays.append(convert(found, dtype, where))
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
    if isinstance(value, NO_SEQUENCES) or getattr(value, "ndim", 1) == 0:
        return False
    return hasattr(value, "__len__") and hasattr(value, "__iter__")


def _kind(value: Any) -> str:
    return type(value).__name__


def _as_array(value: Any, dtype: DType, where: str) -> Array:
    if has_masked([value]):
        raise FieldError(
            f"{where}: expected {dtype} values, got a masked array (give its .filled() values)"
        )
    try:
        found = np.asarray(value)
        if found.dtype.kind in ("US" if dtype.kind == "f" else "fUS"):
            # A list may be of integers still, of several types, or hold the value to name.
            found = np.asarray(value, object)
    except (ValueError, TypeError, RuntimeError) as error:  # RuntimeError: torch's refusals
        raise FieldError(
            f"{where}: expected {dtype} values of one shape, got {_kind(value)} ({error})"
        ) from None
    return _from_objects(found, dtype, where) if found.dtype.kind == "O" else found


def _from_objects(found: Array, dtype: DType, where: str) -> Array:
    """Return an array of Python numbers as one of the widest dtype of the kind of ``dtype``."""
    for value in found.flat:
        if not isinstance(value, NUMBERS[dtype.kind]):
            raise FieldError(
                f"{where}: expected {dtype} values, got {_kind(value)} {_short(value)}"
            )
    try:
        return found.astype({"b": np.bool_, "f": np.float64}.get(dtype.kind, np.int64))
    except OverflowError:
        largest = max(found.flat, key=abs)
        raise FieldError(f"{where}: expected {_ranged(dtype)}, got {_short(largest)}") from None


def _short(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return f"one of {value.bit_length()} bits"  # Python makes no text of huge numbers
    return f"{value!s:.40}"


def _as_row(found: Array, item: Shape, declared: Shape, where: str) -> Array:
    """Return one row as ``(1, *item)``; a flat row of the declared size is reshaped."""
    flat = found.ndim <= 1 and -1 not in declared and found.size == math.prod(item)
    if not (flat or matches(found.shape, item)):
        raise FieldError(f"{where}: expected shape {item}, got {found.shape}")
    return found.reshape(1, *item) if flat else found[np.newaxis]


def _as_sequence(found: Array, length: int, item: Shape, declared: Shape, where: str) -> Array:
    """Return a sequence as ``(rows, *item)``; single values may be given bare."""
    if not length and not found.size:
        return found.reshape(0, *(max(0, dim) for dim in item))
    if found.shape[:1] != (length,):  # of a LoDTensor, which counts its sequences
        raise FieldError(f"{where}: expected {length} rows, got shape {found.shape}")
    bare = found.ndim == 1 and all(dim == 1 for dim in declared)
    if not (bare or matches(found.shape[1:], item)):
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
            f"{where}: expected {dtype} values, got {found.dtype} {found.flat[0]!s:.40}"
        )
    if is_exact(found.dtype, dtype):
        with np.errstate(over="ignore", under="ignore"):
            converted = found.astype(dtype)
        if dtype.kind == "f":
            _require_finite(found, converted, where)
        return converted
    if not in_range(found, dtype):
        bounds = np.iinfo(dtype)
        outside = found[(found < bounds.min) | (found > bounds.max)]
        raise FieldError(f"{where}: expected {_ranged(dtype)}, got {outside[0]}")
    return found.astype(dtype)


def _require_finite(found: Array, converted: Array, where: str) -> None:
    overflowed = np.isinf(converted) & np.isfinite(found)
    if overflowed.any():
        expected = _ranged(converted.dtype)
        raise FieldError(f"{where}: expected {expected}, got {found[overflowed][0]!s}")


def _ranged(dtype: DType) -> str:
    if dtype.kind == "f":
        return f"values in the range of {dtype}"
    bounds = np.iinfo(dtype)
    return f"{dtype} values in [{bounds.min}, {bounds.max}]"


def sparse_rows(
    variable: Variable, samples: Sequence[Any], dtype: DType | None = None, *, first: int = 0
) -> list[tuple[Array, Array]]:
    """Convert every sparse row to its int64 indices and its values.

    Args:
        variable: Names the field, its LoD level, dim and layout.
        samples: The column.
        dtype: Of the values; the variable's by default.
        first: Number of the first sample, for the message.

    Raises:
        FieldError: The first sample that is not sparse rows, or has an index outside ``[0, dim)``.
    """
    rows = []
    for number, sample in enumerate(samples, first):
        where = f"field {variable.name!r}, sample {number}"
        for row in _leaves(sample, variable.lod_level + 1, where):
            given, weights = _entries(variable, row, where)
            indices = _flat(given, np.dtype(np.int64), f"{where}, indices")
            outside = indices[(indices < 0) | (indices >= variable.dim)]
            if outside.size:
                raise FieldError(
                    f"{where}: expected indices in [0, {variable.dim}), got {outside[0]}"
                )
            values = _flat(weights, dtype or variable.dtype, f"{where}, values")
            if len(indices) != len(values):
                raise FieldError(
                    f"{where}: expected as many values as indices, got {len(values)} "
                    f"and {len(indices)}"
                )
            rows.append((indices, values))
    return rows


def _flat(value: Any, dtype: DType, where: str) -> Array:
    found = _as_array(value, dtype, where)
    if found.ndim != 1:
        raise FieldError(f"{where}: expected a flat sequence, got shape {found.shape}")
    return convert(found, dtype, where)


def _entries(variable: Variable, row: Any, where: str) -> tuple[Any, Any]:
    """Return the indices and the values of one sparse row, as they were given."""
    if variable.layout == "sparse_binary":
        return row, np.ones(len(row), bool)
    if isinstance(row, tuple) and len(row) == 2 and any(getattr(x, "ndim", 0) for x in row):
        return row
    for entry in row:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise FieldError(
                f"{where}: expected (index, value) pairs, or a tuple of two arrays, "
                f"got {_kind(entry)} {entry!s:.40}"
            )
    return [entry[0] for entry in row], [entry[1] for entry in row]
