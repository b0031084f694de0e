"""Faults: what a kernel has noted, and when the host may look.

Words of memory that the device writes to are read like any other, without a wait: what is there is
there. Only who sees a note waits, for the kernel that wrote it, and so reads all of it.
"""

from __future__ import annotations

from typing import Protocol

from gpufeed.device.backend import Event, HostWords
from gpufeed.errors import FieldError
from gpufeed.kernels.jobs import FAULT_BATCH

__all__ = ["Faults"]


class _Plan(Protocol):
    @property
    def names(self) -> list[str]: ...

    @property
    def is_checked_on_device(self) -> bool: ...


class Faults:
    """The first fault of a pass, and what it takes to name it.

    Batches are numbered through the passes of a staging, so a note of a batch before this pass is
    known for what it is, and overwritten by the first one of this pass.

    Attributes:
        words: Where it is noted (`gpufeed.kernels.jobs`); 0 at first.
        first: Number of the first batch of this pass.
        known_at: Passes when it is known of all batches so far; None if none is checked.
    """

    def __init__(self, words: HostWords) -> None:
        self.words = words
        self.first = 0
        self.known_at: Event | None = None
        self._num_batches = 0
        self._first_step: int | None = None
        self._names: list[str] = []

    def open(self, first_step: int | None = None) -> None:
        """Forget what was; the next batch is step ``first_step`` of a pass, or of none."""
        self.first, self._first_step = self._num_batches, first_step
        self.known_at = None

    def begin(self, plan: _Plan) -> int:
        """Return the number of the next batch."""
        if plan.is_checked_on_device:
            self._names = plan.names
        self._num_batches += 1
        return self._num_batches - 1

    def is_known(self, number: int) -> bool:
        """Return whether a batch of this pass, up to ``number``, is known to have a fault."""
        return self.first <= int(self.words[FAULT_BATCH]) - 1 <= number

    def raise_at_the_end(self) -> None:
        """Wait until it is known of all batches so far, and raise for a fault of one.

        Raises:
            FieldError: There is one.
        """
        if self.known_at is not None:
            self.known_at.synchronize()
            self.raise_until(self._num_batches)

    def raise_until(self, number: int) -> None:
        """Raise for a fault of a batch up to ``number``, once; its kernel must be done.

        Raises:
            FieldError: There is one.
        """
        if self.is_known(number):
            raise self._forgotten()  # no local variable: it would keep itself, and all frames

    def _forgotten(self) -> FieldError:
        """Return what is noted as an error, and forget it."""
        batch, field, row, index, dim = self.words.tolist()
        error = FieldError(
            f"field {self._names[field]!r}, row {row}: expected indices in [0, {dim}), got {index}"
        )
        if self._first_step is not None:
            error.add_note(f"in step {self._first_step + batch - 1 - self.first} of this pass")
        self.open()
        return error
