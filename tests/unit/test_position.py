"""A position counts without slowing samples down or keeping them."""

from __future__ import annotations

import gc
import pickle
import weakref

from support.readers import failing, taken_until

from gpufeed.reader.position import Position


class Sample:
    """Something that a weak reference can follow."""


def test_counts_what_was_passed_on():
    position = Position(epoch=3, delivered=5)
    samples = position.count(iter("ab"))
    assert (position.epoch, position.delivered) == (3, 5)
    next(samples)
    assert position.delivered == 6
    assert list(samples) == ["b"]
    assert position.delivered == 7


def test_counts_no_sample_that_failed():
    position = Position()
    assert taken_until(position.count(failing(3)()))[0] == [0, 1, 2]
    assert position.delivered == 3


def test_keeps_no_sample():
    gc.disable()
    try:
        samples = Position().count(Sample() for _ in range(2))
        sample = next(samples)
        alive = weakref.ref(sample)
        del sample
        assert alive() is None
    finally:
        gc.enable()


def test_can_be_pickled():
    position = Position(1, 2)
    next(position.count(iter("a")))
    again = pickle.loads(pickle.dumps(position))
    assert (again.epoch, again.delivered, again.is_over) == (1, 3, False)
    assert pickle.loads(pickle.dumps(Position(is_over=True))).is_over
