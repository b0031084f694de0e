"""Fields of a batch that is planned: what each needs in the slab, and how it gets there.

A field says which arrays it needs (`gpufeed.collate` lays them out), writes what travels, names the
job that is left for the device (`gpufeed.kernels.jobs`), and makes the tensor that is fed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from gpufeed.columnar import Column
from gpufeed.columns import DenseColumn, SparseColumn
from gpufeed.device.backend import Array
from gpufeed.device.slabs import Lease
from gpufeed.kernels.jobs import (
    Job,
    check_job,
    convert_job,
    densify_job,
    unpack_bits_job,
)
from gpufeed.kernels.words import arithmetic_dtype
from gpufeed.layout import Placed, Remains, Section
from gpufeed.lod import Offsets, index_dtype
from gpufeed.loose import LooseColumn
from gpufeed.narrowing import NarrowColumn
from gpufeed.places import CUDAPlace, Place
from gpufeed.sized import Sized, SizedDense, SizedSparse
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable
from gpufeed.whole import WHOLE, WholeDense, WholeSparse, samples_of

__all__ = [
    "CheckIndices",
    "ConvertedField",
    "DenseField",
    "PlannedField",
    "ReusedField",
    "Samples",
    "SparseField",
    "plan_field",
]

CheckIndices = Literal["host", "device"]
# What a field is made of: one value a sample, all of them in one array, or no more than the sizes.
Samples = Sequence[Any] | Column | Sized


class PlannedField(Protocol):
    """One field of a plan, which takes its own arrays off the front of ``wire``.

    Attributes:
        lod: Offsets that cut the rows, the top level first; on the host.
        wire: Shape and dtype of each array it needs in the wire prefix, in the order it takes them.
        unpacked: Of the one array in the unpacked region, if it needs that.
        placed: Where the array stands that is fed instead of what travelled, if there is one.
    """

    _variable: Variable
    lod: list[Offsets]
    wire: list[Section]
    unpacked: list[Section]
    placed: Placed | None

    @property
    def has_job(self) -> bool:
        """Whether there is something to do after the transfer."""

    def sizes(self, num_samples: int) -> Sized:
        """Return what another process needs to make the same field, without the values."""

    def write(self, wire: Iterator[Array]) -> None:
        """Write every value, once, into arrays in host memory."""

    def job(self, wire: list[Placed]) -> Job:
        """Return what is to be done after the transfer, with its own arrays' places."""

    def tensor(
        self, wire: Iterator[Array], unpacked: Iterator[Array], place: Place, lease: Lease
    ) -> LoDTensor | SparseRows:
        """Return what the user gets."""


class DenseField:
    """Wire: values, then (for a device) the offsets of each level."""

    __slots__ = (
        "_column",
        "_is_packed",
        "_lod_on_place",
        "_variable",
        "lod",
        "placed",
        "unpacked",
        "wire",
    )

    lod: list[Offsets]

    def __init__(self, variable: Variable, samples: Samples, place: Place, strict: bool) -> None:
        self._variable = variable
        self._is_packed = False
        self._column: Any = _dense_column(variable, samples, variable.dtype, strict)
        self.lod = self._column.offsets
        self._lod_on_place = _offset_sections(self.lod, place)
        self.wire: list[Section] = [(self._column.shape, variable.dtype), *self._lod_on_place]
        self.unpacked: list[Section] = []
        self.placed: Placed | None = None

    @property
    def has_job(self) -> bool:
        """Whether there is something to do after the transfer."""
        return bool(self.unpacked)

    def sizes(self, num_samples: int) -> SizedDense:
        """Return what another process needs to make the same field."""
        column, (wire_shape, dtype) = self._column, self.wire[0]
        return SizedDense(num_samples, self.lod, column.shape, dtype, wire_shape, self._is_packed)

    def write(self, wire: Iterator[Array]) -> None:
        """Write every value, once."""
        self._column.write(next(wire))
        _write_offsets(self.lod, wire, self._lod_on_place)

    def job(self, wire: list[Placed]) -> Job:
        """Return what is to be done after the transfer."""
        raise NotImplementedError("what travels is what is fed")

    def tensor(
        self, wire: Iterator[Array], unpacked: Iterator[Array], place: Place, lease: Lease
    ) -> LoDTensor:
        """Return what the user gets."""
        data = next(wire)
        lod_on_place = [next(wire) for _ in self._lod_on_place] or None
        return LoDTensor._assemble(data, self.lod, place, lod_on_place, lease)


