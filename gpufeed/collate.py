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

from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np

from gpufeed.columnar import Column, ColumnarBatch
from gpufeed.device.backend import Array
from gpufeed.device.host import view_at
from gpufeed.device.slabs import Lease
from gpufeed.device.sources import Source
from gpufeed.device.staging import MakeArray
from gpufeed.feed import Feed
from gpufeed.kernels.jobs import (
    Job,
    table_shape,
    write_table,
)
from gpufeed.layout import Section, find_again, lay_out, lay_out_remains
from gpufeed.lod import LoD
from gpufeed.places import Place
from gpufeed.planned import CheckIndices, PlannedField, ReusedField, Samples, plan_field
from gpufeed.sized import SIZED, Sized
from gpufeed.variables import Variable

__all__ = ["BatchPlan", "CollatedBatch"]

_TABLE_DTYPE = np.dtype(np.int64)


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
        checked: Name and LoD of the fields that this kernel checks, by their numbers in feed order.

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
        self.checked: dict[int, tuple[str, LoD]] = {}
        self._place = place
        self._fields: list[tuple[str, PlannedField]] = []
        self._reusing: list[ReusedField] = []
        wire: list[Section] = []
        num_jobs = 0
        for number, (variable, samples) in enumerate(zip(variables, columns, strict=True)):
            field = plan_field(variable, samples, place, strict, check_indices)
            self._fields.append((variable.name, field))
            wire += field.wire
            num_jobs += field.has_job
            if isinstance(field, ReusedField):
                self._reusing.append(field)
                num_jobs += field.num_late
            if variable.is_sparse and check_indices == "device":
                self.checked[number] = variable.name, tuple(field.lod)
        self.num_launches = bool(num_jobs) + bool(self._reusing)
        table = [(table_shape(num_jobs), _TABLE_DTYPE)] if num_jobs else []
        self._table, end = lay_out(table, 0)
        self._wire, end = lay_out(wire, end)
        self.wire_nbytes = end
        for _, field in self._fields:
            if field.unpacked:
                (field.placed,), end = lay_out(field.unpacked, end)
        self._end = self.nbytes = end
        for reusing in self._reusing:
            _, self.nbytes = lay_out(reusing.remains, self.nbytes)

    def sizes(self) -> list[Sized]:
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

    def write(self, make: MakeArray) -> None:
        """Write every value, once, into arrays of host memory.

        Raises:
            FieldError: A value does not fit its variable.
        """
        arrays = iter(self.wire_arrays(make))
        for _, field in self._fields:
            field.write(arrays)

    def write_table(self, make: MakeArray, number: int = 0, first: int = 0) -> None:
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
            if isinstance(field, ReusedField):
                # What it leaves may stand where another field finds what it left before.
                late += [(number_of_field, job) for job in field.late_jobs(mine)]
        table = make(*self._table[0])
        write_table(table, jobs + late, num_late=len(late), number=number, first=first)

    def feed(self, make: MakeArray, lease: Lease) -> Feed:
        """Return what the user gets: tensors over arrays of the slab."""
        place, arrays = self._place, iter(self.wire_arrays(make))
        targets = iter([make(*field.placed) for _, field in self._fields if field.placed])
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
