"""Collation in a process of its own: the loop's process starts transfers, and leaves Python alone.

    child   reader ──> samples ──> checked, written once ──> a block of shared memory
    parent                                 page-locked there ──┴──> one transfer ──> device

The child lays a batch out just as its place wants it (`gpufeed.collate`), in a slot of shared
memory that the parent has page-locked (`gpufeed.device.sources`). Beside the block it sends sizes
alone, from which the parent makes the same plan. So what costs Python in a feeding pipeline,
reading and going through samples, fights with nobody for the GIL, and no value is touched in the
parent. On the host the user gets views of the block. Where page-locking is refused, or there is
something to unpack on the host, the block is copied once, into a slab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from gpufeed.collate import BatchPlan, CollatedBatch
from gpufeed.device.host import view_at
from gpufeed.device.sources import PageLocks, Source
from gpufeed.errors import FieldError
from gpufeed.fields import FieldMap
from gpufeed.grouping import Batch
from gpufeed.places import Place
from gpufeed.planned import CheckIndices
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import reading
from gpufeed.reader.processes import isolate
from gpufeed.reader.stage import identity_of
from gpufeed.sized import Packed, pack, unpack
from gpufeed.variables import Variable
from gpufeed.workers.boxes import mapping_of
from gpufeed.workers.frames import WrittenInPlace

__all__ = ["collate_elsewhere"]

_Arrived = tuple[Packed, memoryview | bytearray]


def collate_elsewhere(
    reader: Callable[[], Iterable[Batch]],
    variables: Sequence[Variable],
    fields: FieldMap,
    places: Sequence[Place],
    *,
    strict: bool,
    check_indices: CheckIndices = "host",
    num_ahead: int,
    page_locks: Callable[[], PageLocks] = PageLocks,
) -> Reader[CollatedBatch]:
    """Return a reader of the same mini-batches, read and collated in one process.

    >>> from gpufeed.places import CPUPlace
    >>> from gpufeed.variables import Program, data, program_guard
    >>> with program_guard(Program()):
    ...     ids = data("ids", [1], "int64", lod_level=1)
    >>> reader = collate_elsewhere(
    ...     lambda: [[([7, 8],), ([],)]], [ids], FieldMap(["ids"]), [CPUPlace()],
    ...     strict=True, num_ahead=1,
    ... )
    >>> [batch.columns["ids"].to_list() for batch in reader]
    [[[[7], [8]], []]]

    Args:
        reader: Yields mini-batches; pickled, as `gpufeed.reader.isolate` does it.
        variables: The fields.
        fields: Which part of a sample is which.
        places: Where the mini-batches go, in turn.
        strict: Whether dense values are refused that the dtype that travels cannot keep.
        check_indices: Where it is seen to that indices of sparse fields are inside their rows.
        num_ahead: Most mini-batches that are collated and not yet taken.
        page_locks: Makes what keeps the page locks of a pass.
    """
    plan = partial(BatchPlan, variables, check_indices=check_indices)
    collating = _Collating(reader, partial(plan, strict=strict), fields, places)
    isolated = isolate(collating, buffer_size=max(1, num_ahead))
    return _Collated(isolated, partial(plan, strict=True), places, page_locks)


class _Collated(Reader[CollatedBatch]):
    """Mini-batches as they arrive; runs in the parent."""

    def __init__(
        self,
        reader: Reader[Any],  # of `_Block`, each of which arrives as `_Arrived`
        plan: Callable[..., BatchPlan],
        places: Sequence[Place],
        page_locks: Callable[[], PageLocks],
    ) -> None:
        super().__init__("plan", reader)
        self._reader, self._plan, self._places = reader, plan, places
        self._page_locks = page_locks

    def open(self, epoch: int, skip: int) -> Iterator[CollatedBatch]:
        """Plan again what was collated, and keep the page locks for as long as that goes on."""
        with self._page_locks() as locks, reading(self._reader, epoch, skip) as batches:
            # No variable here: it would keep a batch that has been sent from being dropped.
            yield from map(partial(self._batch, locks), batches, count(skip))

    def num_taken(self, num: int) -> int | None:
        """Return as many: a mini-batch stays one."""
        return num

    def identity(self) -> str:
        """It changes what batches are made of, not which there are."""
        return identity_of(self._reader)

    def _batch(self, locks: PageLocks, arrived: _Arrived, number: int) -> CollatedBatch:
        packed, block = arrived
        source = Source(np.asarray(block), mapping_of(block), locks)
        place = self._places[number % len(self._places)]
        return CollatedBatch(self._plan(unpack(packed), place, source=source))


class _Collating(Reader["_Block"]):
    """Mini-batches as blocks that are still to be written; runs in the child."""

    def __init__(
        self,
        reader: Callable[[], Iterable[Batch]],
        plan: Callable[..., BatchPlan],
        fields: FieldMap,
        places: Sequence[Place],
    ) -> None:
        super().__init__("collate", reader)
        self._reader, self._plan = reader, plan
        self._fields, self._places = fields, places

    def open(self, epoch: int, skip: int) -> Iterator[_Block]:
        """Size mini-batches; what sends them has them written."""
        with reading(self._reader, epoch, skip) as batches:
            for number, batch in enumerate(batches, skip):
                yield self._block(batch, number)
                del batch

    def num_taken(self, num: int) -> int | None:
        """Return as many: a mini-batch stays one."""
        return num

    def identity(self) -> str:
        """It changes what batches are made of, not which there are."""
        return identity_of(self._reader)

    def _block(self, batch: Any, number: int) -> _Block:
        where = f"in mini-batch {number} of this pass"
        place = self._places[number % len(self._places)]
        try:
            return _Block(self._plan(self._fields.columns(batch), place), where)
        except FieldError as error:
            error.add_note(where)
            raise


class _Block(WrittenInPlace):
    """One mini-batch on its way."""

    def __init__(self, plan: BatchPlan, where: str) -> None:
        self._plan, self._where = plan, where

    @property
    def nbytes(self) -> int:
        """Length of what travels."""
        return self._plan.wire_nbytes

    def tells(self) -> Packed:
        """Return the sizes."""
        return pack(self._plan.sizes())

    def write(self, block: memoryview) -> None:
        """Write every value once, where the parent sends it from."""
        try:
            self._plan.write(partial(view_at, np.asarray(block)))
        except FieldError as error:
            error.add_note(self._where)
            raise
