"""Threads: their names, their errors, and that they end."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import pytest
from support.readers import BrokenError, Gate, Watched, failing, function_names, taken_until

from gpufeed.device.channel import Channel
from gpufeed.device.threads import ClosedEarly, ThreadGroup, close_iterator, run_ahead


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_the_thread_is_a_daemon_named_after_its_role():
    channel, gate = Channel(), Gate()

    def source():
        gate.wait()
        yield 1

    with ThreadGroup("stage", channel) as group:
        group.start("role", source, channel)
        (thread,) = threads_named("gpufeed-role")
        assert thread.daemon
        gate.open()
        assert list(channel.drain()) == [1]
    assert not threads_named("gpufeed-role")


def test_run_ahead_starts_with_the_first_sample_only():
    source = Watched(10)
    samples = run_ahead("idle", source, 4)
    assert not threads_named("gpufeed-idle")
    assert next(samples) == 0
    samples.close()
    assert source.num_open == 0


def test_run_ahead_reads_no_more_than_its_capacity_and_one_in_hand():
    source = Watched(100)
    for num_taken, _ in enumerate(run_ahead("ahead", source, 8), start=1):
        source.wait_until_read(min(100, num_taken + 4))  # at least half of it
        assert source.num_read - num_taken <= 8 + 1


@pytest.mark.parametrize("opener", [lambda: 1 / 0, lambda: 5])
def test_an_error_of_opening_arrives(opener):
    taken, error = taken_until(run_ahead("opening", opener, 2))
    assert taken == []
    assert isinstance(error, (ZeroDivisionError, TypeError))


def test_an_error_of_iterating_arrives_with_its_traceback():
    taken, error = taken_until(run_ahead("failing", failing(3), 2))
    assert taken == [0, 1, 2]
    assert isinstance(error, BrokenError)
    assert "read_until_broken" in function_names(error)


def test_an_error_of_closing_arrives():
    class Unclosable:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

        def close(self):
            raise BrokenError

    assert isinstance(taken_until(run_ahead("closing", Unclosable, 2))[1], BrokenError)


def test_the_source_is_closed_on_its_own_thread():
    closed_on = []

    def source():
        try:
            yield from range(100)
        finally:
            closed_on.append(threading.current_thread().name)

    samples = run_ahead("closer", source, 2)
    next(samples)
    samples.close()
    assert closed_on == ["gpufeed-closer"]


def test_dropping_the_iterator_ends_the_thread():
    samples = run_ahead("dropped", lambda: iter(int, 1), 4)
    next(samples)
    (thread,) = threads_named("gpufeed-dropped")
    del samples
    assert not thread.is_alive()


def test_the_garbage_collector_ends_the_thread_of_an_iterator_in_a_cycle():
    samples = run_ahead("cycle", lambda: iter(int, 1), 4)
    next(samples)
    (thread,) = threads_named("gpufeed-cycle")
    cycle = {"samples": samples}
    cycle["self"] = cycle
    alive = weakref.ref(samples)
    del samples, cycle
    gc.collect()
    assert alive() is None
    assert not thread.is_alive()


def test_a_collection_on_the_worker_itself_ends_it():
    box, gate = [], Gate()

    def source():
        yield 0
        gate.wait()
        box.clear()  # the last reference to the consumer's iterator dies on this thread
        yield from iter(int, 1)

    samples = run_ahead("collected", source, 1)
    next(samples)
    (thread,) = threads_named("gpufeed-collected")
    box.append(samples)
    del samples
    gate.open()
    thread.join(10)
    assert not thread.is_alive()


def test_a_thread_in_the_users_own_call_is_waited_for_and_then_named():
    gate = Gate()

    def source():
        yield 0
        gate.wait()

    samples = run_ahead("stuck", source, 2)
    next(samples)
    gate.wait_for_arrival()
    with pytest.warns(RuntimeWarning, match="stuck: gpufeed-stuck still runs"):
        samples.close()
    gate.open()


def test_close_is_idempotent_and_waits_once():
    gate, channel = Gate(), Channel()
    group = ThreadGroup("twice", channel)
    group.start("twice", lambda: iter([gate.wait()]), channel)
    with pytest.warns(RuntimeWarning, match="twice"):
        group.close()
    group.close()
    gate.open()


def test_a_delivered_error_leaves_no_cycle():
    gc.collect()
    gc.disable()
    try:
        error = taken_until(run_ahead("failing", failing(1), 2))[1]
        alive = weakref.ref(error)
        del error
        assert alive() is None
    finally:
        gc.enable()


def test_what_cannot_be_closed_is_left_alone():
    close_iterator(iter([1, 2]))


def test_a_stage_that_is_closed_from_outside_has_not_ended():
    ends = []

    def inner():
        source = run_ahead("inner", itertools.count, 2)
        try:
            yield from source
        except ClosedEarly:
            ends.append("closed")
            raise
        ends.append("ended")

    while not ends:  # where its own thread waits for room, it is closed in order
        outer = run_ahead("outer", inner, 2)
        next(outer)
        outer.close()
    assert set(ends) == {"closed"}


def test_a_group_that_is_closed_says_so():
    group = ThreadGroup("none")
    group.require_open()
    group.close()
    with pytest.raises(ClosedEarly):
        group.require_open()
