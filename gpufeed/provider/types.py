"""Input types: what each slot of a provider's sample holds.

A type is one of four kinds of data, given once a sample, in a sequence, or in a sequence of
sequences. With ``f`` a float and ``i`` an index, a sample's slot is

    =====================  =============  =================  =====================
    kind                   NO_SEQUENCE    SEQUENCE           SUB_SEQUENCE
    =====================  =============  =================  =====================
    dense_vector           [f, ...]       [[f, ...], ...]    [[[f, ...], ...], ...]
    sparse_binary_vector   [i, ...]       [[i, ...], ...]    [[[i, ...], ...], ...]
    sparse_float_vector    [(i, f), ...]  [[(i, f), ...],    [[[(i, f), ...], ...],
                                           ...]               ...]
    integer_value          i              [i, ...]           [[i, ...], ...]
    =====================  =============  =================  =====================

where arrays may stand for lists, and a pair of arrays ``(indices, values)`` for ``(i, f)`` pairs.

Source: ``paddle.trainer.PyDataProvider2``, whose names these are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.variables import Program, Variable, data, program_guard

__all__ = [
    "CacheType",
    "DataType",
    "InputType",
    "SequenceType",
    "dense_array",
    "dense_slot",
    "dense_vector",
    "dense_vector_sequence",
    "dense_vector_sub_sequence",
    "index_slot",
    "integer_sequence",
    "integer_value",
    "integer_value_sequence",
    "integer_value_sub_sequence",
    "sparse_binary_vector",
    "sparse_binary_vector_sequence",
    "sparse_binary_vector_sub_sequence",
    "sparse_float_vector",
    "sparse_float_vector_sequence",
    "sparse_float_vector_sub_sequence",
    "sparse_non_value_slot",
    "sparse_value_slot",
    "sparse_vector",
    "sparse_vector_sequence",
    "sparse_vector_sub_sequence",
]


class _Choice(IntEnum):
    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class SequenceType(_Choice):
    """How deep a slot's sequences are nested: the LoD level of the variable that it fills."""

    NO_SEQUENCE = 0
    SEQUENCE = 1
    SUB_SEQUENCE = 2


class DataType(_Choice):
    """What one step of a slot holds."""

    Dense = 0
    SparseNonValue = 1
    SparseValue = 2
    Index = 3


class CacheType(_Choice):
    """Whether a provider's first pass is kept in memory for the passes after it."""

    NO_CACHE = 0
    CACHE_PASS_IN_MEM = 1


_LAYOUTS = {DataType.SparseNonValue: "sparse_binary", DataType.SparseValue: "sparse_float"}


@dataclass(frozen=True, slots=True)
class InputType:
    """The type of one slot; made by the functions of this module.

    >>> sparse_float_vector_sub_sequence(7)
    InputType(dim=7, seq_type=SequenceType.SUB_SEQUENCE, type=DataType.SparseValue)

    Attributes:
        dim: Width of a dense or sparse vector; a shape for arrays; how many values an index has.
        seq_type: How deep its sequences are nested.
        type: What one step holds.

    Raises:
        FieldError: ``dim`` is not a whole number >= 1 (or, for dense data, a list of these), or
            another argument is none of its choices.
    """

    dim: int | tuple[int, ...]
    seq_type: SequenceType
    type: DataType

    def __post_init__(self) -> None:
        set_ = partial(object.__setattr__, self)
        set_("seq_type", _chosen("seq_type", SequenceType, self.seq_type))
        set_("type", _chosen("type", DataType, self.type))
        if self.type == DataType.Dense and isinstance(self.dim, (list, tuple)) and self.dim:
            set_("dim", tuple(_size(size) for size in self.dim))
        else:
            set_("dim", _size(self.dim))

    @property
    def size(self) -> int:
        """How many values a dense vector has; the width of a sparse one; 1 for an index."""
        return 1 if self.type == DataType.Index else math.prod(self._item())

    def variable(self, name: str) -> Variable:
        """Return a variable called ``name`` that takes this slot; it belongs to no program yet.

        >>> words = integer_value_sequence(5000).variable("words")
        >>> words.shape, words.dtype.name, words.lod_level
        ((-1, 1), 'int64', 1)
        """
        with program_guard(Program()):
            return data(
                name,
                [1] if self.type == DataType.Index else list(self._item()),
                "int64" if self.type == DataType.Index else "float32",
                int(self.seq_type),
                layout=_LAYOUTS.get(self.type, "dense"),  # type: ignore[arg-type]
            )

    def _item(self) -> tuple[int, ...]:
        return self.dim if isinstance(self.dim, tuple) else (self.dim,)


