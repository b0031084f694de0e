"""What `LoDTensor` and `SparseRows` share: rows that a LoD cuts into nested sequences.

Knows offsets, places and leases, never what a row is. The offsets live on the host; a second,
narrow copy of them lives with the rows, for kernels.

Lifetime: rows may be views into memory that a feeder wants back. The lease says until when, so
every object made from views of another one carries its lease on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import index as as_index
from typing import Any, Literal, Self, TypeAlias

import numpy as np

import gpufeed.lod as offset_math
from gpufeed.checks import whole_number
from gpufeed.device import array_module, transfer, working_on
from gpufeed.device.backend import Array
from gpufeed.device.slabs import Lease
from gpufeed.errors import FieldError, LoDError, PlaceError
from gpufeed.kernels import mask_rows, number_rows
from gpufeed.kernels.checks import VALUE_DTYPES
from gpufeed.lod import LoD, Offsets, index_dtype
from gpufeed.places import CPUPlace, Place
from gpufeed.split import SplitPolicy, split_points

__all__ = ["Ragged", "Side", "is_second", "require_kernel_dtype"]

Side: TypeAlias = Literal["right", "left"]


class Ragged(ABC):
    """Rows packed end to end, and the offsets that cut them into sequences.

    A subclass says what its rows are in the abstract methods; the rest is said here once.
    """

    __slots__ = ("__weakref__", "_lease", "_lod", "_lod_on_place", "_place")

    _lod: LoD
    _place: Place
    # The offsets where the rows are, int32 while they fit; None until somebody asks.
    _lod_on_place: Sequence[Array] | None
    _lease: Lease | None

    @abstractmethod
    def _num_rows(self) -> int:
        """Return how many rows there are."""

    @abstractmethod
    def _window(self, begin: int, end: int, lod: LoD) -> Self:
        """Return rows ``begin:end`` as views, under another LoD."""

    @abstractmethod
    def _gather(self, rows: Offsets, lod: LoD) -> Self:
        """Return a copy of the given rows, under another LoD."""

    @abstractmethod
    def _entry(self, begin: int, end: int, lod: LoD) -> Any:
        """Return one entry of the top level: rows ``begin:end`` and the LoD below it."""

    @abstractmethod
    def _sample(self, row: int) -> Any:
        """Return one row, which is what an entry is where there is no LoD."""

    @classmethod
    @abstractmethod
    def _join(cls, parts: Sequence[Self], lod: LoD) -> Self:
        """Return the rows of all parts, copied end to end, under another LoD."""

    @property
    def place(self) -> Place:
        """Where the rows are."""
        return self._place

    @property
    def lod_level(self) -> int:
        """How many levels of sequences there are; 0 for plain rows."""
        return len(self._lod)

    def lod(self) -> list[list[int]]:
        """Return the offsets of every level, the top level first."""
        return [level.tolist() for level in self._lod]

    def set_lod(self, lod: object) -> None:
        """Replace the LoD by offset lists, one a level; ``[]`` clears it.

        Raises:
            LoDError: They do not describe the rows.
        """
        self._set_lod(offset_math.from_offsets(lod, self._rows_to_cover(), self._owner("lod")))

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Return the sequence lengths of every level, the top level first."""
        return [level.tolist() for level in offset_math.to_lengths(self._lod)]

    def set_recursive_sequence_lengths(self, lengths: object) -> None:
        """Replace the LoD by sequence lengths, one list a level; ``[]`` clears it.

        Raises:
            LoDError: They do not describe the rows.
        """
        owner = self._owner("recursive_sequence_lengths")
        self._set_lod(offset_math.from_lengths(lengths, self._rows_to_cover(), owner))

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Return whether the LoD describes the rows, which `LoDTensor.set` can change."""
        try:
            offset_math.check(self._lod, self._rows_to_cover())
        except LoDError:
            return False
        return True

    def __len__(self) -> int:
        """Return the number of samples: top-level sequences, or rows where there is no LoD."""
        return offset_math.num_entries(self._lod, self._num_rows())

    def __getitem__(self, index: Any) -> Any:
        """Return one sample, or the samples of a slice, a list of numbers or a mask.

        A sample has one LoD level less. A slice with step 1 is a view; the others are copies, in
        the order that is asked for.

        >>> from gpufeed.tensor import LoDTensor
        >>> t = LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]])
        >>> t[0].tolist(), t[[2, 0, 0]].to_list(), t[::-1].to_list()
        ([7, 8], [[9], [7, 8], [7, 8]], [[9], [], [7, 8]])

        Raises:
            IndexError: There is no such sample, or the list is neither of numbers nor a mask.
        """
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if step == 1:
                return self._between(begin, max(begin, end))
            return self._picked(np.arange(begin, end, step))
        if isinstance(index, (list, np.ndarray)):
            return self._picked(self._numbers(index))
        size = len(self)
        try:
            number = as_index(index)
        except TypeError:
            raise TypeError(
                f"{self._owner('index')} must be a number, a slice, a list of numbers or a mask, "
                f"got {index!r:.80}"
            ) from None
        if not -size <= number < size:
            raise IndexError(f"{self._owner('index')} must be in [{-size}, {size}), got {number}")
        lod = self._fitting()
        if not lod:
            return self._sample(number % size)
        begin, end = lod[0][number % size : number % size + 2].tolist()
        below, begin, end = offset_math.slice_level(lod[1:], begin, end)
        return self._entry(begin, end, below)

    def __iter__(self) -> Iterator[Any]:
        lod = self._fitting()
        if not lod:
            for row in range(len(self)):
                yield self._sample(row)
            return
        for begin, end in pairwise(lod[0].tolist()):
            below, first, last = offset_math.slice_level(lod[1:], begin, end)
            yield self._entry(first, last, below)

    def split(self, n: int, policy: SplitPolicy = "ceil") -> list[Self]:
        """Return the samples in order as parts for up to ``n`` devices, as views.

        >>> from gpufeed.tensor import LoDTensor
        >>> t = LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]])
        >>> [part.to_list() for part in t.split(2)]
        [[[7, 8], []], [[9]]]

        Args:
            n: Number of devices, at least 1. There are fewer parts than that where there are
                fewer samples, and ``n`` empty parts where there are none.
            policy: ``"ceil"``, ``"floor"`` or ``"tokens"``, see `gpufeed.split.split_points`.

        Raises:
            FieldError: ``n`` or ``policy`` is none of these.
        """
        lod = self._fitting()
        rows = offset_math.absolute(lod) if lod else np.arange(self._num_rows() + 1)
        return [self._between(begin, end) for begin, end in pairwise(split_points(rows, n, policy))]

    @classmethod
    def merge(cls, parts: Iterable[Self]) -> Self:
        """Return the parts end to end, as a copy: the inverse of `split`.

        >>> from gpufeed.tensor import LoDTensor
        >>> a, b = LoDTensor([7, 8], lod=[[0, 2]]), LoDTensor([9], lod=[[0, 0, 1]])
        >>> LoDTensor.merge([a, b]).to_list()
        [[7, 8], [], [9]]

        Parts without rows and LoD are left out, wherever they stand.

        Raises:
            FieldError: There are no parts, or they are not of one kind.
            LoDError: They differ in their number of LoD levels.
            PlaceError: They are on different places.
        """
        parts = list(parts)
        if not parts or not all(isinstance(part, cls) for part in parts):
            kinds = ", ".join(type(part).__name__ for part in parts) or "none"
            raise FieldError(f"{cls.__name__}.parts must be of this type, got {kinds}")
        places = {part.place for part in parts}
        if len(places) > 1:
            got = ", ".join(sorted(map(str, places)))
            raise PlaceError(
                f"{cls.__name__}.parts must be on one place, got {got}; use part.to(place)"
            )
        for part in parts:
            part._fitting()
        filled = [part for part in parts if part._num_rows() or part.lod_level] or parts[:1]
        levels = [part.lod_level for part in filled]
        if len(set(levels)) > 1:
            raise LoDError(f"{cls.__name__}.parts must have equally many LoD levels, got {levels}")
        return cls._join(filled, offset_math.concatenate([part._lod for part in filled]))

    def cu_seqlens(self, level: int = -1) -> Array:
        """Return where each sequence's rows begin, as variable-length attention takes it.

        >>> from gpufeed.tensor import LoDTensor
        >>> t = LoDTensor([7, 8, 9], lod=[[0, 1, 3], [0, 2, 2, 3]])
        >>> t.cu_seqlens(), t.cu_seqlens(level=0)
        (array([0, 2, 2, 3], dtype=int32), array([0, 2, 3], dtype=int32))

        Args:
            level: Whose sequences; of an upper level too, the offsets count rows.

        Returns:
            ``(sequences + 1,)`` int32 (int64 beyond 2**31 - 1 rows), on this object's place.

        Raises:
            LoDError: There is no such level.
        """
        level = self._level(level)
        if self._lod_on_place is None:
            narrow = index_dtype(self._num_rows())
            self._lod_on_place = tuple(
                transfer(offsets.astype(narrow), CPUPlace(), self._place) for offsets in self._lod
            )
        if level == len(self._lod) - 1:
            return self._lod_on_place[level]  # a view, for which nothing has to be waited for
        with working_on(self._place):
            return offset_math.absolute(tuple(self._lod_on_place), level)

    def max_seqlen(self, level: int = -1) -> int:
        """Return the most rows that a sequence of a level has; 0 where there is none."""
        level = self._level(level)
        return int(np.diff(offset_math.absolute(self._lod, level)).max(initial=0))

    def segment_ids(self, level: int = -1) -> Array:
        """Return, for every row, the number of its sequence: ``(rows,)`` int64, on this place.

        >>> from gpufeed.tensor import LoDTensor
        >>> t = LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]])
        >>> t.segment_ids(), t.positions()
        (array([0, 0, 2]), array([0, 1, 0]))

        Args:
            level: Whose sequences are numbered.

        Raises:
            LoDError: There is no such level.
        """
        return self._numbered(level, restarts=False)

    def positions(self, level: int = -1) -> Array:
        """Return, for every row, its place in its sequence, from 0 on; see `segment_ids`."""
        return self._numbered(level, restarts=True)

    def _numbered(self, level: int, *, restarts: bool) -> Array:
        offsets = self.cu_seqlens(level)
        with working_on(self._place):
            numbers = array_module(offsets).empty(self._num_rows(), np.int64)
            number_rows(offsets, numbers, restarts=restarts)
        return numbers

    def mask(self, max_length: int | None = None, *, side: Side = "right") -> Array:
        """Return which cells of the padded form are rows: ``(sequences, max_length)`` bool.

        >>> from gpufeed.tensor import LoDTensor
        >>> LoDTensor([7, 8, 9], lod=[[0, 2, 3]]).mask(side="left").tolist()
        [[True, True], [False, True]]

        Args:
            max_length: Width; None takes the longest sequence.
            side: Of a short sequence on which it is padded: ``"right"`` or ``"left"``.

        Raises:
            FieldError: ``max_length`` is not a whole number >= 0, or ``side`` is no side.
            LoDError: There is no LoD.
        """
        pads_left = is_second(self._owner("mask.side"), side, ("right", "left"))
        offsets = self.cu_seqlens()
        width = self._width(max_length)
        with working_on(self._place):
            cells = array_module(offsets).empty((len(offsets) - 1, width), bool)
            mask_rows(offsets, cells, pads_left=pads_left)
        return cells

    def record_stream(self, stream: Any) -> None:
        """Keep the memory of this object until the work now queued on ``stream`` is done.

        Needed for streams other than the one that was current when the feed was taken. No-op on
        objects that own their memory.
        """
        if self._lease is not None:
            self._lease.record_stream(stream)

    def _owner(self, argument: str) -> str:
        return f"{type(self).__name__}.{argument}"

    def _rows_to_cover(self) -> int | None:
        """Return how many rows a LoD has to describe; None where that is still open."""
        return self._num_rows()

    def _set_lod(self, lod: LoD) -> None:
        self._lod = lod
        self._lod_on_place = None

    def _fitting(self) -> LoD:
        """Return the LoD, if it still covers the rows: kernels trust it."""
        if self._lod and self._lod[-1][-1] != self._num_rows():
            offset_math.check(self._lod, self._num_rows(), self._owner("lod"))
        return self._lod

    def _level(self, level: int) -> int:
        levels = len(self._fitting())
        if not levels:
            raise LoDError(f"{self._owner('lod')} must have a level for this, got []")
        level = whole_number(self._owner("level"), level, error=LoDError)
        if not -levels <= level < levels:
            raise LoDError(f"{self._owner('level')} must be in [{-levels}, {levels}), got {level}")
        return level % levels

    def _width(self, max_length: int | None) -> int:
        """Return how wide the padded form is."""
        if max_length is None:
            return self.max_seqlen()
        return whole_number(self._owner("max_length"), max_length, minimum=0)

    def _between(self, begin: int, end: int) -> Self:
        lod = self._fitting()
        below, first, last = offset_math.slice_level(lod, begin, end)
        return self._window(first, last, below)

    def _picked(self, numbers: Offsets) -> Self:
        below, rows = offset_math.take(self._fitting(), numbers)
        return self._gather(rows, below)

    def _numbers(self, index: Any) -> Offsets:
        """Return a list of sample numbers, or a mask over the samples, as numbers >= 0."""
        size, asked = len(self), np.asarray(index)
        if asked.dtype == bool and asked.shape == (size,):
            return np.flatnonzero(asked)
        if asked.ndim != 1 or (asked.size and asked.dtype.kind not in "iu"):
            raise IndexError(
                f"{self._owner('index')} must be a flat list of numbers or a mask of {size} "
                f"samples, got {index!r:.80}"
            )
        numbers = asked.astype(np.int64)
        outside = (numbers < -size) | (numbers >= size)
        if outside.any():
            got = numbers[outside][0]
            raise IndexError(f"{self._owner('index')} must be in [{-size}, {size}), got {got}")
        return numbers % size if size else numbers


def require_kernel_dtype(owner: str, dtype: np.dtype[Any]) -> None:
    """Refuse values that can be kept, but that kernels do not know.

    Raises:
        FieldError: ``dtype`` is unsigned of more than 8 bits, complex, or a long double.
    """
    if dtype not in VALUE_DTYPES:
        known = ", ".join(map(str, VALUE_DTYPES))
        raise FieldError(f"{owner} must be of dtype {known}, got {dtype}")


def is_second(argument: str, given: object, choices: tuple[str, str]) -> bool:
    """Return whether the second of two choices was made.

    Raises:
        FieldError: Neither was.
    """
    if given not in choices:
        raise FieldError(f"{argument} must be {choices[0]!r} or {choices[1]!r}, got {given!r}")
    return given == choices[1]
