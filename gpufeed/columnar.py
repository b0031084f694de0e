"""`ColumnarBatch`: many samples held as columns, one array a field, and no Python object a sample.

This is the form in which columnar files and engines hand out data. It is cut, joined and fed
column by column; a sample is made of it only for those who iterate.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from gpufeed.errors import FieldError
from gpufeed.ragged import Ragged
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor

__all__ = ["Column", "ColumnarBatch"]

Column = LoDTensor | SparseRows | npt.NDArray[Any]
Selection = slice | list[Any] | npt.NDArray[Any]


class ColumnarBatch:
    """Samples as columns: sample ``i`` is ``{name: column[i]}``.

    >>> batch = ColumnarBatch({
    ...     "ids": LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]]),
    ...     "label": np.array([1, 0, 1]),
    ... })
    >>> len(batch), batch[1:]
    (3, ColumnarBatch(2 samples: ids int64 lod_level=1, label int64))
    >>> batch[1:].columns["ids"].to_list()
    [[], [9]]

    Slices with step 1 are views of the columns, and so are single samples; a list of numbers or a
    mask copies. Iteration makes a dict of every sample, which is as slow as it sounds.

    Args:
        columns: Name to a column, in order. An array counts a sample along its first axis, a
            tensor or sparse rows along their top level. Taken as they are, without a copy.

    Raises:
        FieldError: ``columns`` is no mapping, or empty, a column is something else, or they differ
            in their number of samples.
    """

    __slots__ = ("_columns", "_num_samples")

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not isinstance(columns, Mapping):
            raise FieldError(
                f"ColumnarBatch.columns must map names to columns, got {columns!r:.80}"
            )
        self._columns = dict(columns)
        for name, column in self._columns.items():
            if not isinstance(column, (LoDTensor, SparseRows)) and not (
                isinstance(column, np.ndarray) and column.ndim
            ):
                raise FieldError(
                    f"ColumnarBatch.columns[{name!r}] must be a LoDTensor, SparseRows or an array "
                    f"with a first axis, got {column!r:.80}"
                )
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) != 1:
            got = ", ".join(f"{name}: {length}" for name, length in lengths.items()) or "no column"
            raise FieldError(f"ColumnarBatch.columns must hold equally many samples, got {got}")
        self._num_samples = next(iter(lengths.values()))

    @property
    def columns(self) -> Mapping[str, Column]:
        """Name to column, in order; read-only."""
        return MappingProxyType(self._columns)

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._num_samples

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: Selection) -> ColumnarBatch: ...
    def __getitem__(self, index: int | Selection) -> dict[str, Any] | ColumnarBatch:
        """Return one sample as a dict, or the samples of a slice, a list of numbers or a mask."""
        if isinstance(index, (slice, list, np.ndarray)):
            return ColumnarBatch({name: column[index] for name, column in self._columns.items()})
        number = operator.index(index)
        return {name: _plain(column[number]) for name, column in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.rows():
            yield dict(zip(self._columns, row, strict=True))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the samples as tuples, fields in the order of the columns.

        A field is what a reader gives for it: a row of an array, an array for a sequence (a view),
        a list of these for a sequence of sequences.

        >>> batch = ColumnarBatch({"ids": LoDTensor([7, 8, 9], lod=[[0, 1, 3]])})
        >>> list(batch.rows())
        [(array([7]),), (array([8, 9]),)]
        """
        return zip(*map(_samples, self._columns.values()), strict=True)

    @classmethod
    def concat(cls, parts: Iterable[ColumnarBatch]) -> ColumnarBatch:
        """Return the samples of all parts, one part after the other, as a copy.

        >>> part = ColumnarBatch({"label": np.array([1, 0])})
        >>> ColumnarBatch.concat([part, part[:1]]).columns["label"]
        array([1, 0, 1])

        Raises:
            FieldError: There are no parts, or they differ in the names, order or kinds of their
                columns.
            LoDError: They differ in a column's number of LoD levels.
        """
        parts = list(parts)
        if not parts:
            raise FieldError("ColumnarBatch.concat.parts must be one batch or more, got none")
        names = list(parts[0]._columns)
        for part in parts:
            if list(part._columns) != names:
                raise FieldError(
                    f"ColumnarBatch.concat.parts must have the columns {', '.join(names)}, "
                    f"got {', '.join(part._columns)}"
                )
        return cls({name: _joined(name, [part._columns[name] for part in parts]) for name in names})

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name} {_kind(column)}" for name, column in self._columns.items())
        return f"ColumnarBatch({self._num_samples} samples: {kinds})"


def _samples(column: Column) -> Iterator[Any]:
    if isinstance(column, np.ndarray):
        return iter(column)
    if isinstance(column, LoDTensor) and column.lod_level == 1:
        rows = column.data  # what iterating the tensor gives, in a third of the time
        return (rows[begin:end] for begin, end in pairwise(column.lod()[0]))
    return map(_plain, column)


def _plain(sample: Any) -> Any:
    """Return a sequence of sequences as nested lists of arrays; anything else as it is."""
    return list(map(_plain, sample)) if isinstance(sample, Ragged) else sample


def _joined(name: str, parts: list[Any]) -> Column:
    kind: Any = type(parts[0])
    if kind is not np.ndarray and all(isinstance(part, kind) for part in parts):
        merged: Column = kind.merge(parts)  # which says itself where they differ
        return merged
    kinds = dict.fromkeys(map(_kind, parts))
    if len(kinds) > 1:
        raise FieldError(
            f"ColumnarBatch.concat: column {name!r} must be of one kind, got {', '.join(kinds)}"
        )
    return np.concatenate(parts)


def _kind(column: Column) -> str:
    if isinstance(column, np.ndarray):
        return f"{column.dtype} {column.shape[1:] or ''}".rstrip()
    sparse = "sparse " * isinstance(column, SparseRows)
    return f"{sparse}{column.dtype} lod_level={column.lod_level}"
