"""Slots: what `process` yields becomes rows with one field a slot, looked at or taken on trust.

One slot: every sample is that slot's value, or a dict that holds it. Several: a sample is a tuple
or list of the slots in order, or a dict by name where the types are named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np

import gpufeed.strict as strict
from gpufeed.errors import FieldError
from gpufeed.provider.types import DataType, InputType
from gpufeed.variables import Program, Variable

__all__ = ["Row", "Slots"]

Row = Sequence[Any]

_ROWS = {tuple, list}


class Slots:
    """The types of a provider's slots, in order, and their names where they have any.

    >>> from gpufeed.provider.types import dense_vector, integer_value
    >>> slots = Slots({"pixel": dense_vector(2), "label": integer_value(10)}, ["label", "pixel"])
    >>> list(slots.rows([{"pixel": [0.5, 1.0], "label": 7}]))
    [(7, [0.5, 1.0])]

    Args:
        input_types: A list by position, or a mapping from name to type.
        input_order: The names in the order wanted; a mapping may hold more types than these.

    Attributes:
        names: Of the slots in order; None where only the program knows them.
        types: Of the slots in order.
        is_named: Whether samples may be dicts.
        declared: A variable for each slot, called by its number where it has no name.

    Raises:
        FieldError: ``input_types`` are not that, or do not go with ``input_order``.
    """

    def __init__(self, input_types: object, input_order: Sequence[str] | None = None) -> None:
        order = None if input_order is None else _names_in(input_order)
        self.names: tuple[str, ...] | None
        self.is_named = isinstance(input_types, Mapping)
        if isinstance(input_types, Mapping):
            self.names = tuple(input_types) if order is None else order
            if unknown := set(self.names) - set(input_types):
                raise FieldError(
                    f"provider.input_order must name input_types, got {sorted(map(repr, unknown))} "
                    f"beside {sorted(map(repr, input_types))}"
                )
            input_types = [input_types[name] for name in self.names]
        else:
            self.names = order
        if not isinstance(input_types, (list, tuple)) or not input_types:
            raise FieldError(
                "provider.input_types must be a list or dict of input types, here or set by the "
                f"init_hook, got {input_types!r}"
            )
        for given in input_types:
            if not isinstance(given, InputType):
                raise FieldError(f"provider.input_types must hold InputType, got {given!r}")
        self.types: tuple[InputType, ...] = tuple(input_types)
        if self.names is not None and len(self.names) != len(self.types):
            raise FieldError(
                f"provider.input_order must name {len(self.types)} slots, got {list(self.names)}"
            )
        self._pick = _picker(self.names) if self.is_named and self.names else None
        labels = self.names or [f"slot {number}" for number in range(len(self.types))]
        self.declared = [kind.variable(name) for kind, name in zip(self.types, labels, strict=True)]

    def rows(
        self, samples: Iterable[Any], numbers: Iterable[int] = range(sys.maxsize)
    ) -> Iterator[Row]:
        """Yield one tuple or list of slots for each sample; values are not looked at.

        Args:
            samples: Of ``process``.
            numbers: Theirs, for messages.

        Raises:
            FieldError: A sample is in another form, or lacks a slot.
        """
        is_single, pick = len(self.types) == 1, self._pick
        for sample, number in zip(samples, numbers, strict=False):
            # By exact type, which nearly every sample passes; what is left may be a subclass.
            if not is_single and (type(sample) is tuple or type(sample) is list):
                yield sample
            elif pick is not None and type(sample) is dict:
                try:
                    row = pick(sample)
                except KeyError:
                    row = self._named(sample, number)
                yield row
            elif isinstance(sample, Mapping):
                yield self._named(sample, number)
            elif is_single:
                yield (sample,)
            elif isinstance(sample, (tuple, list)):
                yield sample
            else:
                raise FieldError(
                    f"sample {number}: expected a tuple, list{' or dict' * self.is_named} of "
                    f"{self._wanted()}, got {type(sample).__name__} {sample!s:.40}"
                )

    def rows_at_once(self, samples: list[Any]) -> list[Row] | None:
        """Return what `rows` yields, made at the speed of C, or perhaps the list itself.

        None where the samples are of several forms, or there is something to say of one.
        """
        kinds = set(map(type, samples))
        if len(self.types) == 1:
            return None if any(issubclass(kind, Mapping) for kind in kinds) else [*zip(samples)]
        if kinds <= _ROWS:
            return samples
        if kinds == {dict} and self._pick is not None:
            with suppress(KeyError):
                return [*map(self._pick, samples)]
        return None

    def check(self, row: Row, number: int) -> None:
        """Refuse a row with a slot missing or in excess, or with a value that its type forbids.

        Args:
            row: One of `rows`.
            number: Of the sample, for the message.

        Raises:
            FieldError: Names slot, sample, expected and got.
        """
        if len(row) != len(self.types):
            raise FieldError(
                f"sample {number}: expected {self._wanted()}, got {len(row)}: {row!s:.80}"
            )
        for kind, variable, value in zip(self.types, self.declared, row, strict=True):
            _check_value(kind, variable, value, number)

    def variables(self, program: Program) -> list[Variable]:
        """Return a variable for each slot: the program's own where it declares one of that name.

        Slots without names are called as the program's variables are, in declaration order.

        Raises:
            FieldError: The program declares another number of variables, or one that cannot take
                its slot.
        """
        declared = program.global_block().vars
        names = self.names
        if names is None:
            names = tuple(declared)
            if len(names) != len(self.types):
                raise FieldError(
                    f"provider.input_types: {len(self.types)} slots without names take those of as "
                    f"many declared variables, got {len(names)} ({', '.join(names) or 'none'}); "
                    "pass input_order= or give input_types as a dict"
                )
        found = []
        for kind, name in zip(self.types, names, strict=True):
            variable = declared.get(name)
            if variable is not None:
                _require_fit(kind, variable)
            found.append(variable or kind.variable(name))
        return found

    def _named(self, sample: Mapping[str, Any], number: int) -> Row:
        if self._pick is None:
            raise FieldError(
                f"sample {number}: expected {self._wanted()} by position, as input_types are, "
                f"got a dict of {', '.join(map(str, sample))}"
            )
        try:
            return self._pick(sample)
        except KeyError as error:
            got = ", ".join(map(str, sample)) or "none"
            raise FieldError(f"sample {number}: expected a slot {error}, got {got}") from error

    def _wanted(self) -> str:
        number = len(self.types)
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{number} slot{'s' * (number > 1)}{names}"


def _names_in(input_order: object) -> tuple[str, ...]:
    names: tuple[Any, ...] = (None,)
    if isinstance(input_order, Iterable) and not isinstance(input_order, str):
        names = tuple(input_order)
    if not all(isinstance(name, str) for name in names):
        raise FieldError(f"provider.input_order must be a list of names, got {input_order!r}")
    if len(set(names)) < len(names):
        raise FieldError(f"provider.input_order must name each slot once, got {input_order!r}")
    return names


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Row]:
    """Return what takes the slots out of a dict; alone, `itemgetter` would not make a tuple."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda sample: (sample[names[0]],)


