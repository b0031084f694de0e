"""Tests of gpufeed.device.faults: which notes count, when they are raised, and what they say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gpufeed.device.faults import Faults
from gpufeed.device.virtual import VirtualEvent
from gpufeed.errors import FieldError

PLAN = SimpleNamespace(names=["seen", "price"], is_checked_on_device=True)


@pytest.fixture
def faults():
    return Faults(np.zeros(5, np.int64))


def note(faults, number, index=9):
    faults.words[:] = 1 + number, 1, 3, index, 7


def test_batches_are_numbered_through_all_passes(faults):
    assert [faults.begin(PLAN) for _ in range(2)] == [0, 1]
    faults.open(0)
    assert (faults.begin(PLAN), faults.first) == (2, 2)


def test_a_fault_is_raised_with_its_batch_or_a_later_one_and_once(faults):
    faults.open(10)
    for _ in range(4):
        faults.begin(PLAN)
    note(faults, 2)
    faults.raise_until(1)
    with pytest.raises(FieldError) as caught:
        faults.raise_until(3)
    assert str(caught.value) == "field 'price', row 3: expected indices in [0, 7), got 9"
    assert caught.value.__notes__ == ["in step 12 of this pass"]
    faults.raise_until(3)


def test_batches_of_no_pass_have_no_step(faults):
    faults.begin(PLAN)
    note(faults, 0)
    with pytest.raises(FieldError) as caught:
        faults.raise_until(0)
    assert not hasattr(caught.value, "__notes__")


def test_what_an_earlier_pass_left_is_no_fault_of_this_one(faults):
    faults.begin(PLAN)
    faults.open(0)
    note(faults, 0)
    assert not faults.is_known(faults.begin(PLAN))


def test_at_the_end_it_waits_until_all_is_known(faults):
    event = VirtualEvent()
    faults.open(0)
    faults.begin(PLAN)
    faults.raise_at_the_end()  # nothing is checked yet
    note(faults, 0)
    faults.known_at = event
    event.set(None)
    with pytest.raises(FieldError, match="got 9"):
        faults.raise_at_the_end()
