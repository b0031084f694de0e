"""However a loop ends, its threads and iterators end with it; and nothing spins or runs away.

That no thread is left is asserted after every test (`gpufeed_no_leaks`); here also *when*.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from weakref import WeakSet

import pytest
from support.readers import BrokenError, Gate, Watched, counting

import gpufeed as gf
from gpufeed import reader as rd
from gpufeed.errors import ReaderError

PIPELINES = {
    "buffered": lambda source: rd.buffered(source, 4),
    "xmap": lambda source: rd.xmap_readers(abs, source, 2, 4),
    "xmap ordered": lambda source: rd.xmap_readers(abs, source, 2, 4, True),
    "nested": lambda source: rd.batch(
        rd.buffered(rd.map_readers(abs, rd.xmap_readers(abs, rd.buffered(source, 3), 2, 2)), 2), 2
    ),
    "side by side": lambda source: rd.compose(rd.buffered(source, 2), rd.buffered(source, 5)),
    "repeated": lambda source: rd.repeat(rd.chain(rd.buffered(source, 2), source)),
}


def threads() -> list[str]:
    """The names of living threads of readers; kernels that warm up are none of theirs."""
    of_readers = ("gpufeed-buffered", "gpufeed-xmap")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(of_readers)]


def assert_over(source: Watched) -> None:
    assert threads() == []
    assert source.num_open == 0


@pytest.fixture(params=PIPELINES)
def pipeline(request):
    source = Watched(10**9)
    return source, PIPELINES[request.param](source)


def test_leaving_a_loop(pipeline):
    source, reader = pipeline
    for _ in range(3):
        for _ in reader:
            assert threads()
            break
        assert_over(source)


def test_an_exception_in_a_loop(pipeline):
    source, reader = pipeline

    def train():
        for _ in reader:
            raise BrokenError

    with pytest.raises(BrokenError):
        train()
    gc.collect()
    assert_over(source)


def test_dropping_an_iterator(pipeline):
    source, reader = pipeline
    samples = reader()
    next(samples)
    del samples
    assert_over(source)


def test_an_iterator_in_a_cycle(pipeline):
    source, reader = pipeline
    samples = reader()
    next(samples)
    cycle = [samples]
    cycle.append(cycle)
    del samples, cycle
    gc.collect()
    assert_over(source)


def test_closing_the_reader(pipeline):
    source, reader = pipeline
    samples = reader()
    next(samples)
    reader.close()
    assert_over(source)
    assert list(samples) == []


def test_an_iterator_that_was_never_begun(pipeline):
    source, reader = pipeline
    samples = reader()
    assert_over(source)
    del samples


def test_the_end_of_the_data(pipeline):
    source, reader = pipeline
    list(rd.firstn(reader, 20))
    assert_over(source)


def test_closing_what_runs_on_no_other_thread_is_refused_while_a_sample_is_taken():
    gate, taken = Gate(), []

    def source():
        gate.wait()
        yield 1

    reader = rd.firstn(source, 2)
    thread = threading.Thread(target=lambda: taken.extend(reader()))
    thread.start()
    gate.wait_for_arrival()
    with pytest.raises(ReaderError, match="another thread is taking a sample"):
        reader.close()
    gate.open()
    thread.join(10)
    assert taken == [1]


WAITING = {
    "a command": lambda source: source,
    "buffered": lambda source: rd.buffered(source, 2),
    "xmap_readers": lambda source: rd.xmap_readers(str, source, 2, 2, order=True),
    "isolate": rd.isolate,
    "multiprocess_reader": lambda source: rd.multiprocess_reader([source], order=True),
    "two, one of them behind": lambda source: rd.map_readers(
        max, rd.chain(rd.buffered(source, 1), source), rd.buffered(lambda: iter(str, 0), 1)
    ),
    "feeds": lambda source: feeder().decorate_reader(rd.batch(rd.map_readers(int, source), 1)),
}


def feeder():
    with gf.program_guard(gf.Program()):
        return gf.DataFeeder([gf.data("x", [1], "int64")], gf.CPUPlace())


@pytest.mark.parametrize("pipeline", WAITING)
def test_closing_from_another_thread_ends_the_pass_where_a_sample_is_awaited(pipeline):
    reader = WAITING[pipeline](rd.PipeReader(["sh", "-c", "echo 7; exec sleep 100"]))
    first, taken = threading.Event(), []

    def take():
        for sample in reader:
            taken.append(sample)
            first.set()
        taken.append("end")

    thread = threading.Thread(target=take)
    thread.start()
    assert first.wait(30)
    reader.close()
    thread.join(10)
    assert len(taken) == 2
    assert taken[-1] == "end"
    state = reader.state_dict()
    assert (state["delivered"], state["over"]) == (1, False)


NEXT = {
    "buffered": lambda: rd.buffered(counting(3), 1),
    "xmap_readers": lambda: rd.xmap_readers(abs, counting(3), 2, 1),
    "processes": lambda: rd.xmap_readers(abs, counting(3), 2, 1, processes=True),
    "isolate": lambda: rd.isolate(counting(3)),
    "a command": lambda: rd.PipeReader(["seq", "3"]),
}


@pytest.mark.parametrize("stage", NEXT)
def test_closing_where_one_stage_ends_keeps_the_next_from_going_on(stage, monkeypatch):
    monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 30.0)
    gate, taken = Gate(), []

    def source():
        try:
            yield 1
            yield 2
        finally:
            gate.wait()

    reader = rd.chain(rd.firstn(rd.buffered(source, 1), 1), NEXT[stage]())
    thread = threading.Thread(target=lambda: taken.extend(reader()))
    thread.start()
    gate.wait_for_arrival()
    reader.close()
    gate.open()
    thread.join(10)
    assert taken == [1]
    assert not reader._position.is_over
    assert len(list(reader)) == 4


@pytest.mark.parametrize("stage", NEXT)
def test_closing_before_a_stage_has_started_its_workers_ends_the_pass(stage, monkeypatch):
    gate, taken = Gate(), []

    class Ending(WeakSet):
        def add(self, generator):
            super().add(generator)
            gate.open()

    monkeypatch.setattr("gpufeed.device.threads._ending", Ending())
    monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 30.0)

    def starting():
        gate.wait()
        yield from ()

    reader = rd.chain(starting, NEXT[stage]())
    thread = threading.Thread(target=lambda: taken.extend(reader()))
    thread.start()
    gate.wait_for_arrival()
    reader.close()
    thread.join(10)
    assert taken == []
    assert not reader._position.is_over
    assert len(list(reader)) == 3


def test_closing_waits_for_a_sample_of_a_pass_without_workers(monkeypatch):
    """No longer than a second; where it does not come, the pass goes on as if nobody had asked."""
    gate, taken = Gate(), []

    def source():
        yield 1
        gate.wait()
        yield 2

    reader = rd.chain(source, rd.buffered(counting(1), 1))
    thread = threading.Thread(target=lambda: taken.extend(reader()))
    thread.start()
    gate.wait_for_arrival()
    next(other := reader())
    monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 0.01)
    with pytest.raises(ReaderError, match="another thread is taking a sample from it"):
        reader.close()
    assert list(other) == []
    monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 30.0)
    gate.open()
    thread.join(10)
    assert taken == [1, 2, 0]


def test_closing_a_pass_from_within_itself_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 30.0)
    reader = rd.map_readers(lambda sample: reader.close(), counting(3))
    with pytest.raises(ReaderError, match="close of map_readers"):
        next(reader())


def test_a_thread_that_still_takes_samples_at_exit_ends_in_silence():
    """It does not go on as if it had come to the end of the data."""
    script = """