class ConvertedField(DenseField):
    """Wire: values as they travel, offsets, then scale and shift. Unpacked: values."""

    __slots__ = ("_factors",)

    def __init__(self, variable: Variable, samples: Samples, place: Place, strict: bool) -> None:
        self._variable = variable
        dtype = variable.wire_dtype
        travels_as = variable.dtype if dtype in (None, "auto") else np.dtype(dtype)
        self._column = column = _dense_column(variable, samples, travels_as, strict)
        self._is_packed, wire_shape = False, column.shape
        if dtype == "auto" and isinstance(place, CUDAPlace):
            narrow = column if isinstance(column, SizedDense) else NarrowColumn(column, travels_as)
            travels_as, wire_shape = narrow.dtype, narrow.wire_shape
            self._column, self._is_packed = narrow, narrow.is_packed
        self._factors = _factors(variable)
        self.lod = self._column.offsets
        self._lod_on_place = _offset_sections(self.lod, place)
        factors = [(factor.shape, factor.dtype) for factor in self._factors]
        self.wire = [(wire_shape, travels_as), *self._lod_on_place, *factors]
        self.unpacked, self.placed = [], None
        if travels_as != variable.dtype or variable.is_scaled:
            self.unpacked.append((self._column.shape, variable.dtype))

    def write(self, wire: Iterator[Array]) -> None:
        """Write every value, once."""
        super().write(wire)
        for factor in self._factors:
            next(wire)[...] = factor

    def job(self, wire: list[Placed]) -> Job:
        """Return what is to be done after the transfer."""
        assert self.placed is not None
        values, out = wire[0], self.placed
        if self._is_packed:
            return unpack_bits_job(values, out)
        if not self._factors:
            return convert_job(values, None, None, out)
        scale, shift = wire[-2:]
        axis = self._variable.channel_axis
        # Without channels all is of one.
        num_inner = math.prod(out[1] if axis is None else out[1][axis + 1 :])
        return convert_job(values, scale, shift, out, num_inner)

    def tensor(
        self, wire: Iterator[Array], unpacked: Iterator[Array], place: Place, lease: Lease
    ) -> LoDTensor:
        """Return what the user gets."""
        data, *rest = islice(wire, len(self.wire))
        lod_on_place = rest[: len(self._lod_on_place)] or None
        if self.placed:
            data = next(unpacked)
        return LoDTensor._assemble(data, self.lod, place, lod_on_place, lease)


class SparseField:
    """Wire: row offsets, indices, values if any, LoD offsets. Unpacked: dense rows."""

    __slots__ = (
        "_checks_on_device",
        "_column",
        "_has_values",
        "_lod_on_place",
        "_variable",
        "lod",
        "placed",
        "unpacked",
        "wire",
    )

    lod: list[Offsets]

    def __init__(
        self, variable: Variable, samples: Samples, place: Place, check_indices: CheckIndices
    ) -> None:
        self._variable = variable
        self._checks_on_device = check_indices == "device"
        self.placed: Placed | None = None
        self._column: Any = samples
        if isinstance(samples, SizedSparse):
            num_rows, num_entries = samples.num_rows, samples.num_entries
        else:
            self._column = (
                WholeSparse(variable, samples)
                if isinstance(samples, WHOLE)
                else SparseColumn(variable, samples)
            )
            row_offsets = self._column.row_offsets
            num_rows, num_entries = len(row_offsets) - 1, int(row_offsets[-1])
        # One dtype for both, as SciPy, torch and cuSPARSE want it.
        dtype = index_dtype(max(num_entries, variable.dim))
        self.wire: list[Section] = [((num_rows + 1,), dtype), ((num_entries,), dtype)]
        self._has_values = variable.layout == "sparse_float"
        if self._has_values:
            self.wire.append(((num_entries,), variable.dtype))
        self.lod = self._column.offsets
        self._lod_on_place = _offset_sections(self.lod, place)
        self.wire += self._lod_on_place
        self.unpacked: list[Section] = []
        if variable.densify:
            self.unpacked.append(((num_rows, variable.dim), variable.dtype))

    def sizes(self, num_samples: int) -> SizedSparse:
        """Return what another process needs to make the same field."""
        (num_plus_1,), (num_entries,) = self.wire[0][0], self.wire[1][0]
        return SizedSparse(num_samples, self.lod, num_plus_1 - 1, num_entries)

    def write(self, wire: Iterator[Array]) -> None:
        """Write every value, once."""
        next(wire)[...] = self._column.row_offsets
        self._column.write_indices(next(wire), checks_range=not self._checks_on_device)
        if self._has_values:
            self._column.write_values(next(wire))
        _write_offsets(self.lod, wire, self._lod_on_place)

    @property
    def has_job(self) -> bool:
        """Whether there is something to do after the transfer."""
        return self._checks_on_device or bool(self._variable.densify)

    def job(self, wire: list[Placed]) -> Job:
        """Return what is to be done after the transfer."""
        if self.placed is None:
            return check_job(wire[0], wire[1], self._variable.dim)
        return self._densify_job(wire, self.placed, None)

    def _densify_job(
        self, wire: list[Placed], out: Placed, previous: tuple[Placed, Placed] | None
    ) -> Job:
        values = wire[2] if self._has_values else None
        return densify_job(wire[0], wire[1], values, out, previous)

    def tensor(
        self, wire: Iterator[Array], unpacked: Iterator[Array], place: Place, lease: Lease
    ) -> LoDTensor | SparseRows:
        """Return what the user gets."""
        row_offsets, indices = next(wire), next(wire)
        values = next(wire) if self._has_values else None
        lod_on_place = [next(wire) for _ in self._lod_on_place] or None
        if self.placed:
            return LoDTensor._assemble(next(unpacked), self.lod, place, lod_on_place, lease)
        dim = self._variable.dim
        return SparseRows._assemble(
            row_offsets, indices, values, dim, self.lod, place, lod_on_place, lease
        )


