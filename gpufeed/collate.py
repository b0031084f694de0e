"""Collation: a list of samples becomes one slab's worth of columns, each value written once.

Two passes. The first sizes every field from lengths alone and lays the fields out in one block,
each array 256-byte aligned:

    wire prefix                                                        unpacked region
    ┌───────┬─────────────┬──────────────┬──────────────┬─────────┬──┬──────────────┬──┐
    │ table │ ids: values │ ids: offsets │ tags: offsets│ indices │ …│ tags: dense  │ …│
    └───────┴─────────────┴──────────────┴──────────────┴─────────┴──┴──────────────┴──┘

The second writes each value into its final place in the wire prefix. One kernel fills the unpacked
region (widened, scaled and densified values) where the feed will live; it is told how by the table
(`gpufeed.kernels.jobs`), which is there if there is anything to do. What is densified with
``densify="reuse"`` stands apart (`gpufeed.layout`). For a device, offsets travel with the values,
as int32 (int64 beyond 2**31 rows); the host keeps its own as int64.

Nothing here allocates the block, or knows where it is. If another process has collated the batch,
its block arrives with the sizes, from which the same plan is made here (`gpufeed.isolation`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from gpufeed.columnar import Column, ColumnarBatch
from gpufeed.columns import DenseColumn, SparseColumn
from gpufeed.device.backend import Array
from gpufeed.device.host import view_at
from gpufeed.device.slabs import Lease
from gpufeed.device.sources import Source
from gpufeed.device.staging import MakeArray
from gpufeed.feed import Feed
from gpufeed.kernels.jobs import (
    Job,
    check_job,
    convert_job,
    densify_job,
    table_shape,
    unpack_bits_job,
    write_table,
)
from gpufeed.kernels.words import arithmetic_dtype
from gpufeed.layout import Placed, Remains, Section, find_again, lay_out, lay_out_remains
from gpufeed.lod import index_dtype
from gpufeed.loose import LooseColumn
from gpufeed.narrowing import NarrowColumn
from gpufeed.places import CUDAPlace, Place
from gpufeed.sized import SIZED, SizedDense, SizedSparse
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Variable
from gpufeed.whole import WHOLE, WholeDense, WholeSparse, samples_of

__all__ = ["BatchPlan", "CheckIndices", "CollatedBatch"]

CheckIndices = Literal["host", "device"]
_TABLE_DTYPE = np.dtype(np.int64)
# What a field is made of: one value a sample, all of them in one array, or no more than the sizes.
Samples = Sequence[Any] | Column | SizedDense | SizedSparse


class BatchPlan:
    """One batch for one place: sized, laid out, and ready to be written.

    Args:
        variables: The fields, in feed order.
        columns: The samples of each field.
        place: Where the feed will live.
        strict: Whether dense values are refused that the variable's dtype cannot keep; indices
            and values of sparse fields always are.
        source: What travels, where another process has written it; then ``columns`` are sizes.
        check_indices: Where it is seen to that indices of sparse fields are inside their rows.

    Attributes:
        num_samples: In the batch.
        wire_nbytes: Bytes that travel.
        nbytes: Bytes of the whole slab.
        num_launches: Of the kernel that does what the table says; 0 if there is none, 2 if some of
            it has to wait for the rest.
        names: Of the fields, in feed order.

    Raises:
        FieldError: A column cannot be sized.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        columns: Sequence[Samples],
        place: Place,
        *,
        strict: bool,
        source: Source | None = None,
        check_indices: CheckIndices = "host",
    ) -> None:
        first = columns[0]
        self.num_samples = first.num_samples if isinstance(first, SIZED) else len(first)
        self.source = source
        self.is_checked_on_device = check_indices == "device"
        self._place = place
        self._fields: list[tuple[str, _Field]] = []
        self._reusing: list[_ReusedField] = []
        wire: list[Section] = []
        for variable, samples in zip(variables, columns, strict=True):
            field: _Field
            if not variable.is_sparse:
                kind = _ConvertedField if variable.is_converted else _DenseField
                field = kind(variable, samples, place, strict)
            elif variable.densify == "reuse":
                field = _ReusedField(variable, samples, place, check_indices)
                self._reusing.append(field)
            else:
                field = _SparseField(variable, samples, place, check_indices)
            self._fields.append((variable.name, field))
            wire += field.wire
        num_late = sum(field.num_late for field in self._reusing)
        num_jobs = num_late + sum(field.has_job for _, field in self._fields)
        self.num_launches = bool(num_jobs) + bool(num_late)
        table = [(table_shape(num_jobs), _TABLE_DTYPE)] if num_jobs else []
        placed, self.wire_nbytes = lay_out(table + wire, 0)
        self._table, self._wire = placed[: len(table)], placed[len(table) :]
        end = self.wire_nbytes
        for _, field in self._fields:
            if field.unpacked:
                (field.placed,), end = lay_out(field.unpacked, end)
        self._end = self.nbytes = end
        for reusing in self._reusing:
            _, self.nbytes = lay_out(reusing.remains, self.nbytes)

    @property
    def names(self) -> list[str]:
        """Names of the fields."""
        return [name for name, _ in self._fields]

    def sizes(self) -> list[SizedDense | SizedSparse]:
        """Return what another process needs to make the same plan, without the values."""
        return [field.sizes(self.num_samples) for _, field in self._fields]

    def settle(self, slab_nbytes: int, remains: object | None) -> object | None:
        """Place what is left for the next batch in this slab, and find what the last one left."""
        if not self._reusing:
            return None
        mine = lay_out_remains([field.remains for field in self._reusing], slab_nbytes)
        left = find_again(mine, remains, self._end)
        for field, here, old in zip(self._reusing, mine, left, strict=True):
            field.placed, field.left, field.found = here.dense, here, old
        return mine

    def wire_arrays(self, make: MakeArray) -> list[Array]:
        """Return the arrays of the wire prefix, made by ``make(offset, shape, dtype)``."""
        return [make(*placed) for placed in self._wire]

    def unpacked_arrays(self, make: MakeArray) -> list[Array]:
        """Return the arrays that are fed and do not travel."""
        return [make(*field.placed) for _, field in self._fields if field.placed]

    def columns(self) -> dict[str, Column]:
        """Return what `source` holds as columns of what travels, which are views of it."""
        assert self.source is not None
        arrays = iter(self.wire_arrays(partial(view_at, self.source.memory)))
        return {
            name: field.sizes(self.num_samples).column(
                field._variable, list(islice(arrays, len(field.wire)))
            )
            for name, field in self._fields
        }

    def write(self, wire: list[Array]) -> None:
        """Write every value, once, into the wire arrays (in host memory).

        Raises:
            FieldError: A value does not fit its variable.
        """
        arrays = iter(wire)
        for _, field in self._fields:
            field.write(arrays)

    def write_table(self, make: MakeArray, number: int, first: int) -> None:
        """Write what is to be done after the transfer, with this slab's addresses, if anything is.

        Args:
            make: Of the wire prefix in host memory.
            number: Of the batch.
            first: Number of the first batch whose faults count.
        """
        if not self._table:
            return
        placed = iter(self._wire)
        jobs: list[tuple[int, Job]] = []
        late: list[tuple[int, Job]] = []
        for number_of_field, (_, field) in enumerate(self._fields):
            mine = list(islice(placed, len(field.wire)))
            if field.has_job:
                jobs.append((number_of_field, field.job(mine)))
            if isinstance(field, _ReusedField):
                # What it leaves may stand where another field finds what it left before.
                late += [(number_of_field, job) for job in field.late_jobs(mine)]
        table = make(*self._table[0])
        write_table(table, jobs + late, num_late=len(late), number=number, first=first)

    def feed(self, wire: list[Array], unpacked: list[Array], lease: Lease) -> Feed:
        """Return what the user gets: tensors over these arrays."""
        place, arrays, targets = self._place, iter(wire), iter(unpacked)
        tensors = [
            (name, field.tensor(arrays, targets, place, lease)) for name, field in self._fields
        ]
        return Feed(tensors, place=place)