import atexit, threading

def take():
    for _ in rd.buffered(rd.PipeReader(["sh", "-c", "echo 7; exec sleep 100"]), 2):
        first.set()
    print("the end of the data")

first, thread = threading.Event(), threading.Thread(target=take, daemon=True)
atexit.register(thread.join)  # after the hooks of what is imported below

import gpufeed as gf
from gpufeed import reader as rd

thread.start()
first.wait()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize(("process_num", "buffer_size"), [(1, 1), (2, 1), (3, 4), (4, 9)])
def test_the_window_bounds_what_is_read_and_not_delivered(order, process_num, buffer_size):
    source = Watched(200)
    reader = rd.xmap_readers(abs, source, process_num, buffer_size, order)
    for num_delivered, _ in enumerate(reader, start=1):
        source.wait_until_read(min(200, num_delivered + 1))
        assert source.num_read - num_delivered <= process_num + buffer_size


@pytest.mark.parametrize("order", [True, False])
def test_the_window_is_wide_enough_for_every_mapper(order):
    """All mappers are inside the mapper at once, round after round, or the barrier breaks."""
    everybody = threading.Barrier(4)

    def mapper(sample):
        everybody.wait(timeout=10)
        return sample

    reader = rd.xmap_readers(mapper, counting(40), 4, 1, order)
    assert sorted(reader) == list(range(40))


