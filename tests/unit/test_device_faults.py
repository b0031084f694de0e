"""Tests of gpufeed.device.faults: which notes count, when they are raised, and what they say."""

from __future__ import annotations

import numpy as np
import pytest

from gpufeed.device.faults import Faults, fault_error
from gpufeed.device.virtual import VirtualEvent
from gpufeed.errors import FieldError

ROWS = np.array([0, 2, 2, 5])  # of three samples
CHECKED = {1: ("price", (ROWS,))}


class Pass:
    """Batches whose kernels are done one after the other, when the test says so."""

    def __init__(self, faults, first_step=0):
        self.faults, self.done = faults, []
        faults.open(first_step)

    def stage(self):
        number, event = self.faults.begin(), VirtualEvent()
        self.faults.follow(number, CHECKED, event)
        self.done.append(event)
        return number

    def finish(self, number, index=None):
        """Let the kernel of the oldest batch end, which has a fault if there is an index."""
        if index is not None:
            self.faults.words[:] = 1 + number, 1, 3, index, 7
        self.done.pop(0).set(None)


@pytest.fixture
def faults():
    return Faults(np.zeros(5, np.int64))


def test_batches_are_numbered_through_all_passes(faults):
    assert [faults.begin() for _ in range(2)] == [0, 1]
    faults.open(0)
    assert (faults.begin(), faults.first) == (2, 2)


@pytest.mark.parametrize(
    ("lod", "sample"),
    [((), 3), ((ROWS,), 2), ((np.array([0, 0, 3]), ROWS), 1), ((np.array([0, 4]),), 0)],
)
def test_a_note_is_named_by_its_sample(lod, sample):
    error = fault_error(np.array([1, 0, 3, 9, 7]), {0: ("price", lod)})
    assert str(error) == f"field 'price', sample {sample}: expected indices in [0, 7), got 9"


def test_a_fault_is_raised_with_its_batch_or_a_later_one_and_once(faults):
    batches = Pass(faults, 10)
    for _ in range(4):
        batches.stage()
    for number in range(3):
        batches.finish(number, 9 if number == 2 else None)
    faults.deliver(1)
    with pytest.raises(FieldError, match=r"sample 2: .* got 9") as caught:
        faults.deliver(3)
    assert caught.value.__notes__ == ["in step 12 of this pass"]
    faults.deliver(3)
    assert faults.untold() is None


def test_a_note_is_read_once_its_kernel_is_done(faults):
    class Kernel(VirtualEvent):
        """Has begun with its note, and ends when it is waited for."""

        def synchronize(self):
            faults.words[1:] = 1, 3, 9, 7

    number = faults.begin()
    faults.follow(number, CHECKED, Kernel())
    faults.words[0] = 1 + number
    with pytest.raises(FieldError, match=r"'price', sample 2: .* in \[0, 7\), got 9"):
        faults.deliver(number)


def test_what_was_delivered_and_not_raised_can_be_asked_for_once(faults):
    batches = Pass(faults)
    first, second = batches.stage(), batches.stage()
    faults.deliver(first)
    batches.finish(first)
    batches.finish(second, 9)
    assert faults.untold() is None
    faults.deliver(first)  # the second one is still on its way
    batches = Pass(faults)
    third = batches.stage()
    faults.deliver(third)
    batches.finish(third, 8)
    assert "got 8" in str(faults.untold())
    assert faults.untold() is None


def test_what_an_earlier_pass_left_is_no_fault_of_this_one(faults):
    batches = Pass(faults)
    batches.finish(batches.stage(), 9)
    assert faults.words.any()
    faults.open(0)
    faults.deliver(faults.begin())
    assert faults.untold() is None


def test_at_the_end_it_waits_until_all_is_known(faults):
    faults.finish()  # nothing is checked
    batches = Pass(faults)
    batches.finish(batches.stage(), 9)
    with pytest.raises(FieldError, match="got 9"):
        faults.finish()
    faults.finish()


def test_names_are_kept_for_batches_of_which_nothing_is_known(faults):
    batches = Pass(faults)
    for number in range(5):
        batches.stage()
        assert len(faults._unknown) == min(number + 1, 2)
        if number:
            batches.finish(number - 1)


def test_and_for_all_once_one_has_a_fault(faults):
    batches = Pass(faults)
    for number in range(4):
        batches.stage()
        batches.finish(number, 9 if number == 0 else None)
    with pytest.raises(FieldError, match="got 9") as caught:
        faults.deliver(3)
    assert caught.value.__notes__ == ["in step 0 of this pass"]
