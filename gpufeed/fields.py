"""Fields: which part of each sample goes to which variable.

A tuple or list is a row of fields, a dict is by name, and anything else is the one field itself. A
batch is all of one kind. A `ColumnarBatch` is taken apart by name, or by ``feeding``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import countOf
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.columnar import Column, ColumnarBatch
from gpufeed.errors import FieldError

__all__ = ["FieldMap"]


class FieldMap:
    """Turns a batch of samples into columns, one a field.

    >>> FieldMap(["ids", "label"]).columns([([7, 8], 1), ([9], 0)])
    [([7, 8], [9]), (1, 0)]
    >>> FieldMap(["label"], {"label": 1}).columns([([7, 8], 1), ([9], 0)])
    [(1, 0)]

    Args:
        names: The fields, in feed order.
        feeding: From name to column of a tuple or list; columns may be reused and left out. None
            takes them by position, all of them.

    Raises:
        FieldError: ``feeding`` is no mapping, does not name exactly these fields, or a
            column is not a number.
    """

    def __init__(self, names: Sequence[str], feeding: Mapping[str, int] | None = None) -> None:
        self._names = list(names)
        self._order: list[int] | None = None
        if feeding is None:
            return
        if not isinstance(feeding, Mapping):
            raise FieldError(f"DataFeeder.feeding must map names to columns, got {feeding!r}")
        if set(feeding) != set(names):
            raise FieldError(
                f"DataFeeder.feeding must name {sorted(names)}, got {sorted(map(str, feeding))}"
            )
        self._order = [
            whole_number(f"DataFeeder.feeding[{name!r}]", feeding[name], minimum=0)
            for name in names
        ]

    def columns(self, batch: Iterable[Any]) -> Sequence[Sequence[Any] | Column]:
        """Return the values of each field, in feed order.

        Raises:
            FieldError: A sample has another number of fields, lacks a name, or is of another kind
                than the first.
        """
        if isinstance(batch, ColumnarBatch):
            return self._from_columns(batch.columns)
        samples = batch if isinstance(batch, (list, tuple)) else _as_list(batch)
        if not samples:
            return [()] * len(self._names)
        if countOf(map(type, samples), tuple) == len(samples):
            return self._from_rows(samples)
        kinds = set(map(type, samples))
        if all(issubclass(kind, (tuple, list)) for kind in kinds):
            return self._from_rows(samples)
        if isinstance(samples[0], (tuple, list)):
            return self._row_by_row(samples)
        if all(issubclass(kind, Mapping) for kind in kinds):
            return [self._named(samples, name) for name in self._names]
        if any(issubclass(kind, (tuple, list, Mapping)) for kind in kinds):
            raise _of_another_kind(samples)
        if len(self._names) != 1 or (self._order and self._order != [0]):
            raise FieldError(
                f"sample 0: expected {self._wanted()}, got {type(samples[0]).__name__}"
            )
        return [samples]

    def _from_columns(self, columns: Mapping[str, Column]) -> list[Column]:
        if self._order is None:
            missing = [name for name in self._names if name not in columns]
            if missing:
                raise FieldError(f"expected a column {missing[0]!r}, got {', '.join(columns)}")
            return [columns[name] for name in self._names]
        if max(self._order) >= len(columns):
            raise FieldError(
                f"expected at least {max(self._order) + 1} columns (feeding {self._names}), "
                f"got {', '.join(columns)}"
            )
        in_order = list(columns.values())
        return [in_order[number] for number in self._order]

    def _from_rows(self, samples: Sequence[Any]) -> list[Sequence[Any]]:
        columns: list[Sequence[Any]]
        try:
            if len(samples[0]) == 1:  # twice as fast as zip
                columns = [[field for (field,) in samples]]
            else:
                columns = list(zip(*samples, strict=True))
        except (TypeError, ValueError):  # several lengths: what is needed may still be there
            columns = []
        if self._order is None:
            if len(columns) == len(self._names):
                return columns
        elif max(self._order) < len(columns):
            return [columns[number] for number in self._order]
        return self._row_by_row(samples)

    def _row_by_row(self, samples: Sequence[Any]) -> list[Sequence[Any]]:
        """Take the fields that ``feeding`` names out of each row, or name the row that is short."""
        least = len(self._names) if self._order is None else max(self._order) + 1
        for number, sample in enumerate(samples):
            if not isinstance(sample, (tuple, list)):
                raise FieldError(
                    f"sample {number}: expected {self._wanted()}, got {type(sample).__name__}"
                )
            if len(sample) < least or (self._order is None and len(sample) > least):
                raise FieldError(
                    f"sample {number}: expected {self._wanted()}, got {len(sample)} "
                    f"(a sample that is one field is given as (x,))"
                )
        order = self._order or range(least)
        return [[sample[column] for sample in samples] for column in order]

    def _wanted(self) -> str:
        names = ", ".join(self._names)
        if self._order is None:
            return f"{len(self._names)} field{'s' * (len(self._names) > 1)} ({names})"
        return f"at least {max(self._order) + 1} fields (feeding {names})"

    @staticmethod
    def _named(samples: Sequence[Any], name: str) -> list[Any]:
        try:
            return [sample[name] for sample in samples]
        except KeyError as error:
            number = next((n for n, sample in enumerate(samples) if name not in sample), None)
            if number is None:
                raise FieldError(
                    f"field {name!r}: a sample's mapping does not answer for its own key"
                ) from error
            got = ", ".join(map(str, samples[number])) or "none"
            raise FieldError(f"sample {number}: expected a field {name!r}, got {got}") from error


def _of_another_kind(samples: Sequence[Any]) -> FieldError:
    """Return the error that names the first sample which is not what the first one is."""
    first = isinstance(samples[0], Mapping)
    number, sample = next(
        (number, sample)
        for number, sample in enumerate(samples)
        if isinstance(sample, (tuple, list)) or isinstance(sample, Mapping) != first
    )
    return FieldError(
        f"sample {number}: expected {'a dict' if first else 'the bare value of one field'}, as "
        f"sample 0 is, got {type(sample).__name__}"
    )


def _as_list(batch: Iterable[Any]) -> list[Any]:
    # Text and mappings are iterables too, and a 0-d array claims to be one: of no samples.
    empty_claim = isinstance(batch, (str, bytes, Mapping)) or getattr(batch, "ndim", 1) == 0
    if empty_claim or not hasattr(batch, "__iter__"):
        raise FieldError(f"a mini-batch must be an iterable of samples, got {type(batch).__name__}")
    return list(batch)
