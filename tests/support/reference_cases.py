"""Random batches for `DataFeeder`, as JSON values: what is compared with the reference.

A case is ``{"shape", "dtype", "lod_level", "rows", "arrays"}``: one declared variable, and what
each sample of a batch holds for it, `batch_of` makes the batch: of lists, tuples, NumPy's numbers,
or arrays. Most are as they should be; some have another shape, or values that the dtype cannot
keep.

This module imports nothing of gpufeed: `reference_worker` runs where the reference does.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

SHAPES = (
    [-1],
    [-1, 1],
    [-1, 3],
    [-1, 2, 2],
    [-1, 1, 2, 3],
    [4, 3],
    [-1, -1],
    [-1, -1, 2],
    [-1, 3, 1],
    [-1, 2, -1],
    [1],
    [2, 2],
)
DTYPES = ("float32", "float64", "int64", "int32", "uint8", "int16", "int8", "bool", "float16")


def random_case(random: Random) -> dict[str, Any]:
    """Return one case."""
    lod_level = random.choice([0, 0, 1, 1, 2, 3])
    # The reference asks every variable with a LoD for a free first dimension as well.
    shape = random.choice([shape for shape in SHAPES if shape[0] == -1 or not lod_level])
    dtype = random.choice(DTYPES)
    item = [abs(dim) if dim > 0 else random.randint(1, 3) for dim in shape[1:]]
    form = random.choice(["row", "row", "row", "flat", "odd", "tall"])
    if form == "flat":
        item = [math.prod(item)]
    elif form == "odd":
        item = [random.randint(0, 4) for _ in item]
    elif form == "tall":
        item = [random.randint(1, 3), *item]
    arrays = random.choice([None, None, "row", "sequence", "scalar", "tuple"])
    array_dtype = random.choice(["float64", "float32", "int64", "int32", dtype])
    odd_values = arrays in (None, "tuple") and random.random() < 0.35

    def value() -> Any:
        return _odd_value(random, dtype) if odd_values else _value(random, dtype)

    def entry(level: int) -> Any:
        if level:
            return [entry(level - 1) for _ in range(random.choice([0, 0, 1, 2, 3, 5]))]
        return _nested(item, value)

    rows = [entry(lod_level) for _ in range(random.choice([0, 1, 2, 3, 4]))]
    return {
        "shape": shape,
        "dtype": dtype,
        "lod_level": lod_level,
        "rows": rows,
        "arrays": None if arrays is None else [arrays, array_dtype],
    }


def batch_of(case: dict[str, Any]) -> list[tuple[Any]]:
    """Return the batch: samples of one field, with arrays in it where the case wants them."""
    arrays = case.get("arrays")
    if arrays is None:
        return [(row,) for row in case["rows"]]
    form, dtype = arrays
    if form in ("tuple", "scalar"):
        leaf = np.dtype(dtype).type if form == "scalar" else lambda value: value
        return [(_mapped(row, tuple if form == "tuple" else list, leaf),) for row in case["rows"]]
    # An array is a row, or all rows of a sequence (which here are as long as each other).
    depth = case["lod_level"] - (form == "sequence" and case["lod_level"] > 0)

    def make(entry: Any, level: int) -> Any:
        if level < depth:
            return [make(each, level + 1) for each in entry]
        return np.array(entry, dtype)

    return [(make(row, 0),) for row in case["rows"]]


def _mapped(nested: Any, kind: Any, leaf: Any) -> Any:
    if isinstance(nested, list):
        return kind(_mapped(each, kind, leaf) for each in nested)
    return leaf(nested)


def _nested(item: list[int], value: Any) -> Any:
    if not item:
        return value()
    return [_nested(item[1:], value) for _ in range(item[0])]


def _value(random: Random, dtype: str) -> Any:
    if dtype == "bool":
        return random.random() < 0.5
    if dtype.startswith("float"):
        return random.choice([random.randint(-9, 9), random.randint(-64, 64) / 8])
    return random.randint(0, 120)


def _odd_value(random: Random, dtype: str) -> Any:
    return random.choice(
        [
            random.uniform(-99, 99),  # cut to an integer
            random.randint(-(2**15), 2**15),  # wraps in uint8 and int16
            random.randint(-100, 100),
            random.choice([True, False]),
            str(random.randint(0, 99)) if dtype != "bool" else 2,  # parsed
            None if dtype.startswith("float") else 7,  # is NaN
        ]
    )
