"""Tensors from nested lists and lengths, and lists of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, overload

import numpy as np
import numpy.typing as npt

import gpufeed.lod as offset_math
from gpufeed.checks import whole_number
from gpufeed.errors import FieldError, LoDError
from gpufeed.places import PlaceLike, as_place
from gpufeed.tensor import LoDTensor

__all__ = ["LoDTensorArray", "create_lod_tensor", "create_random_int_lodtensor"]


def create_lod_tensor(
    data: LoDTensor | npt.NDArray[Any] | list[Any],
    recursive_seq_lens: Sequence[Sequence[int]],
    place: PlaceLike,
) -> LoDTensor:
    """Return rows, cut into sequences of the given lengths, as a tensor on ``place``.

    >>> t = create_lod_tensor([[1, 2], [], [3]], [[2, 0, 1]], "cpu")
    >>> t.shape, t.lod()
    ((3, 1), [[0, 2, 2, 3]])

    Args:
        data: An array of rows, taken as it is; a tensor, whose rows are copied; or a list nested
            as deep as there are levels, whose innermost items become rows of at least one number.
        recursive_seq_lens: Sequence lengths, one list a level, the top level first.
        place: Where the tensor goes.

    Raises:
        FieldError: The data is not a rectangle of numbers.
        LoDError: The lengths do not describe the data.
        TypeError: ``data`` is none of these.

    Source: ``fluid.create_lod_tensor``. Its lists have one level and scalars only.
    """
    target = as_place(place)
    if isinstance(data, LoDTensor):
        tensor = LoDTensor(place=target)
        tensor.set(data.data)
    elif isinstance(data, np.ndarray):
        tensor = LoDTensor(data, place=target)
    elif isinstance(data, list):
        tensor = LoDTensor(_pack(data, recursive_seq_lens), place=target)
    else:
        raise TypeError("data should be either a LoDTensor, a Numpy array or a list")
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]],
    base_shape: Sequence[int],
    place: PlaceLike,
    low: int,
    high: int,
    *,
    seed: int | None = None,
) -> LoDTensor:
    """Return sequences of random int64 rows, drawn from ``low`` to ``high``, both included.

    >>> create_random_int_lodtensor([[2, 3]], [1], "cpu", 0, 9).shape
    (5, 1)

    Args:
        recursive_seq_lens: Sequence lengths, one list a level, the top level first.
        base_shape: Shape of one row.
        place: Where the tensor goes.
        low: Smallest number.
        high: Largest number.
        seed: Makes the numbers repeatable.

    Raises:
        FieldError: ``low > high``, or ``base_shape`` is no shape.
        LoDError: The lengths do not fit each other.
    """
    if not isinstance(base_shape, (list, tuple)):
        raise FieldError(
            f"create_random_int_lodtensor.base_shape should be a list, got {base_shape!r}"
        )
    if low > high:
        raise FieldError(f"create_random_int_lodtensor.low must be <= high, got {low} > {high}")
    owner = "create_random_int_lodtensor.base_shape"
    item = [whole_number(owner, size, minimum=0) for size in base_shape]
    lod = offset_math.from_lengths(recursive_seq_lens, owner="recursive_seq_lens")
    rows = int(lod[-1][-1]) if lod else 1
    numbers = np.random.default_rng(seed).integers(low, high, (rows, *item), endpoint=True)
    tensor = LoDTensor(numbers, place=place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


class LoDTensorArray(Sequence[LoDTensor]):
    """A list that holds tensors only.

    >>> array = LoDTensorArray()
    >>> array.append(LoDTensor([1, 2]))
    >>> len(array), array[0].shape
    (1, (2,))
    """

    def __init__(self, tensors: Iterable[LoDTensor] = ()) -> None:
        self._tensors: list[LoDTensor] = []
        for tensor in tensors:
            self.append(tensor)

    def append(self, tensor: LoDTensor) -> None:
        """Put a tensor at the end.

        Raises:
            FieldError: It is something else.
        """
        if not isinstance(tensor, LoDTensor):
            raise FieldError(
                f"LoDTensorArray.append.tensor must be a LoDTensor, got {type(tensor).__name__}"
            )
        self._tensors.append(tensor)

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[LoDTensor]:
        return iter(self._tensors)

    @overload
    def __getitem__(self, index: int) -> LoDTensor: ...
    @overload
    def __getitem__(self, index: slice) -> LoDTensorArray: ...
    def __getitem__(self, index: int | slice) -> LoDTensor | LoDTensorArray:
        if isinstance(index, slice):
            return LoDTensorArray(self._tensors[index])
        return self._tensors[index]

    def __repr__(self) -> str:
        return f"LoDTensorArray({self._tensors!r})"


def _pack(data: list[Any], lengths: Sequence[Sequence[int]]) -> npt.NDArray[Any]:
    """Return the innermost items of nested lists as rows, once their lengths are as announced."""
    items: Any = data
    for number, level in enumerate(lengths):
        try:
            found = [len(item) for item in items]
        except TypeError as error:
            raise LoDError(
                f"data and recursive_seq_lens do not match: data is nested {number} deep, "
                f"got {len(lengths)} levels of lengths"
            ) from error
        if found != list(level):
            raise LoDError(
                f"data and recursive_seq_lens do not match: level {number} of data has lengths "
                f"{found!r:.80}, got {level!r:.80}"
            )
        items = list(chain.from_iterable(items))
    if not items:
        return np.empty((0, 1), np.int64)
    try:
        rows = np.asarray(items)
    except ValueError as error:
        raise FieldError(
            f"create_lod_tensor.data must be rectangular below its LoD: {error}"
        ) from error
    return rows.reshape(-1, 1) if rows.ndim == 1 else rows
