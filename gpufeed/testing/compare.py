"""`assert_equal`: what readers and feeders yield, compared by value.

The first difference is told with the path that leads to it: ``['x'].lod[0][2]: 5 is not 4``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import count
from reprlib import Repr
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.columnar import ColumnarBatch
from gpufeed.places import CPUPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor

__all__ = ["assert_equal", "difference"]

_short = Repr()
_short.maxother = _short.maxstring = 80


def assert_equal(a: object, b: object) -> None:
    """Fail unless ``a`` and ``b`` hold the same values of the same dtypes.

    >>> assert_equal({"x": LoDTensor([7, 8], lod=[[0, 2]])}, {"x": LoDTensor([7, 8], lod=[[0, 2]])})
    >>> assert_equal([(1, np.array([2.0, 3.0]))], [(1, np.array([2.0, 4.0]))])
    Traceback (most recent call last):
        ...
    AssertionError: [0][1][1]: 3.0 is not 4.0

    Feeds, tensors, sparse rows, record batches, arrays, and dicts, lists, tuples and data classes
    of them, as deep as you like. Places do not matter, so that a feed on a device may be compared
    with arrays made by hand; a tensor without a LoD equals an array. NaN equals NaN.

    Raises:
        AssertionError: They differ; the message says where first, and how.
    """
    found = difference(a, b)
    if found is not None:
        raise AssertionError(found)


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """Return the first difference of ``a`` and ``b`` in words, or None if they are equal.

    >>> difference([1, 2], [1])
    'lengths 2 and 1 differ'

    Args:
        a: Anything.
        b: Anything.
        where: Put in front of it: what the two are a part of.
    """
    for kind, compare in _KINDS:
        if isinstance(a, kind) and isinstance(b, kind):
            return compare(a, b, where)
    array_a, array_b = _as_array(a), _as_array(b)
    if array_a is not None and array_b is not None:
        return _of_arrays(array_a, array_b, where)
    if is_dataclass(a) and not isinstance(a, type) and type(a) is type(b):
        names = [field.name for field in fields(a)]
        return _first(difference(getattr(a, k), getattr(b, k), f"{where}.{k}") for k in names)
    if isinstance(a, np.generic) and isinstance(b, np.generic) and a.dtype != b.dtype:
        return _said(where, f"dtypes {a.dtype} and {b.dtype} differ")
    is_one_compound = isinstance(a, _COMPOUND) or isinstance(b, _COMPOUND)
    if is_one_compound or array_a is not None or array_b is not None:
        return _said(where, f"{type(a).__name__} is not {type(b).__name__}")
    is_equal = a is b or bool(a == b) or bool(a != a and b != b)
    return None if is_equal else _said(where, f"{_short.repr(a)} is not {_short.repr(b)}")


def _of_mappings(a: Mapping[Any, Any], b: Mapping[Any, Any], where: str) -> str | None:
    if a.keys() != b.keys():
        return _said(where, f"keys {list(a)} and {list(b)} differ")
    return _first(difference(a[key], b[key], f"{where}[{key!r}]") for key in a)


def _of_sequences(a: Sequence[Any], b: Sequence[Any], where: str) -> str | None:
    if len(a) != len(b):
        return _said(where, f"lengths {len(a)} and {len(b)} differ")
    pairs = zip(count(), a, b, strict=False)
    return _first(difference(x, y, f"{where}[{number}]") for number, x, y in pairs)


def _of_tensors(a: LoDTensor, b: LoDTensor, where: str) -> str | None:
    return difference(a.lod(), b.lod(), f"{where}.lod") or _of_arrays(a.numpy(), b.numpy(), where)


def _of_sparse_rows(a: SparseRows, b: SparseRows, where: str) -> str | None:
    a, b = a.to(CPUPlace()), b.to(CPUPlace())
    # Indices have the width that suits them, which is no part of the value.
    return (
        difference(a.shape, b.shape, f"{where}.shape")
        or difference(a.lod(), b.lod(), f"{where}.lod")
        or difference(a.offsets.tolist(), b.offsets.tolist(), f"{where}.offsets")
        or difference(a.indices.tolist(), b.indices.tolist(), f"{where}.indices")
        or difference(a.values, b.values, f"{where}.values")
    )


def _of_record_batches(a: ColumnarBatch, b: ColumnarBatch, where: str) -> str | None:
    return difference(dict(a.columns), dict(b.columns), f"{where}.columns")


def _of_arrays(a: npt.NDArray[Any], b: npt.NDArray[Any], where: str) -> str | None:
    if a.dtype != b.dtype:
        return _said(where, f"dtypes {a.dtype} and {b.dtype} differ")
    if a.shape != b.shape:
        return _said(where, f"shapes {a.shape} and {b.shape} differ")
    if a.dtype.hasobject:
        return difference(a.tolist(), b.tolist(), where)
    differs = np.atleast_1d((a != b) & ~((a != a) & (b != b)))
    if not differs.any():
        return None
    index = tuple(np.argwhere(differs)[0].tolist())[: a.ndim]
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return difference(a[index].item(), b[index].item(), where + place)


_KINDS: tuple[tuple[Any, Callable[[Any, Any, str], str | None]], ...] = (
    (Mapping, _of_mappings),
    (list, _of_sequences),
    (tuple, _of_sequences),
    (LoDTensor, _of_tensors),
    (SparseRows, _of_sparse_rows),
    (ColumnarBatch, _of_record_batches),
)
_COMPOUND = tuple(kind for kind, _ in _KINDS)


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, LoDTensor):
        return None if value.lod() else value.numpy()
    if hasattr(value, "__cuda_array_interface__"):
        return LoDTensor(value).numpy()
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return np.asarray(value)
    return None


def _first(differences: Iterable[str | None]) -> str | None:
    return next((each for each in differences if each is not None), None)


def _said(where: str, what: str) -> str:
    return f"{where}: {what}" if where else what
