"""Collation in a process of its own: the loop's process takes columns, and leaves Python alone.

    child   reader ──> samples ──> checked, laid side by side ──> shared memory
    parent               columns, as views ──> one copy a field ──> page-locked slab ──> device

What costs Python in a feeding pipeline, reading and going through samples, happens in the child, so
that training and feeding do not fight for the GIL. Shared memory is not page-locked here: the
parent copies each column once, at the speed of memory and without the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpufeed.collate import BatchPlan
from gpufeed.columnar import ColumnarBatch
from gpufeed.device.staging import HostStaging
from gpufeed.errors import FieldError
from gpufeed.fields import FieldMap
from gpufeed.grouping import Batch
from gpufeed.places import CPUPlace
from gpufeed.reader.base import Reader, identity_of, reading
from gpufeed.reader.processes import isolate
from gpufeed.variables import Variable

__all__ = ["collate_elsewhere"]


def collate_elsewhere(
    reader: Callable[[], Iterable[Batch]],
    variables: Sequence[Variable],
    fields: FieldMap,
    *,
    strict: bool,
    num_ahead: int,
) -> Reader[ColumnarBatch]:
    """Return a reader of the same mini-batches as columns, read and collated in one process.

    >>> from gpufeed.variables import Program, data, program_guard
    >>> with program_guard(Program()):
    ...     ids = data("ids", [1], "int64", lod_level=1)
    >>> reader = collate_elsewhere(
    ...     lambda: [[([7, 8],), ([],)]], [ids], FieldMap(["ids"]), strict=True, num_ahead=1
    ... )
    >>> [batch.columns["ids"].to_list() for batch in reader]
    [[[[7], [8]], []]]

    Args:
        reader: Yields mini-batches; pickled, as `gpufeed.reader.isolate` does it.
        variables: The fields. What kernels do to them is left to the feeder.
        fields: Which part of a sample is which.
        strict: Whether dense values are refused that the dtype that travels cannot keep.
        num_ahead: Most mini-batches that are collated and not yet taken.
    """
    travelling = [_as_it_travels(variable) for variable in variables]
    return isolate(_Collated(reader, travelling, fields, strict), buffer_size=max(1, num_ahead))


def _as_it_travels(variable: Variable) -> Variable:
    """Return the variable before it is widened, scaled or densified."""
    if variable.is_sparse:
        return replace(variable, densify=False)
    wire = variable.wire_dtype
    dtype = wire if isinstance(wire, np.dtype) else variable.dtype
    return replace(variable, dtype=dtype, wire_dtype=None, scale=None, shift=None)


class _Collated(Reader[ColumnarBatch]):
    """Mini-batches as columns; runs in the child."""

    def __init__(
        self,
        reader: Callable[[], Iterable[Batch]],
        variables: Sequence[Variable],
        fields: FieldMap,
        strict: bool,
    ) -> None:
        super().__init__("collate", reader)
        self._reader, self._variables = reader, variables
        self._fields, self._strict = fields, strict

    def open(self, epoch: int, skip: int) -> Iterator[ColumnarBatch]:
        """Collate into slabs, which the way to the parent empties one after the other."""
        staging = HostStaging(CPUPlace())
        with reading(self._reader, epoch, skip) as batches:
            for number, batch in enumerate(batches, skip):
                staging.recycle()
                yield self._collate(staging, batch, number)
                del batch

    def num_taken(self, num: int) -> int | None:
        """Return as many: a mini-batch stays one."""
        return num

    def identity(self) -> str:
        """It changes what batches are made of, not which there are."""
        return identity_of(self._reader)

    def _collate(self, staging: HostStaging, batch: Any, number: int) -> ColumnarBatch:
        try:
            columns = self._fields.columns(batch)
            plan = BatchPlan(self._variables, columns, staging.place, strict=self._strict)
            return ColumnarBatch(staging.deliver(staging.stage(plan)))
        except FieldError as error:
            error.add_note(f"in mini-batch {number} of this pass")
            raise
