"""What can be done with packed rows sequence by sequence: padded, reversed, repeated, joined.

The base of `gpufeed.tensor.LoDTensor`, which adds what a tensor is besides. Each of these is one
pass over the rows, by a kernel, where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, TypeAlias

import numpy as np

import gpufeed.lod as offset_math
from gpufeed.device import array_module, transfer, working_on
from gpufeed.device.backend import Array
from gpufeed.device.slabs import Lease
from gpufeed.errors import FieldError, LoDError
from gpufeed.interop.dlpack import as_array
from gpufeed.kernels import gather_sequences, pad_rows, unpad_rows
from gpufeed.kernels.checks import VALUE_DTYPES, can_fill
from gpufeed.lod import LoD, Offsets, index_dtype
from gpufeed.places import CPUPlace, Place
from gpufeed.ragged import Ragged, Side, is_second, require_kernel_dtype

__all__ = ["Sequences"]

Keep: TypeAlias = Literal["start", "end"]


class Sequences(Ragged):
    """Packed rows of numbers, ``(rows, *item)``, and the offsets that cut them."""

    __slots__ = ("_data",)

    _data: Array

    @classmethod
    def _assemble(
        cls,
        data: Array,
        lod: Sequence[Offsets],
        place: Place,
        lod_on_place: Sequence[Array] | None = None,
        lease: Lease | None = None,
    ) -> Self:
        """Return a tensor of parts that are known to fit; nothing is checked or copied."""
        self = object.__new__(cls)
        self._data = data
        self._lod = tuple(lod)
        self._place = place
        self._lod_on_place = lod_on_place
        self._lease = lease
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``data``; ``(0,)`` before data is set."""
        return tuple(self._data.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        kind: np.dtype[Any] = self._data.dtype
        return kind

    def to_padded(
        self,
        pad_value: float = 0,
        max_length: int | None = None,
        *,
        side: Side = "right",
        keep: Keep = "start",
    ) -> tuple[Array, Array]:
        """Return the lowest level's sequences as a rectangle, and their lengths.

        >>> from gpufeed.tensor import LoDTensor
        >>> LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]]).to_padded(pad_value=-1)
        (array([[ 7,  8],
               [-1, -1],
               [ 9, -1]]), array([2, 0, 1]))

        Args:
            pad_value: Fills the cells that are no rows.
            max_length: Width; longer sequences are cut off. None takes the longest one.
            side: Of a short sequence on which it is padded: ``"right"`` or ``"left"``.
            keep: What of a long sequence is kept: its ``"start"`` or its ``"end"``.

        Returns:
            ``(sequences, max_length, *item)`` in this tensor's dtype, and ``(sequences,)`` int64;
            both on this tensor's place.

        Raises:
            FieldError: ``pad_value`` does not fit the dtype, ``max_length`` is no width, ``side``
                or ``keep`` is none of these, or the dtype is one that no kernel takes.
            LoDError: This tensor has no LoD.
        """
        require_kernel_dtype("LoDTensor.to_padded", self.dtype)
        pads_left = is_second("LoDTensor.to_padded.side", side, ("right", "left"))
        keeps_end = is_second("LoDTensor.to_padded.keep", keep, ("start", "end"))
        if not can_fill(pad_value, self.dtype):
            raise FieldError(
                f"LoDTensor.pad_value must be a number that {self.dtype} can hold, "
                f"got {pad_value!r}"
            )
        offsets = self.cu_seqlens()
        width = self._width(max_length)
        xp = array_module(self._data)
        with working_on(self._place):
            padded = xp.empty((len(offsets) - 1, width, *self.shape[1:]), self.dtype)
            rows = xp.ascontiguousarray(self._data)
            fill = self.dtype.type(pad_value)
            pad_rows(rows, offsets, fill, padded, pads_left=pads_left, keeps_end=keeps_end)
            lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
            return padded, lengths.clip(max=width)

    @classmethod
    def from_padded(
        cls, padded: object, lengths: object, *, upper_lod: object = (), side: Side = "right"
    ) -> Self:
        """Return the rows of a rectangle: the inverse of `to_padded`.

        >>> from gpufeed.tensor import LoDTensor
        >>> LoDTensor.from_padded([[7, 8], [0, 0], [9, 0]], [2, 0, 1]).to_list()
        [[7, 8], [], [9]]

        Args:
            padded: ``(sequences, max_length, *item)``, an array on any place.
            lengths: ``(sequences,)`` whole numbers in ``[0, max_length]``, on any place.
            upper_lod: Offsets of the levels above, which cut the sequences.
            side: On which the sequences are padded: ``"right"`` or ``"left"``.

        Raises:
            FieldError: ``padded`` has no second dimension, or a dtype that `to_padded` refuses.
            LoDError: The lengths do not fit it, or ``upper_lod`` does not fit them.
        """
        pads_left = is_second("LoDTensor.from_padded.side", side, ("right", "left"))
        cells, place = as_array(padded, "LoDTensor.from_padded.padded")
        require_kernel_dtype("LoDTensor.from_padded.padded", cells.dtype)
        if cells.ndim < 2:
            raise FieldError(
                "LoDTensor.from_padded.padded must be (sequences, max_length, ...), "
                f"got shape {tuple(cells.shape)}"
            )
        upper = offset_math.from_offsets(upper_lod, cells.shape[0], "LoDTensor.upper_lod")
        (offsets,) = _offsets_of(lengths, "LoDTensor.lengths")
        longest = np.diff(offsets).max(initial=0)
        if len(offsets) - 1 != cells.shape[0] or longest > cells.shape[1]:
            raise LoDError(
                f"LoDTensor.lengths must be {cells.shape[0]} numbers up to {cells.shape[1]}, "
                f"got {len(offsets) - 1} up to {longest}"
            )
        with working_on(place):
            xp = array_module(cells)
            rows = xp.empty((int(offsets[-1]), *cells.shape[2:]), cells.dtype)
            tensor = cls._assemble(rows, (*upper, offsets), place)
            cells = xp.ascontiguousarray(cells)
            unpad_rows(cells, tensor.cu_seqlens(), rows, pads_left=pads_left)
        return tensor

    def first_step(self, pad_value: float = 0) -> Array:
        """Return the first row of each of the lowest level's sequences.

        >>> from gpufeed.tensor import LoDTensor
        >>> t = LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]])
        >>> t.first_step(pad_value=-1).tolist(), t.last_step().tolist()
        ([7, -1, 9], [8, 0, 9])

        Args:
            pad_value: Stands for the row of an empty sequence.

        Returns:
            ``(sequences, *item)``, on this tensor's place.

        Raises:
            FieldError: ``pad_value`` does not fit the dtype, or that is one that no kernel takes.
            LoDError: This tensor has no LoD.
        """
        return self.to_padded(pad_value, 1)[0][:, 0]

    def last_step(self, pad_value: float = 0) -> Array:
        """Return the last row of each of the lowest level's sequences; see `first_step`."""
        return self.to_padded(pad_value, 1, keep="end")[0][:, 0]

    def reverse(self) -> Self:
        """Return the lowest level's sequences with their rows last to first, as a copy.

        >>> from gpufeed.tensor import LoDTensor
        >>> LoDTensor([7, 8, 9], lod=[[0, 2, 3]]).reverse().to_list()
        [[8, 7], [9]]

        Raises:
            FieldError: The dtype is one that no kernel takes.
            LoDError: This tensor has no LoD.
        """
        self._level(-1)
        return self._sequences(np.arange(len(self._lod[-1]) - 1), self._lod, is_reversed=True)

    def expand(self, repeats: object) -> Self:
        """Return each sample several times, one after the other, as a copy.

        >>> from gpufeed.tensor import LoDTensor
        >>> LoDTensor([7, 8, 9], lod=[[0, 2, 3]]).expand([2, 1]).to_list()
        [[7, 8], [7, 8], [9]]
        >>> LoDTensor([7, 8]).expand([0, 3]).to_list()
        [8, 8, 8]

        Args:
            repeats: ``(samples,)`` whole numbers, on any place; to repeat one tensor's samples as
                another's sequences are long, ``other.recursive_sequence_lengths()[0]``.

        Raises:
            LoDError: ``repeats`` is something else, or not as many.
        """
        (offsets,) = _offsets_of(repeats, "LoDTensor.repeats")
        if len(offsets) - 1 != len(self):
            raise LoDError(f"LoDTensor.repeats must be {len(self)} numbers, got {len(offsets) - 1}")
        return self._picked(offset_math.segment_ids(offsets))

    @classmethod
    def concat(cls, parts: Iterable[Self]) -> Self:
        """Return, for each sample, what the parts have of it end to end, as a copy.

        Unlike `merge`, which lays samples after samples.

        >>> from gpufeed.tensor import LoDTensor
        >>> a, b = LoDTensor([1, 2, 3], lod=[[0, 2, 3]]), LoDTensor([8, 9], lod=[[0, 1, 2]])
        >>> LoDTensor.concat([a, b]).to_list()
        [[1, 2, 8], [3, 9]]

        Raises:
            FieldError: There are no parts, or they are not of one kind.
            LoDError: They differ in their number of samples or LoD levels, or have no LoD.
            PlaceError: They are on different places.
        """
        parts = list(parts)
        merged = cls.merge(parts)
        sizes = [len(part) for part in parts]
        if len(set(sizes)) > 1 or not all(part.lod_level for part in parts):
            raise LoDError(
                "LoDTensor.parts must have a LoD and equally many samples, "
                f"got {sizes} samples under {[part.lod_level for part in parts]} levels"
            )
        numbers = np.arange(len(merged)).reshape(len(parts), -1).T.reshape(-1)
        joined = merged._picked(numbers)
        joined._set_lod((joined._lod[0][:: len(parts)], *joined._lod[1:]))
        return joined

    def _picked(self, numbers: Offsets) -> Self:
        lod = self._fitting()
        if not lod or self.dtype not in VALUE_DTYPES:
            return super()._picked(numbers)
        # Whole sequences are copied, which is faster than row by row.
        upper, sequences = offset_math.take(lod[:-1], numbers)
        lengths = (lod[-1][1:] - lod[-1][:-1])[sequences]
        return self._sequences(sequences, (*upper, offset_math.offsets_of(lengths)))

    def _sequences(self, sequences: Offsets, lod: LoD, *, is_reversed: bool = False) -> Self:
        """Return a copy of the given sequences of the lowest level, under another LoD."""
        require_kernel_dtype("LoDTensor: the values", self.dtype)
        offsets = self.cu_seqlens()
        with working_on(self._place):
            xp = array_module(self._data)
            rows = xp.empty((int(lod[-1][-1]), *self.shape[1:]), self.dtype)
            taken = self._assemble(rows, lod, self._place)
            dtype = np.promote_types(offsets.dtype, index_dtype(len(rows)))
            gather_sequences(
                xp.ascontiguousarray(self._data),
                offsets.astype(dtype, copy=False),
                xp.asarray(sequences, dtype),
                taken.cu_seqlens().astype(dtype, copy=False),
                rows,
                is_reversed=is_reversed,
            )
        return taken


def _offsets_of(lengths: object, owner: str) -> LoD:
    """Return the offsets of a list, or a flat array on any place, as a LoD of one level."""
    if not isinstance(lengths, (list, tuple)):
        array, place = as_array(lengths, owner)
        lengths = transfer(array, place, CPUPlace())
    return offset_math.from_lengths([lengths], owner=owner)
