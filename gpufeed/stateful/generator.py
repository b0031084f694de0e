"""Random instances without end: a reader to build and measure a pipeline with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.reader.base import Reader
from gpufeed.stateful.base import ReaderHolder
from gpufeed.stateful.tensors import Instance, TensorFields, require_list
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable

__all__ = ["RandomDataGenerator"]


class RandomDataGenerator(ReaderHolder[Instance]):
    """Tensors of float32, drawn uniformly from ``[low, high)``, without end.

    >>> reader = RandomDataGenerator(0, 1, [[4, 2], [4, 1]], [0, 1], seed=3)
    >>> image, label = reader.read_next()
    >>> image.shape, label.lod()
    ((4, 2), [[0, 4]])

    Args:
        low: Least value.
        high: Bound of the values; equal to ``low``, the only one.
        shapes: Of each field, all dimensions known.
        lod_levels: Of each field; a field with levels is one sequence. None is 0 for all.
        seed: Makes the values a function of (seed, epoch, ordinal); None draws new ones each pass.

    Attributes:
        fields: The declared fields.

    Raises:
        FieldError: ``low > high``, a bound is no finite number, a dimension is not known, or the
            lists do not fit each other.

    Source: ``random_data_generator`` of PaddlePaddle 1.x.
    """

    def __init__(
        self,
        low: float,
        high: float,
        shapes: Sequence[Sequence[int]],
        lod_levels: Sequence[int] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        owner = "random_data_generator"
        for name, bound in (("low", low), ("high", high)):
            _require_finite(f"{owner}.{name}", bound)
        if low > high:
            raise FieldError(f"{owner}.low must be <= high, got {low} > {high}")
        require_list(f"{owner}.shapes", shapes)
        for number, shape in enumerate(shapes):
            sizes: Sequence[object] = shape if isinstance(shape, Sequence) else ()
            if not sizes or not all(
                isinstance(dim, (int, np.integer)) and dim >= 0 for dim in sizes
            ):
                raise FieldError(
                    f"{owner}.shapes[{number}] must have known dimensions, got {shape!r}"
                )
        seed = None if seed is None else whole_number(f"{owner}.seed", seed, minimum=0)
        self.fields = TensorFields(
            owner, [[-1, *shape[1:]] for shape in shapes], lod_levels, ["float32"] * len(shapes)
        )
        super().__init__(_Uniform(low, high, shapes, self.fields.variables, seed), self.fields)


class _Uniform(Reader[Instance]):
    def __init__(
        self,
        low: float,
        high: float,
        shapes: Sequence[Sequence[int]],
        variables: Sequence[Variable],
        seed: int | None,
    ) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        super().__init__(
            "random_data_generator", low=low, high=high, shapes=self._shapes, seed=seed
        )
        self._low, self._high, self._seed = np.float32(low), np.float32(high), seed
        self._lods = [
            _one_sequence(variable.lod_level, shape[0])
            for variable, shape in zip(variables, self._shapes, strict=True)
        ]

    def open(self, epoch: int, skip: int) -> Iterator[Instance]:
        entropy = np.random.SeedSequence(self._seed, spawn_key=(epoch,))
        draw = np.random.Generator(np.random.Philox(entropy))
        for _ in range(skip):
            self._instance(draw)
        while True:
            yield self._instance(draw)

    def _instance(self, draw: np.random.Generator) -> Instance:
        return tuple(
            LoDTensor(self._values(draw, shape), lod)
            for shape, lod in zip(self._shapes, self._lods, strict=True)
        )

    def _values(self, draw: np.random.Generator, shape: tuple[int, ...]) -> Any:
        values = draw.random(shape, np.float32)
        values *= self._high - self._low
        values += self._low
        return values

    def unrepeatable(self) -> str | None:
        if self._seed is not None:
            return None
        return "has no seed; pass random_data_generator(..., seed=...)"


def _require_finite(name: str, bound: object) -> None:
    if isinstance(bound, bool) or not isinstance(bound, Real) or not math.isfinite(bound):
        raise FieldError(f"{name} must be a finite number, got {bound!r}")


def _one_sequence(lod_level: int, rows: int) -> list[list[int]]:
    return [*([[0, 1]] * (lod_level - 1)), [0, rows]] if lod_level else []
