"""`assert_resumes_exactly`: passes for what resumes, and fails for each way not to."""

from __future__ import annotations

import itertools

import pytest
from support.readers import Watched, counting

from gpufeed import DataFeeder, Program, ReaderError, data, program_guard
from gpufeed.reader import Reader, batch, buffered, map_readers, repeat, shuffle, xmap_readers
from gpufeed.testing import assert_resumes_exactly


class Wrong(Reader[int]):
    """Five samples, but not everything about them is as it should be."""

    def __init__(self, fault: str) -> None:
        super().__init__("wrong")
        self.fault = fault
        self.state = None

    def open(self, epoch, skip):
        if self.fault == "skips one too few":
            skip = max(0, skip - 1)
        if self.fault == "forgets the epoch" and skip:
            epoch += 1
        return iter([(epoch, number) for number in range(skip, 5)])

    def load_state_dict(self, state):
        super().load_state_dict(state)
        if self.fault == "stays in the epoch":
            self.stay = True

    def __call__(self):
        if getattr(self, "stay", False) and self._is_started:
            self.set_epoch(self._position.epoch)
        return super().__call__()

    def state_dict(self):
        state = super().state_dict()
        if self.fault == "counts its calls":
            self.num_calls = state["num_calls"] = getattr(self, "num_calls", 0) + 1
        if self.fault == "keeps an object":
            state["object"] = object()
        return state


def test_what_resumes_passes():
    assert_resumes_exactly(lambda: Wrong("nothing"))
    assert_resumes_exactly(lambda: batch(shuffle(counting(11), 4, seed=2), 3))


def test_other_pipelines_may_take_over():
    def make(num_threads):
        if not num_threads:
            return map_readers(str, counting(6))
        return buffered(xmap_readers(str, counting(6), num_threads, 3, order=True), 2)

    assert_resumes_exactly(lambda: make(4), lambda: make(0), lambda: make(7))


def test_feeds_are_compared():
    with program_guard(Program()):
        feeder = DataFeeder([data("x", [1], dtype="int64", lod_level=1)], "cpu")
    samples = batch(shuffle(lambda: (([n] * n,) for n in range(7)), 3, seed=1), 2)

    assert_resumes_exactly(
        lambda: feeder.decorate_reader(samples), lambda: feeder.decorate_reader(samples, prefetch=0)
    )


def test_an_endless_pipeline_is_looked_at_for_so_long():
    assert_resumes_exactly(lambda: repeat(shuffle(counting(3), 3, seed=1)), num_samples=7)


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        ("skips one too few", r"the pipeline, resumed before sample 1: the rest: lengths 5 and 4"),
        ("forgets the epoch", r"resumed before sample 1: the rest\[0\]\[0\]: 1 is not 0"),
        ("stays in the epoch", r"resumed before sample 0: the next pass\[0\]\[0\]: 0 is not 1"),
        ("counts its calls", r"resumed before sample 1: its state is .* not the one that it loa"),
    ],
)
def test_what_does_not_resume_fails(fault, match):
    with pytest.raises(AssertionError, match=match):
        assert_resumes_exactly(lambda: Wrong(fault))


def test_a_state_must_be_json():
    with pytest.raises(TypeError, match="JSON serializable"):
        assert_resumes_exactly(lambda: Wrong("keeps an object"))


def test_another_pipeline_that_does_not_fit_is_refused():
    with pytest.raises(ReaderError, match="fingerprint"):
        assert_resumes_exactly(lambda: batch(counting(5), 2), lambda: batch(counting(5), 3))


def test_another_pipeline_that_goes_on_otherwise_is_named():
    numbers = itertools.count()

    def other():
        return map_readers(lambda sample: next(numbers) + 100, counting(3))

    with pytest.raises(AssertionError, match=r"others\[1\], resumed before sample 0: the rest"):
        assert_resumes_exactly(lambda: map_readers(abs, counting(3)), counted, other)


def test_a_pipeline_is_no_function_that_makes_one():
    with pytest.raises(TypeError, match=r"must return a new pipeline .*, got <generator"):
        assert_resumes_exactly(counted())
    with pytest.raises(ValueError, match=r"num_samples must be a whole number >= 0, got -1"):
        assert_resumes_exactly(counted, num_samples=-1)


def counted():
    return map_readers(abs, counting(3))


def test_nothing_stays_open():
    source = Watched(6)
    assert_resumes_exactly(lambda: buffered(source, 2), num_samples=3)
    assert source.num_open == 0