class CollatedBatch(ColumnarBatch):
    """A batch that another process has collated; columns are made of it only if asked for.

    Args:
        plan: By which it was, with its source.
    """

    __slots__ = ("_made", "plan")

    def __init__(self, plan: BatchPlan) -> None:
        self.plan = plan
        self._num_samples = plan.num_samples
        self._made: dict[str, Column] | None = None

    @property
    def _columns(self) -> dict[str, Column]:  # type: ignore[override]
        if self._made is None:
            self._made = self.plan.columns()
        return self._made


class _Field(Protocol):
    """One field of a plan, which takes its own arrays off the front of ``wire``.

    Attributes:
        wire: Shape and dtype of each array it needs in the wire prefix, in the order it takes them.
        unpacked: Of the one array in the unpacked region, if it needs that.
        placed: Where the array stands that is fed instead of what travelled, if there is one.
        has_job: Whether there is something to do after the transfer.
    """

    _variable: Variable
    wire: list[Section]
    unpacked: list[Section]
    placed: Placed | None

    @property
    def has_job(self) -> bool: ...

    def sizes(self, num_samples: int) -> SizedDense | SizedSparse: ...

    def write(self, wire: Iterator[Array]) -> None: ...

    def job(self, wire: list[Placed]) -> Job: ...

    def tensor(
        self, wire: Iterator[Array], unpacked: Iterator[Array], place: Place, lease: Lease
    ) -> LoDTensor | SparseRows: ...


