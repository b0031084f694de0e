"""Collation: a list of samples becomes one slab's worth of columns, each value written once.

Two passes. The first sizes every field from lengths alone and lays the fields out in one block,
each array 256-byte aligned:

    wire prefix                                                unpacked region
    ┌─────────────┬──────────────┬──────────────┬─────────┬──┬──────────────┬──┐
    │ ids: values │ ids: offsets │ tags: offsets│ indices │ …│ tags: dense  │ …│
    └─────────────┴──────────────┴──────────────┴─────────┴──┴──────────────┴──┘

The second writes each value into its final place in the wire prefix. Kernels fill the unpacked
region (widened, scaled and densified values) where the feed will live. For a device, offsets
travel with the values, as int32 (int64 beyond 2**31 rows); the host keeps its own as int64.

Nothing here allocates the block, or knows where it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gpufeed.columns import DenseColumn, SparseColumn
from gpufeed.device.backend import Array
from gpufeed.device.host import ALIGNMENT
from gpufeed.device.slabs import Lease
from gpufeed.device.staging import MakeArray
from gpufeed.feed import Feed
from gpufeed.loose import LooseColumn
from gpufeed.places import CUDAPlace, Place
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable

__all__ = ["BatchPlan"]

_Section = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype of one array in the block
Samples = Sequence[Any]


class BatchPlan:
    """One batch for one place: sized, laid out, and ready to be written.

    Args:
        variables: The fields, in feed order.
        columns: The samples of each field.
        place: Where the feed will live.
        strict: Whether values are refused that the variable's dtype cannot keep.

    Attributes:
        num_samples: In the batch.
        wire_nbytes: Bytes that travel.
        nbytes: Bytes of the whole slab.

    Raises:
        FieldError: A column cannot be sized.
    """

    def __init__(
        self, variables: Sequence[Variable], columns: Sequence[Samples], place: Place, strict: bool
    ) -> None:
        self.num_samples = len(columns[0])
        self._place = place
        self._shares: list[tuple[str, _Field, slice, slice]] = []
        self._wire: list[_Section] = []
        self._unpacked: list[_Section] = []
        for variable, samples in zip(variables, columns, strict=True):
            make = _SparseField if variable.is_sparse else _DenseField
            field: _Field = make(variable, samples, place, strict)
            wire = slice(len(self._wire), len(self._wire) + len(field.wire))
            unpacked = slice(len(self._unpacked), len(self._unpacked) + len(field.unpacked))
            self._shares.append((variable.name, field, wire, unpacked))
            self._wire += field.wire
            self._unpacked += field.unpacked
        self._wire_starts, self.wire_nbytes = _lay_out(self._wire, 0)
        self._unpacked_starts, self.nbytes = _lay_out(self._unpacked, self.wire_nbytes)

    def wire_arrays(self, make: MakeArray) -> list[Array]:
        """Return the arrays of the wire prefix, made by ``make(offset, shape, dtype)``."""
        return [
            make(start, shape, dtype)
            for start, (shape, dtype) in zip(self._wire_starts, self._wire, strict=True)
        ]

    def unpacked_arrays(self, make: MakeArray) -> list[Array]:
        """Return the arrays of the unpacked region."""
        return [
            make(start, shape, dtype)
            for start, (shape, dtype) in zip(self._unpacked_starts, self._unpacked, strict=True)
        ]

    def write(self, wire: list[Array]) -> None:
        """Write every value, once, into the wire arrays (in host memory).

        Raises:
            FieldError: A value does not fit its variable.
        """
        for _, field, mine, _ in self._shares:
            field.write(wire[mine])

    def unpack(self, wire: list[Array], unpacked: list[Array], stream: object) -> None:
        """Fill the unpacked region from the wire prefix, by kernels on ``stream``."""
        for _, field, mine, targets in self._shares:
            for target in unpacked[targets]:
                field.unpack(wire[mine], target, stream)

    def feed(self, wire: list[Array], unpacked: list[Array], lease: Lease) -> Feed:
        """Return what the user gets: tensors over these arrays."""
        feed = Feed(self._place)
        for name, field, mine, targets in self._shares:
            feed[name] = field.tensor(wire[mine], unpacked[targets], self._place, lease)
        return feed


def _lay_out(sections: list[_Section], start: int) -> tuple[list[int], int]:
    """Return the byte at which each array starts, and where the last one ends."""
    starts = []
    for shape, dtype in sections:
        starts.append(start)
        start += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return starts, start


def _index_dtype(largest: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if largest < 2**31 else np.int64)


class _Field(Protocol):
    """One field of a plan. ``wire`` and ``unpacked`` say which arrays it needs, in this order."""

    wire: list[_Section]
    unpacked: list[_Section]

    def __init__(
        self, variable: Variable, samples: Samples, place: Place, strict: bool
    ) -> None: ...

    def write(self, wire: list[Array]) -> None: ...

    def unpack(self, wire: list[Array], out: Array, stream: object) -> None: ...

    def tensor(
        self, wire: list[Array], unpacked: list[Array], place: Place, lease: Lease
    ) -> LoDTensor | SparseRows: ...


class _DenseField:
    """Wire: values, then (for a device) the offsets of each level. Unpacked: converted values."""

    def __init__(self, variable: Variable, samples: Samples, place: Place, strict: bool) -> None:
        self._variable = variable
        dtype = variable.wire_dtype or variable.dtype
        self._column: DenseColumn | LooseColumn = (
            DenseColumn(variable, samples) if strict else LooseColumn(variable, samples, dtype)
        )
        self.wire: list[_Section] = [(self._column.shape, dtype)]
        if isinstance(place, CUDAPlace):
            self.wire += _offset_sections(self._column.offsets)
        self.unpacked: list[_Section] = []
        if variable.is_converted:
            self.unpacked.append((self._column.shape, variable.dtype))

    def write(self, wire: list[Array]) -> None:
        self._column.write(wire[0])
        for out, offsets in zip(wire[1:], self._column.offsets, strict=False):
            out[...] = offsets

    def unpack(self, wire: list[Array], out: Array, stream: object) -> None:
        from gpufeed.kernels import convert_values

        convert_values(wire[0], self._variable.scale, self._variable.shift, out, stream=stream)

    def tensor(
        self, wire: list[Array], unpacked: list[Array], place: Place, lease: Lease
    ) -> LoDTensor:
        data = unpacked[0] if unpacked else wire[0]
        return LoDTensor._assemble(data, self._column.offsets, place, wire[1:] or None, lease)


class _SparseField:
    """Wire: row offsets, indices, values if any, LoD offsets. Unpacked: dense rows."""

    def __init__(self, variable: Variable, samples: Samples, place: Place, strict: bool) -> None:
        self._variable = variable
        self._column = SparseColumn(variable, samples)
        row_offsets = self._column.row_offsets
        num_rows, num_entries = len(row_offsets) - 1, int(row_offsets[-1])
        on_device = isinstance(place, CUDAPlace)
        self.wire: list[_Section] = [
            (row_offsets.shape, _index_dtype(num_entries) if on_device else row_offsets.dtype),
            ((num_entries,), _index_dtype(variable.dim)),
        ]
        self._has_values = variable.layout == "sparse_float"
        if self._has_values:
            self.wire.append(((num_entries,), variable.dtype))
        self._num_arrays = len(self.wire)
        if on_device:
            self.wire += _offset_sections(self._column.offsets)
        self.unpacked: list[_Section] = []
        if variable.densify:
            self.unpacked.append(((num_rows, variable.dim), variable.dtype))

    def write(self, wire: list[Array]) -> None:
        wire[0][...] = self._column.row_offsets
        self._column.write_indices(wire[1])
        if self._has_values:
            self._column.write_values(wire[2])
        for out, offsets in zip(wire[self._num_arrays :], self._column.offsets, strict=False):
            out[...] = offsets

    def unpack(self, wire: list[Array], out: Array, stream: object) -> None:
        from gpufeed.kernels import densify_rows

        densify_rows(wire[0], wire[1], wire[2] if self._has_values else None, out, stream=stream)

    def tensor(
        self, wire: list[Array], unpacked: list[Array], place: Place, lease: Lease
    ) -> LoDTensor | SparseRows:
        lod = self._column.offsets
        if unpacked:
            on_place = wire[self._num_arrays :] or None
            return LoDTensor._assemble(unpacked[0], lod, place, on_place, lease)
        values = wire[2] if self._has_values else None
        return SparseRows._assemble(wire[0], wire[1], values, self._variable.dim, lod, place, lease)


def _offset_sections(levels: Sequence[np.ndarray[Any, Any]]) -> list[_Section]:
    return [(offsets.shape, _index_dtype(int(offsets[-1]))) for offsets in levels]
