"""What ``fluid.DataFeeder.feed`` of PaddlePaddle does to one field, said plainly and slowly.

Written from measurements (tests/support/reference_results.json holds some), one value at a time and
without NumPy's conversions, so that it shares no step with `gpufeed.loose`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from support.reference_cases import batch_of

Lengths = list[list[int]]
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


def convert(case: dict[str, Any]) -> tuple[np.ndarray, Lengths]:
    """Return the values and the lengths that the reference makes, before it looks at the lengths.

    Raises:
        ValueError: The reference refuses the rows.
    """
    lengths: Lengths = [[] for _ in range(case["lod_level"])]
    rows: list[Any] = []

    def take(entry: Any, level: int) -> None:
        if level == len(lengths):
            rows.append(entry)
            return
        lengths[level].append(len(entry))
        for inner in entry:
            take(inner, level + 1)

    for (sample,) in batch_of(case):
        take(_listed(sample), 0)
    shape = _shape(rows)
    values = [_value(value, case["dtype"]) for value in _flat(rows)]
    array = np.array(values, case["dtype"]).reshape(shape)
    return _reshaped(array, case["shape"]), lengths


def accepts(lengths: Lengths, num_rows: int) -> bool:
    """Whether the reference takes these lengths for so many rows."""
    if any(not level for level in lengths):
        return False
    entries = [*map(len, lengths[1:]), *([num_rows] if num_rows else [])]
    return all(sum(level) == num for level, num in zip(lengths, entries, strict=False))


def _listed(sample: Any) -> Any:
    """Return nested lists of Python's own numbers."""
    if isinstance(sample, (list, tuple)):
        return [_listed(each) for each in sample]
    return sample.tolist() if isinstance(sample, (np.ndarray, np.generic)) else sample


def _shape(nested: Any) -> tuple[int, ...]:
    if not isinstance(nested, list):
        return ()
    inner = {_shape(each) for each in nested}
    if len(inner) > 1:
        raise ValueError("ragged")
    return (len(nested), *(inner.pop() if inner else ()))


def _flat(nested: Any) -> list[Any]:
    if not isinstance(nested, list):
        return [nested]
    return [value for each in nested for value in _flat(each)]


def _value(value: Any, dtype: str) -> Any:
    if dtype in INTEGERS:
        bits = int(dtype.strip("uint"))
        whole = math.trunc(value) if isinstance(value, float) else int(value)
        wrapped = whole % 2**bits
        return wrapped - 2**bits if dtype[0] == "i" and wrapped >= 2 ** (bits - 1) else wrapped
    if dtype == "bool":
        return bool(value)
    return math.nan if value is None else float(value)


def _reshaped(array: np.ndarray, declared: list[int]) -> np.ndarray:
    """Reshape as declared, if the rank is another and no more than one dimension is open."""
    if array.ndim == len(declared) or sum(dim < 0 for dim in declared) > 1:
        return array
    fixed = math.prod(dim for dim in declared if dim >= 0)
    open_dim, rest = divmod(array.size, fixed)
    if rest or (min(declared) >= 0 and open_dim != 1):
        raise ValueError("Reshape error")
    return array.reshape([open_dim if dim < 0 else dim for dim in declared])