def test_one_slow_sample_holds_back_no_more_than_the_window():
    gate, source = Gate(), Watched(100)

    def mapper(sample):
        if sample == 0:
            gate.wait()
        return sample

    samples = rd.xmap_readers(mapper, source, 2, 6, order=True)()
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(next(samples)))
    thread.start()
    source.wait_until_read(8)
    assert source.num_read == 8
    gate.open()
    thread.join(10)
    assert first == [0]
    assert list(samples) == list(range(1, 100))


def test_waiting_for_a_slow_sample_takes_no_processor_time():
    stall = threading.Event()

    def mapper(sample):
        if sample == 0:
            stall.wait(0.5)
        return sample

    reader = rd.xmap_readers(mapper, counting(50), 4, 8, order=True)
    begin = time.process_time()
    assert list(reader) == list(range(50))
    assert time.process_time() - begin < 0.25


def test_two_passes_of_one_reader_run_side_by_side():
    reader = rd.buffered(counting(50), 3)
    assert list(zip(reader(), reader(), strict=True)) == [(n, n) for n in range(50)]


def run_script(script: str) -> tuple[int, str, float]:
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr, time.monotonic() - begin


PRELUDE = """
import itertools, threading
import gpufeed as gf
from gpufeed import reader as rd
from gpufeed.errors import ReaderError
"""


@pytest.mark.parametrize(
    "pipeline",
    [
        "rd.buffered(itertools.count, 4)",
        "rd.xmap_readers(abs, itertools.count, 2, 4)",
        "rd.batch(rd.buffered(rd.xmap_readers(abs, itertools.count, 2, 4, True), 2), 3)",
    ],
)
@pytest.mark.parametrize("end", ["", "raise KeyError('of the training loop')"])
def test_the_interpreter_exits_with_a_pass_in_the_middle(pipeline, end):
    code, errors, _ = run_script(f"{PRELUDE}samples = {pipeline}()\nnext(samples)\n{end}")
    assert code == (1 if end else 0)
    assert errors.strip().endswith("KeyError: 'of the training loop'" if end else "")
    assert ("Traceback" in errors) == bool(end)


def test_the_interpreter_exits_while_a_reader_never_returns():
    code, errors, _ = run_script(
        PRELUDE
        + """
def source():
    yield 1
    threading.Event().wait()
samples = rd.buffered(source, 4)()
next(samples)
"""
    )
    assert code == 0
    assert "buffered: gpufeed-buffered still runs the reader's or mapper's own code" in errors
    assert "Traceback" not in errors


def test_ctrl_c_reaches_a_consumer_that_waits():
    code, errors, _ = run_script(
        PRELUDE
        + """
import os, signal
never = threading.Event()
def source():
    yield 1
    os.kill(os.getpid(), signal.SIGINT)
    never.wait(0.3)
for _ in rd.buffered(source, 4):
    pass
"""
    )
    assert "KeyboardInterrupt" in errors
    assert code != 0
