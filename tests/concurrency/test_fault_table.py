"""Whatever goes wrong in a stage: the samples before it arrive, then an error that says what.

The rows are faults at sample `AT`, the columns are stages, and every cell is looked at by one who
takes all there is. Those who leave early are told apart from it by what they leave: a stage in the
middle of its work, one that will never return, and one that has failed already. The cells of a row
are looked at side by side: what takes long is to start processes.

That no thread, process, shared memory or descriptor is left is asserted after every test.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from support.at_once import at_once
from support.readers import BrokenError, taken_until

from gpufeed import reader as rd
from gpufeed.errors import ReaderTimeout, WorkerDied

AT = 3
NUM = 6
HUGE = 5_000_000


def raises():
    raise BrokenError(AT)


def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def exits():
    os._exit(3)


def never_returns():
    threading.Event().wait()


def is_huge():
    return np.full(HUGE, 1.5, np.float32)


def is_none():
    return None


def is_no_sample():
    return threading.Lock()


def with_fault(fault):
    """A mapper that has the fault at sample `AT`, or several where a dict says."""
    faults = fault if isinstance(fault, dict) else {AT: fault}

    def mapper(sample):
        return faults[sample]() if sample in faults else sample

    return mapper


def reader_of(fault):
    mapper = with_fault(fault)

    def read():
        for sample in range(NUM):
            yield mapper(sample)

    return read


def numbers():
    return range(NUM)


IN_PROCESSES = {
    "xmap": lambda fault, **options: rd.xmap_readers(
        with_fault(fault), numbers, 2, 4, processes=True, **options
    ),
    "xmap ordered": lambda fault, **options: rd.xmap_readers(
        with_fault(fault), numbers, 2, 4, True, processes=True, **options
    ),
    "multiprocess_reader": lambda fault, **options: rd.multiprocess_reader(
        [reader_of(fault)], **options
    ),
    "multiprocess_reader ordered": lambda fault, **options: rd.multiprocess_reader(
        [reader_of(fault), numbers], order=True, **options
    ),
    "isolate": lambda fault, **options: rd.isolate(reader_of(fault), **options),
    "isolate, a chain": lambda fault, **options: rd.isolate(
        rd.firstn(rd.map_readers(with_fault(fault), numbers), 100), **options
    ),
}
ON_THREADS = {
    "xmap on threads": lambda fault, **options: rd.xmap_readers(
        with_fault(fault), numbers, 2, 4, **options
    ),
    "xmap on threads ordered": lambda fault, **options: rd.xmap_readers(
        with_fault(fault), numbers, 2, 4, True, **options
    ),
}
IN_PLACE = {
    "buffered": lambda fault: rd.buffered(reader_of(fault), 2),
    "chain": lambda fault: rd.chain(reader_of(fault)),
    "compose": lambda fault: rd.map_readers(lambda row: row[0], rd.compose(reader_of(fault))),
    "filter": lambda fault: rd.filter(lambda sample: True, reader_of(fault)),
    "firstn": lambda fault: rd.firstn(reader_of(fault), 100),
    "map_readers": lambda fault: rd.map_readers(with_fault(fault), numbers),
    "shuffle": lambda fault: rd.shuffle(reader_of(fault), 1, seed=0),
}
ALL = {**IN_PROCESSES, **ON_THREADS, **IN_PLACE}
# Both readers of the ordered merge give their samples in turn.
BEFORE = {"multiprocess_reader ordered": [0, 0, 1, 1, 2, 2]}


def before(stage: str) -> list[int]:
    return BEFORE.get(stage, list(range(AT)))


def test_it_raises():
    def check(stage):
        taken, error = taken_until(ALL[stage](raises))
        assert sorted(set(taken) & set(range(AT))) == list(range(AT))
        if "xmap" not in stage or "ordered" in stage:
            assert taken == before(stage)
        assert type(error) is BrokenError
        assert error.args == (AT,)
        if stage in IN_PROCESSES:
            (note,) = error.__notes__
            told = rf"raised in process \d+, at sample {AT}:\n.*in raises\n"
            assert re.search(told, note, re.DOTALL)

    at_once(check, zip(ALL))


DEATHS = [
    (is_killed, r"was killed by SIGKILL \(as the system does when memory runs out\)"),
    (crashes, "was killed by SIGSEGV"),
    (exits, "exited with status 3"),
]
# Each fault in each column, but for what is the same to all: there, one of each kind of worker.
ONE_OF_EACH = ["xmap ordered", "isolate"]


@pytest.mark.parametrize(("fault", "how"), DEATHS)
def test_its_process_dies(fault, how):
    def check(stage):
        begin = time.monotonic()
        taken, error = taken_until(ALL[stage](fault))
        assert sorted(set(taken) & set(range(AT))) == list(range(AT))
        if "xmap" not in stage or "ordered" in stage:
            assert taken == before(stage)
        assert type(error) is WorkerDied
        name = stage.partition(" ")[0].rstrip(",").replace("xmap", "xmap_readers")
        assert re.fullmatch(rf"{name}: worker \d+ {how}, at sample {AT}", str(error))
        assert time.monotonic() - begin < 20  # what matters is that it is no timeout that tells

    at_once(check, zip(IN_PROCESSES if fault is is_killed else ONE_OF_EACH))


def test_it_never_returns_with_a_timeout():
    def check(stage):
        samples = ALL[stage](never_returns, timeout_s=0.5)()
        taken, error = taken_until(samples)
        assert set(before(stage)) <= set(taken)
        assert type(error) is ReaderTimeout
        assert re.search(rf"no sample arrived in 0.5 s; .*worker \d+ is at sample {AT}", str(error))

    at_once(check, zip(IN_PROCESSES))


def test_a_huge_sample_and_none_are_samples():
    def check(stage):
        taken = list(ALL[stage]({AT: is_huge, AT + 1: is_none}))
        (huge,) = (sample for sample in taken if isinstance(sample, np.ndarray))
        assert huge.nbytes == HUGE * 4
        assert huge[0] == huge[-1] == 1.5
        assert sum(sample is None for sample in taken) == 1
        assert len(taken) == (2 * NUM if stage in BEFORE else NUM)

    at_once(check, zip(ALL))


def test_what_is_no_sample_for_another_process():
    def check(stage):
        taken, error = taken_until(ALL[stage](is_no_sample))
        assert set(before(stage)) <= set(taken)
        with pytest.raises(RuntimeError, match=f"sample {AT} must be picklable .* got a lock"):
            raise error

    at_once(check, zip(IN_PROCESSES))


AT_CREATION = {
    "buffered": lambda reader: rd.buffered(reader, 2),
    "isolate": rd.isolate,
    "isolate, a chain": lambda reader: rd.isolate(rd.firstn(reader, 2)),
    "multiprocess_reader": lambda reader: rd.multiprocess_reader([numbers, reader], order=True),
    "xmap": lambda reader: rd.xmap_readers(abs, reader, 2, 4, processes=True),
    "xmap on threads": lambda reader: rd.xmap_readers(abs, reader, 2, 4),
}


def test_a_reader_that_fails_when_called():
    def check(stage):
        taken, error = taken_until(AT_CREATION[stage](raises))
        assert taken in ([], [0])
        assert type(error) is BrokenError

    at_once(check, zip(AT_CREATION))


def test_a_reader_that_returns_no_iterable():
    def check(stage):
        taken, error = taken_until(AT_CREATION[stage](lambda: 5))
        assert taken in ([], [0])
        with pytest.raises(TypeError, match=r"lambda> must return an iterable of samples, got 5"):
            raise error

    at_once(check, zip(AT_CREATION))


def leave_by_break(samples):
    for _ in samples:
        break
    samples.close()


def leave_by_error(samples):
    def train():
        for _ in samples:
            raise BrokenError

    with pytest.raises(BrokenError):
        train()
    samples.close()


def leave_to_the_collector(samples):
    next(samples)
    cycle = [samples]
    cycle.append(cycle)
    del samples, cycle
    gc.collect()


LEAVING = [leave_by_break, leave_by_error, leave_to_the_collector]


@pytest.mark.parametrize("leave", LEAVING)
def test_leaving_one_that_never_returns(leave):
    """It comes back, and nothing is left behind, for which the fixture of all tests looks."""

    def check(stage):
        leave(ALL[stage](never_returns)())

    at_once(check, zip(IN_PROCESSES if leave is leave_by_break else ONE_OF_EACH))


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("fault", [is_none, raises])
def test_leaving_early(fault, leave):
    """Nothing is left behind, and a fault that nobody comes to is no error."""

    def check(stage):
        leave(ALL[stage](fault)())

    at_once(check, zip([*IN_PLACE, *ON_THREADS, "isolate"]))


def test_leaving_through_a_stage_on_a_thread():
    """What waits for a process on a thread is woken there, and nothing is left to warn of."""

    def check(stage):
        samples = rd.buffered(ALL[stage](never_returns), 2)()
        assert next(samples) in (0, 1, 2)
        samples.close()

    at_once(check, zip(IN_PROCESSES))