class ReusedField(SparseField):
    """Dense rows in memory where those of an earlier batch may be; then these alone are cleared.

    Attributes:
        remains: Shape and dtype of what it leaves: dense rows, offsets, indices.
        left: Where it leaves them.
        found: Where an earlier batch left them, if it did.
        num_late: Jobs that come after all others.
    """

    __slots__ = ("found", "left", "remains")

    num_late = 2

    def __init__(
        self, variable: Variable, samples: Samples, place: Place, check_indices: CheckIndices
    ) -> None:
        super().__init__(variable, samples, place, check_indices)
        (dense,), self.unpacked = self.unpacked, []
        self.remains: tuple[Section, Section, Section] = (dense, self.wire[0], self.wire[1])
        self.left: Remains | None = None
        self.found: Remains | None = None

    def job(self, wire: list[Placed]) -> Job:
        """Return what is to be done after the transfer."""
        assert self.left is not None
        previous = None if self.found is None else (self.found.offsets, self.found.indices)
        return self._densify_job(wire, self.left.dense, previous)

    def late_jobs(self, wire: list[Placed]) -> list[Job]:
        """Copy the entries that were densified from the wire prefix, which the next batch takes."""
        assert self.left is not None
        copies = zip(wire[:2], (self.left.offsets, self.left.indices), strict=True)
        return [convert_job(source, None, None, target) for source, target in copies]


def plan_field(
    variable: Variable, samples: Samples, place: Place, strict: bool, check_indices: CheckIndices
) -> PlannedField:
    """Return the field that a variable and its samples make on a place."""
    if not variable.is_sparse:
        dense = ConvertedField if variable.is_converted else DenseField
        return dense(variable, samples, place, strict)
    sparse = ReusedField if variable.densify == "reuse" else SparseField
    return sparse(variable, samples, place, check_indices)


def _factors(variable: Variable) -> list[np.ndarray[Any, Any]]:
    """Return scale and shift of each channel, or of all values, as kernels take them: they travel.

    None are a field's that is not scaled.
    """
    if not variable.is_scaled:
        return []
    axis = variable.channel_axis
    num_channels = 1 if axis is None else variable.shape[axis]
    return [
        np.full(num_channels, neutral if given is None else given, arithmetic_dtype(variable.dtype))
        # x * 1 and x + -0.0 are x, to the sign of a zero.
        for given, neutral in ((variable.scale, 1.0), (variable.shift, -0.0))
    ]


def _dense_column(
    variable: Variable, samples: Samples, dtype: np.dtype[Any], strict: bool
) -> DenseColumn | WholeDense | LooseColumn | SizedDense:
    if isinstance(samples, SizedDense):
        return samples
    if isinstance(samples, WHOLE):
        if strict:
            return WholeDense(variable, samples)
        samples = samples_of(samples)
    return DenseColumn(variable, samples) if strict else LooseColumn(variable, samples, dtype)


def _offset_sections(levels: Sequence[np.ndarray[Any, Any]], place: Place) -> list[Section]:
    """Return what the LoD needs on ``place``; the host has it already."""
    if not isinstance(place, CUDAPlace):
        return []
    return [(offsets.shape, index_dtype(int(offsets[-1]))) for offsets in levels]


def _write_offsets(
    levels: Sequence[np.ndarray[Any, Any]], wire: Iterator[Array], sections: list[Section]
) -> None:
    if sections:
        for offsets in levels:
            next(wire)[...] = offsets
