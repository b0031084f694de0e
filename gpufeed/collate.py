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

Section = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype of one array in the block
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
        self._names = [variable.name for variable in variables]
        self._fields: list[_Field] = [
            (_SparseField if variable.is_sparse else _DenseField)(variable, samples, place, strict)
            for variable, samples in zip(variables, columns, strict=True)
        ]
        self._wire, self.wire_nbytes = _lay_out([f.wire for f in self._fields], 0)
        self._unpacked, self.nbytes = _lay_out([f.unpacked for f in self._fields], self.wire_nbytes)

    def wire_arrays(self, make: MakeArray) -> list[Array]:
        """Return the arrays of the wire prefix, made by ``make(offset, shape, dtype)``."""
        return [make(*section) for section in self._wire]

    def unpacked_arrays(self, make: MakeArray) -> list[Array]:
        """Return the arrays of the unpacked region."""
        return [make(*section) for section in self._unpacked]

    def write(self, wire: list[Array]) -> None:
        """Write every value, once, into the wire arrays (in host memory).

        Raises:
            FieldError: A value does not fit its variable.
        """
        start = 0
        for field in self._fields:
            field.write(wire[start : start + len(field.wire)])
            start += len(field.wire)

    def unpack(self, wire: list[Array], unpacked: list[Array], stream: object) -> None:
        """Fill the unpacked region from the wire prefix, by kernels on ``stream``."""
        for field, mine, targets in self._shares(wire, unpacked):
            if targets:
                field.unpack(mine, targets[0], stream)

    def feed(self, wire: list[Array], unpacked: list[Array], lease: Lease) -> Feed:
        """Return what the user gets: tensors over these arrays."""
        feed = Feed(self._place)
        for name, (field, mine, targets) in zip(
            self._names, self._shares(wire, unpacked), strict=True
        ):
            feed[name] = field.tensor(mine, targets, self._place, lease)
        return feed

    def _shares(
        self, wire: list[Array], unpacked: list[Array]
    ) -> list[tuple[_Field, list[Array], list[Array]]]:
        """Return each field with its own arrays."""
        shares = []
        start = target = 0
        for field in self._fields:
            stop, end = start + len(field.wire), target + len(field.unpacked)
            shares.append((field, wire[start:stop], unpacked[target:end]))
            start, target = stop, end
        return shares


def _lay_out(
    fields: list[list[Section]], start: int
) -> tuple[list[tuple[int, tuple[int, ...], np.dtype[Any]]], int]:
    """Return the byte offset, shape and dtype of every section, and where the last one ends."""
    sections = []
    for field in fields:
        for shape, dtype in field:
            sections.append((start, shape, dtype))
            nbytes = math.prod(shape) * dtype.itemsize
            start += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return sections, start


def _index_dtype(largest: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if largest < 2**31 else np.int64)


class _Field(Protocol):
    """One field of a plan. ``wire`` and ``unpacked`` say which arrays it needs, in this order."""

    wire: list[Section]
    unpacked: list[Section]

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
        self.wire: list[Section] = [(self._column.shape, dtype)]
        if isinstance(place, CUDAPlace):
            self.wire += _offset_sections(self._column.offsets)
        self.unpacked: list[Section] = []
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
        self.wire: list[Section] = [
            (row_offsets.shape, _index_dtype(num_entries) if on_device else row_offsets.dtype),
            ((num_entries,), _index_dtype(variable.dim)),
        ]
        self._has_values = variable.layout == "sparse_float"
        if self._has_values:
            self.wire.append(((num_entries,), variable.dtype))
        self._num_arrays = len(self.wire)
        if on_device:
            self.wire += _offset_sections(self._column.offsets)
        self.unpacked: list[Section] = []
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


def _offset_sections(levels: Sequence[np.ndarray[Any, Any]]) -> list[Section]:
    return [(offsets.shape, _index_dtype(int(offsets[-1]))) for offsets in levels]