def _check_value(kind: InputType, variable: Variable, value: Any, number: int) -> None:
    where = f"field {variable.name!r}, sample {number}"
    if variable.is_sparse:
        for indices, _ in strict.sparse_rows(variable, [value], first=number):
            found, counts = np.unique(indices, return_counts=True)
            if len(found) != len(indices):
                twice = found[counts.argmax()]
                raise FieldError(f"{where}: expected each index once in a row, got {twice} again")
        return
    rows = strict.dense_rows(variable, [value], variable.item_shape, variable.dtype, first=number)
    if kind.type == DataType.Index:
        for values in rows:
            outside = values[(values < 0) | (values >= kind.dim)]
            if outside.size:
                raise FieldError(
                    f"{where}: expected values in [0, {kind.dim}), got {outside.flat[0]}"
                )


def _require_fit(kind: InputType, variable: Variable) -> None:
    """Refuse a declared variable that could not take a slot of this type."""
    mine = kind.variable(variable.name)
    size = int(np.prod(variable.item_shape))
    if (
        variable.layout != mine.layout
        or variable.lod_level != mine.lod_level
        or (kind.type == DataType.Index and variable.dtype.kind not in "iu")
        or (-1 not in variable.item_shape and size != kind.size)
    ):
        raise FieldError(
            f"provider: variable {variable.name!r} must take {kind!r}, as {mine} does, "
            f"got {variable}"
        )