class _DenseField:
    """Wire: values, then (for a device) the offsets of each level."""

    __slots__ = (
        "_column",
        "_is_packed",
        "_lod_on_place",
        "_variable",
        "placed",
        "unpacked",
        "wire",
    )

    def __init__(self, variable: Variable, samples: Samples, place: Place, strict: bool) -> None:
        self._variable = variable
        self._is_packed = False
        self._column: Any = _dense_column(variable, samples, variable.dtype, strict)
        self._lod_on_place = _offset_sections(self._column.offsets, place)
        self.wire: list[Section] = [(self._column.shape, variable.dtype), *self._lod_on_place]
        self.unpacked: list[Section] = []
        self.placed: Placed | None = None

    @property
    def has_job(self) -> bool:
        return bool(self.unpacked)

    def sizes(self, num_samples: int) -> SizedDense:
        column, (wire_shape, dtype) = self._column, self.wire[0]
        return SizedDense(
            num_samples, column.offsets, column.shape, dtype, wire_shape, self._is_packed
        )

    def write(self, wire: Iterator[Array]) -> None:
        self._column.write(next(wire))
        _write_offsets(self._column.offsets, wire, self._lod_on_place)

    def job(self, wire: list[Placed]) -> Job:
        raise NotImplementedError("what travels is what is fed")

    def tensor(
        self, wire: Iterator[Array], unpacked: Iterator[Array], place: Place, lease: Lease
    ) -> LoDTensor:
        data = next(wire)
        lod_on_place = [next(wire) for _ in self._lod_on_place] or None
        return LoDTensor._assemble(data, self._column.offsets, place, lod_on_place, lease)


class _ConvertedField(_DenseField):
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
        self._lod_on_place = _offset_sections(self._column.offsets, place)
        factors = [(factor.shape, factor.dtype) for factor in self._factors]
        self.wire = [(wire_shape, travels_as), *self._lod_on_place, *factors]
        self.unpacked, self.placed = [], None
        if travels_as != variable.dtype or variable.is_scaled:
            self.unpacked.append((self._column.shape, variable.dtype))

    def write(self, wire: Iterator[Array]) -> None:
        super().write(wire)
        for factor in self._factors:
            next(wire)[...] = factor

    def job(self, wire: list[Placed]) -> Job:
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
        data, *rest = islice(wire, len(self.wire))
        lod_on_place = rest[: len(self._lod_on_place)] or None
        if self.placed:
            data = next(unpacked)
        return LoDTensor._assemble(data, self._column.offsets, place, lod_on_place, lease)


class _SparseField:
    """Wire: row offsets, indices, values if any, LoD offsets. Unpacked: dense rows."""

    __slots__ = (
        "_checks_on_device",
        "_column",
        "_has_values",
        "_lod_on_place",
        "_variable",
        "placed",
        "unpacked",
        "wire",
    )

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
        self._lod_on_place = _offset_sections(self._column.offsets, place)
        self.wire += self._lod_on_place
        self.unpacked: list[Section] = []
        if variable.densify:
            self.unpacked.append(((num_rows, variable.dim), variable.dtype))

    def sizes(self, num_samples: int) -> SizedSparse:
        (num_plus_1,), (num_entries,) = self.wire[0][0], self.wire[1][0]
        return SizedSparse(num_samples, self._column.offsets, num_plus_1 - 1, num_entries)

    def write(self, wire: Iterator[Array]) -> None:
        next(wire)[...] = self._column.row_offsets
        self._column.write_indices(next(wire), checks_range=not self._checks_on_device)
        if self._has_values:
            self._column.write_values(next(wire))
        _write_offsets(self._column.offsets, wire, self._lod_on_place)

    @property
    def has_job(self) -> bool:
        return self._checks_on_device or bool(self._variable.densify)

    def job(self, wire: list[Placed]) -> Job:
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
        row_offsets, indices = next(wire), next(wire)
        values = next(wire) if self._has_values else None
        lod = self._column.offsets
        lod_on_place = [next(wire) for _ in self._lod_on_place] or None
        if self.placed:
            return LoDTensor._assemble(next(unpacked), lod, place, lod_on_place, lease)
        dim = self._variable.dim
        return SparseRows._assemble(
            row_offsets, indices, values, dim, lod, place, lod_on_place, lease
        )


class _ReusedField(_SparseField):
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
        assert self.left is not None
        previous = None if self.found is None else (self.found.offsets, self.found.indices)
        return self._densify_job(wire, self.left.dense, previous)

    def late_jobs(self, wire: list[Placed]) -> list[Job]:
        """Copy the entries that were densified from the wire prefix, which the next batch takes."""
        assert self.left is not None
        copies = zip(wire[:2], (self.left.offsets, self.left.indices), strict=True)
        return [convert_job(source, None, None, target) for source, target in copies]


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
