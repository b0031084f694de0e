"""Faults: what a kernel has noted, and when the host may look.

Words of memory that the device writes to are read like any other, without a wait: what is there is
there. Only who sees a note waits, for the kernel that wrote it, and so reads all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpufeed.device.backend import Event, HostWords
from gpufeed.errors import FieldError
from gpufeed.kernels.jobs import FAULT_BATCH
from gpufeed.lod import LoD, absolute

__all__ = ["Checked", "Faults", "fault_error"]

# Name and LoD of the fields whose indices a kernel checks, by the numbers it knows them by.
Checked = Mapping[int, tuple[str, LoD]]


def fault_error(words: HostWords, checked: Checked) -> FieldError:
    """Return what a kernel has noted as the error that the host's own check would have raised."""
    _, field, row, index, dim = words.tolist()
    name, lod = checked[field]
    sample = int(np.searchsorted(absolute(lod), row, "right")) - 1 if lod else row
    return FieldError(
        f"field {name!r}, sample {sample}: expected indices in [0, {dim}), got {index}"
    )


class Faults:
    """The first fault of a pass whose indices a device checks, and what it takes to name it.

    Batches are numbered through the passes of a staging, so a note of a batch before this pass is
    known for what it is, and overwritten by the first one of this pass.

    Attributes:
        words: Where it is noted (`gpufeed.kernels.jobs`); 0 at first.
        first: Number of the first batch of this pass.
    """

    def __init__(self, words: HostWords) -> None:
        self.words = words
        self.first = 0
        self._first_step = 0
        self._num_batches = 0
        self._num_delivered = 0
        # By the producer, in order; what the consumer looks up there is not taken out any more.
        self._unknown: dict[int, tuple[Checked, Event]] = {}

    def open(self, first_step: int = 0) -> None:
        """Forget what was; the next batch is step ``first_step`` of a pass."""
        self.first, self._first_step = self._num_batches, first_step
        self._unknown.clear()

    def begin(self) -> int:
        """Return the number of the next batch."""
        self._num_batches += 1
        return self._num_batches - 1

    def follow(self, number: int, checked: Checked, done: Event) -> None:
        """Keep what names a fault of a batch, until ``done`` has passed and none was noted."""
        for earlier, (_, passed) in list(self._unknown.items()):
            if not passed.query() or self._is_noted(self._num_batches):
                break
            self._unknown.pop(earlier, None)
        self._unknown[number] = checked, done

    def deliver(self, number: int) -> None:
        """Say that the consumer gets this batch, unless it or one before it is known to have one.

        Raises:
            FieldError: It is.
        """
        self._num_delivered = number + 1
        if self._is_noted(self._num_delivered):
            raise self._forgotten()  # no local variable: it would keep itself, and all frames

    def finish(self) -> None:
        """Wait until it is known of all batches so far.

        Raises:
            FieldError: One has a fault.
        """
        if self._unknown:
            _, done = next(reversed(self._unknown.values()))
            done.synchronize()
            self.deliver(self._num_batches - 1)

    def untold(self) -> FieldError | None:
        """Return what is known of the batches delivered so far and was not raised."""
        return self._forgotten() if self._is_noted(self._num_delivered) else None

    def _is_noted(self, num_batches: int) -> bool:
        return self.first < int(self.words[FAULT_BATCH]) <= num_batches

    def _forgotten(self) -> FieldError:
        """Return what is noted as an error, and forget it."""
        number = int(self.words[FAULT_BATCH]) - 1
        checked, done = self._unknown[number]
        done.synchronize()  # then the whole note is there
        error = fault_error(self.words, checked)
        error.add_note(f"in step {self._first_step + number - self.first} of this pass")
        self.open()
        return error
