"""`DataProviderConverter`: batches of a provider's samples as arguments of V1 networks.

An argument is a tensor and, for sequences, where each begins. Both start positions count rows, the
lowest level there is, unlike LoD offsets, which count the entries of the level below:

    [[1, 2], [3]], [[4]]    sequences begin at rows       [0, 3, 4]
                            sub-sequences begin at rows   [0, 2, 3, 4]
                            the LoD is                    [[0, 2, 3], [0, 2, 3, 4]]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

import gpufeed.lod as offset_math
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.lod import Offsets
from gpufeed.places import PlaceLike
from gpufeed.provider.types import DataType, InputType
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, Variable

__all__ = ["Argument", "DataProviderConverter"]


@dataclass(frozen=True)
class Argument:
    """One slot of a converted batch.

    Attributes:
        value: Dense ``(rows, dim)`` float32, indices ``(rows, 1)`` int64, or `SparseRows`.
        sequence_start_positions: The row that each sequence begins at, and the number of rows;
            None for slots that are no sequences.
        sub_sequence_start_positions: The same of each sub-sequence; None for all others.
        frame_height: Of the arrays that dense rows were given as; 0 where they were flat.
        frame_width: The same.
    """

    value: LoDTensor | SparseRows
    sequence_start_positions: Offsets | None = None
    sub_sequence_start_positions: Offsets | None = None
    frame_height: int = 0
    frame_width: int = 0


class DataProviderConverter:
    """Converts batches of positional samples, one `Argument` a slot.

    >>> from gpufeed.provider import integer_value_sub_sequence
    >>> convert = DataProviderConverter([integer_value_sub_sequence(10)])
    >>> [words] = convert([([[1, 2], [3]],), ([[4]],)])
    >>> words.sequence_start_positions.tolist(), words.sub_sequence_start_positions.tolist()
    ([0, 3, 4], [0, 2, 3, 4])

    Args:
        input_types: A list of types; samples may have more columns than these.
        place: Where the tensors go.

    Raises:
        FieldError: ``input_types`` is no list of types.

    Source: ``py_paddle.DataProviderConverter``, which returned ``swig_paddle.Arguments``.
    """

    def __init__(self, input_types: Sequence[InputType], place: PlaceLike = "cpu") -> None:
        is_list = isinstance(input_types, (list, tuple)) and len(input_types) > 0
        if not is_list or not all(isinstance(kind, InputType) for kind in input_types):
            raise FieldError(
                f"DataProviderConverter.input_types must be a list of input types, "
                f"got {input_types!r}"
            )
        self.input_types = tuple(input_types)
        self._place = place
        self._feeders: dict[tuple[int, ...], DataFeeder] = {}

    def __call__(
        self, dat: Iterable[Sequence[Any]], argument: list[Argument] | None = None
    ) -> list[Argument]:
        """Convert a batch, as `convert` does."""
        return self.convert(dat, argument)

    def convert(
        self, dat: Iterable[Sequence[Any]], argument: list[Argument] | None = None
    ) -> list[Argument]:
        """Convert a batch.

        Args:
            dat: Samples: tuples or lists with at least one column a slot. Dense vectors may be
                arrays of two or three dimensions, all of one shape.
            argument: A list to be filled anew and returned.

        Raises:
            FieldError: A sample does not fit the types, or ``dat`` is no iterable.
        """
        if not isinstance(dat, Iterable):
            raise FieldError(
                f"DataProviderConverter.dat must be an iterable of samples, got {dat!r:.80}"
            )
        samples = dat if isinstance(dat, (list, tuple)) else list(dat)
        ranks = tuple(_rank(kind, column, samples) for column, kind in enumerate(self.input_types))
        feed = self._feeder(ranks).feed(samples)
        found = [_argument(kind, feed[_name(at)]) for at, kind in enumerate(self.input_types)]
        if argument is None:
            return found
        argument[:] = found
        return argument

    def _feeder(self, ranks: tuple[int, ...]) -> DataFeeder:
        """Return a feeder whose dense rows have these ranks; there is seldom more than one."""
        if ranks not in self._feeders:
            program = Program()
            variables = [
                _variable(kind, _name(at), rank)
                for at, (kind, rank) in enumerate(zip(self.input_types, ranks, strict=True))
            ]
            program.global_block().vars.update((one.name, one) for one in variables)
            feeding = {one.name: at for at, one in enumerate(variables)}
            self._feeders[ranks] = DataFeeder(variables, self._place, program, feeding=feeding)
        return self._feeders[ranks]


def _name(column: int) -> str:
    return f"slot {column}"


def _rank(kind: InputType, column: int, samples: Sequence[Any]) -> int:
    """Return how many dimensions one dense row has, from the first there is; 1 for none."""
    if kind.type != DataType.Dense:
        return 1
    try:
        rows: Iterable[Any] = (sample[column] for sample in samples)
        for _ in range(kind.seq_type):
            rows = chain.from_iterable(rows)
        return max(1, np.ndim(next(iter(rows), [])))
    except (TypeError, ValueError, LookupError):
        return 1  # no row at all, which the feeder says of which sample


def _variable(kind: InputType, name: str, rank: int) -> Variable:
    variable = kind.variable(name)
    if rank == 1:
        return replace(variable, shape=(-1, kind.size)) if kind.type == DataType.Dense else variable
    if rank > 3:
        raise FieldError(f"field {name!r}: expected dense rows of at most 3 dimensions, got {rank}")
    # Frames may be of any size, if only of the same one in a batch.
    return replace(variable, shape=(-1,) * (1 + rank))


def _argument(kind: InputType, value: Any) -> Argument:
    height = width = 0
    if kind.type == DataType.Dense and len(value.shape) > 2:
        *_, height, width = value.shape
        flat = value.data.reshape(len(value.data), -1)
        value = LoDTensor._assemble(
            flat, value._lod, value.place, value._lod_on_place, value._lease
        )
    lod = value._lod
    return Argument(
        value,
        offset_math.absolute(lod) if lod else None,
        lod[1] if len(lod) > 1 else None,
        height,
        width,
    )
