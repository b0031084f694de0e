"""Staging on the host: a planned batch is written where the user will read it."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import numpy as np

from gpufeed.device.backend import Stream
from gpufeed.device.faults import fault_error
from gpufeed.device.host import aligned_bytes, root_view, view_at
from gpufeed.device.slabs import POISON, SlabRing, poisoning
from gpufeed.device.staging import Plan, Staged
from gpufeed.errors import FieldError
from gpufeed.kernels import unpack_fields
from gpufeed.kernels.jobs import FAULT_WORDS
from gpufeed.places import Place

__all__ = ["HostStaging"]

FeedT = TypeVar("FeedT")


class HostStaging:
    """Batches in leased slabs of pageable memory."""

    def __init__(self, place: Place, depth: int | None = None) -> None:
        self.place = place
        self.ring = SlabRing(aligned_bytes, depth)
        self._is_poisoning = poisoning()

    @property
    def rings(self) -> list[SlabRing[Any]]:
        """The one ring."""
        return [self.ring]

    @property
    def blocked_s(self) -> float:
        """Seconds `stage` has waited for the consumer to drop a feed."""
        return self.ring.blocked_s

    @property
    def is_waiting_for_stream(self) -> bool:
        """Never: the host has no streams."""
        return False

    def attach_thread(self) -> None:
        """Nothing to prepare."""

    def require_no_capture(self, stream: object | None) -> None:
        """Nothing is captured on the host."""

    def stage(self, plan: Plan[FeedT]) -> Staged[FeedT]:
        """Write the batch where the user will read it, or let it be read where it is."""
        source = plan.source
        if source is not None and not plan.num_launches:
            lease = self.ring.borrow(source.memory)
            source.drop()
            feed = plan.feed(partial(view_at, root_view(lease)), lease)
            return Staged(feed, lease, None, plan.nbytes)
        slab = self.ring.acquire(plan.nbytes)
        remains, slab.remains = slab.remains, None
        if self._is_poisoning:
            slab.memory.fill(POISON)
            remains = None
        remains = plan.settle(slab.nbytes, remains)
        lease = self.ring.lease(slab)
        make = partial(view_at, root_view(lease))
        try:
            if source is None:
                plan.write(make)
            else:
                source.copy_to(slab.memory)
            if plan.num_launches:
                plan.write_table(make)
                fault = np.zeros(FAULT_WORDS, np.int64)
                unpack_fields(slab.memory, fault)
                slab.remains = remains
                if fault.any():
                    raise fault_error(fault, plan.checked)
        except BaseException:
            # The traceback holds the slab. Whoever keeps it, keeps it as a feed is kept.
            self.ring.deliver(lease)
            raise
        return Staged(plan.feed(make, lease), lease, None, plan.nbytes)

    def deliver(self, staged: Staged[FeedT], stream: object | None = None) -> FeedT:
        """Return the feed."""
        self.ring.deliver(staged.lease)
        return staged.feed

    def finish(self) -> None:
        """Nothing is waited for: `stage` raises a fault itself."""

    def untold(self) -> FieldError | None:
        """Return none, for the same reason."""
        return None

    def consumers(self, stream: object | None = None) -> list[Stream]:
        """Return none: the consumer is the host."""
        return []

    def recycle(self) -> None:
        """Take back what the consumer has dropped."""
        self.ring.recycle()

    def open(self, first_step: int = 0) -> None:
        """Serve a new pass."""
        self.ring.open()

    def drain(self) -> None:
        """Nothing does: what others have written is copied at once."""

    def close(self) -> None:
        """End the pass."""
        self.ring.close()