def _chosen(argument: str, choices: type[_Choice], given: Any) -> _Choice:
    try:
        return choices(given)
    except ValueError:
        names = ", ".join(map(repr, choices))
        raise FieldError(f"InputType.{argument} must be one of {names}, got {given!r}") from None


def _size(given: object) -> int:
    return whole_number("InputType.dim", given, minimum=1)


Dim = int | Sequence[int]

_SEQUENCE, _SUB_SEQUENCE = SequenceType.SEQUENCE, SequenceType.SUB_SEQUENCE


def dense_slot(dim: Dim, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Vectors of ``dim`` floats, or arrays of shape ``dim``.

    >>> dense_vector(784) == dense_slot(784)
    True
    """
    return InputType(dim, seq_type, DataType.Dense)  # type: ignore[arg-type] # made a tuple there


def sparse_non_value_slot(dim: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Vectors of ``dim`` zeros and ones: the indices of the ones, in ``[0, dim)``."""
    return InputType(dim, seq_type, DataType.SparseNonValue)


def sparse_value_slot(dim: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Vectors of ``dim`` floats, most of them zero: ``(index, value)`` pairs of the others."""
    return InputType(dim, seq_type, DataType.SparseValue)


def index_slot(value_range: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Whole numbers in ``[0, value_range)``: labels, word ids."""
    return InputType(value_range, seq_type, DataType.Index)


dense_vector = dense_array = dense_slot
sparse_binary_vector = sparse_non_value_slot
sparse_float_vector = sparse_vector = sparse_value_slot  # the latter its name until 2017
integer_value = index_slot


def dense_vector_sequence(dim: Dim) -> InputType:
    """Sequences of `dense_vector`."""
    return dense_slot(dim, _SEQUENCE)


def dense_vector_sub_sequence(dim: Dim) -> InputType:
    """Sequences of sequences of `dense_vector`."""
    return dense_slot(dim, _SUB_SEQUENCE)


def sparse_binary_vector_sequence(dim: int) -> InputType:
    """Sequences of `sparse_binary_vector`."""
    return sparse_non_value_slot(dim, _SEQUENCE)


def sparse_binary_vector_sub_sequence(dim: int) -> InputType:
    """Sequences of sequences of `sparse_binary_vector`."""
    return sparse_non_value_slot(dim, _SUB_SEQUENCE)


def sparse_float_vector_sequence(dim: int) -> InputType:
    """Sequences of `sparse_float_vector`."""
    return sparse_value_slot(dim, _SEQUENCE)


def sparse_float_vector_sub_sequence(dim: int) -> InputType:
    """Sequences of sequences of `sparse_float_vector`."""
    return sparse_value_slot(dim, _SUB_SEQUENCE)


def integer_value_sequence(value_range: int) -> InputType:
    """Sequences of `integer_value`."""
    return index_slot(value_range, _SEQUENCE)


def integer_value_sub_sequence(value_range: int) -> InputType:
    """Sequences of sequences of `integer_value`."""
    return index_slot(value_range, _SUB_SEQUENCE)


sparse_vector_sequence = sparse_float_vector_sequence
sparse_vector_sub_sequence = sparse_float_vector_sub_sequence
integer_sequence = integer_value_sequence
