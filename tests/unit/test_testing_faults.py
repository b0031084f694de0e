"""`chaos`: what happens, where, and to whom."""

from __future__ import annotations

import pytest
from support.readers import BrokenError, Watched, counting, taken_until

from gpufeed.errors import FieldError, ReaderError, WorkerDied
from gpufeed.reader import batch, buffered, isolate, repeat
from gpufeed.testing import chaos


@pytest.mark.parametrize("fault", [BrokenError, BrokenError("now")])
def test_an_exception_is_raised_in_place_of_the_sample(fault):
    taken, error = taken_until(buffered(chaos(counting(9), 3, fault), 2))
    assert taken == [0, 1, 2]
    assert isinstance(error, BrokenError)


def test_a_function_gives_another_sample():
    assert list(chaos(counting(4), 2, lambda sample: [sample])) == [0, 1, [2], 3]


def test_it_happens_in_every_pass_and_beyond_no_end():
    assert list(repeat(chaos(counting(2), 1, str), 2)) == [0, "1", 0, "1"]
    assert list(chaos(counting(2), 2, BrokenError)) == [0, 1]


def test_what_is_skipped_does_not_happen():
    reader = chaos(counting(5), 1, BrokenError)
    assert list(reader.open(0, 2)) == [2, 3, 4]


def test_its_source_is_closed():
    source = Watched(9)
    with pytest.raises(BrokenError):
        list(batch(chaos(source, 3, BrokenError), 2))
    assert source.num_open == 0


@pytest.mark.parametrize(
    ("death", "match"),
    [("kill", "SIGKILL"), ("segfault", "SIGSEGV"), ("exit", "3")],
)
def test_a_worker_process_dies(death, match):
    taken, error = taken_until(isolate(chaos(counting(5), 2, death)))
    assert taken == [0, 1]
    assert isinstance(error, WorkerDied)
    assert match in str(error)


def test_a_worker_process_may_hang():
    samples = isolate(chaos(counting(5), 2, "hang"))()
    assert [next(samples), next(samples)] == [0, 1]
    samples.close()


@pytest.mark.parametrize("death", ["kill", "segfault", "exit", "hang"])
def test_the_process_of_the_test_is_spared(death):
    with pytest.raises(ReaderError, match=f"must strike in a worker process, got '{death}'"):
        list(chaos(counting(3), 0, death))


@pytest.mark.parametrize("fault", ["explode", None, 3])
def test_what_is_no_fault(fault):
    with pytest.raises(FieldError, match=r"chaos.fault must be an exception, a function or one of"):
        chaos(counting(3), 0, fault)


def test_at_is_checked():
    with pytest.raises(FieldError, match=r"chaos.at must be a whole number >= 0, got -1"):
        chaos(counting(3), -1, BrokenError)
