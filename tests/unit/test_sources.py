"""Batches in memory of another process: locked once, kept until they were copied, then let go."""

import mmap
import os

import numpy as np
import pytest
from support.feeding import held

from gpufeed.device.sources import InFlight, PageLocks, Source
from gpufeed.device.virtual import VirtualBackend, virtual_devices
from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace
from gpufeed.workers.segment import Segment

NBYTES = 1 << 16


@pytest.fixture
def backend():
    with virtual_devices(1, seed=3, jitter=True):
        yield VirtualBackend(CUDAPlace(0))


@pytest.fixture
def stream(backend):
    made = backend.stream()
    yield made
    made.close()


@pytest.fixture
def locks():
    with PageLocks() as made:
        yield made


def mapped():
    return mmap.mmap(-1, NBYTES)


def source_in(mapping, locks, value=7):
    memory = np.frombuffer(mapping, np.uint8)
    memory[:] = value
    return Source(memory, mapping, locks)


def sent(source, backend, stream):
    """Enqueue the copy of a source; return its event and where it arrives."""
    assert source.lock(backend)
    target = backend.device_memory(NBYTES)
    backend.copy_to_device(source.memory, target, NBYTES, stream)
    return stream.record(), target


class TestPageLocks:
    def test_lock_each_mapping_once(self, backend, locks):
        one, other = mapped(), mapped()
        for mapping in (one, other, one, other):
            assert locks.lock(mapping, backend)
        assert locks.nbytes == 2 * NBYTES
        assert len(backend.page_locks.locked) == 2

    def test_that_are_refused_once_are_not_asked_for_again(self, backend, locks, monkeypatch):
        asked = []
        first = mapped()
        assert locks.lock(first, backend)
        monkeypatch.setattr(VirtualBackend, "page_lock", lambda self, mapping: asked.append(1))
        assert not locks.lock(mapped(), backend)
        assert not locks.lock(mapped(), backend)
        assert (len(asked), locks.nbytes) == (1, NBYTES)
        assert locks.lock(first, backend)

    def test_of_what_was_outgrown_end_with_the_next(self, backend, locks):
        segment = Segment.create("test")
        small = segment.grow(1)
        assert locks.lock(segment.map(small), backend)
        segment.give_up(small)
        large = segment.map(segment.grow(3 * small.nbytes))
        assert locks.lock(large, backend)
        assert (locks.nbytes, len(backend.page_locks.locked)) == (len(large), 1)
        locks.close()
        segment.close()

    def test_end_with_the_pass(self, backend, locks):
        locks.lock(mapped(), backend)
        locks.close()
        locks.close()
        assert (locks.nbytes, backend.page_locks.locked) == (0, [])

    def test_but_not_before_every_copy_is_done(self, backend, stream, locks):
        source, in_flight = source_in(mapped(), locks), InFlight(4)
        with held(stream):
            copied, target = sent(source, backend, stream)
            in_flight.add(source, copied)
            del source
            locks.close()
            assert locks.nbytes == NBYTES
        in_flight.drain()
        assert (locks.nbytes, backend.page_locks.locked) == (0, [])
        assert (target == 7).all()

    def test_too_early_is_told(self, backend, stream):
        """A broken variant: unlocked without a look at what is in flight."""
        mapping, locks = mapped(), PageLocks()
        with held(stream):
            copied, _ = sent(source_in(mapping, locks), backend, stream)
            with pytest.raises(PlaceError, match="must not be read by a copy, got 1 under way"):
                locks.close()
        copied.synchronize()

    def test_a_fork_leaves_them_to_its_parent(self, backend, locks, monkeypatch):
        locks.lock(mapped(), backend)
        with monkeypatch.context() as fork:
            fork.setattr(os, "getpid", lambda: -1)
            locks.close()
        assert locks.nbytes == NBYTES
        locks.close()
        assert locks.nbytes == 0


class TestSource:
    def test_a_copy_of_what_arrived_cannot_be_locked(self, backend, locks):
        assert not Source(np.zeros(8, np.uint8), None, locks).lock(backend)

    def test_is_copied_and_dropped(self, locks):
        source, memory = Source(np.arange(8, dtype=np.uint8), None, locks), np.zeros(16, np.uint8)
        source.copy_to(memory)
        assert memory.tolist() == [*range(8), *[0] * 8]
        assert len(source.memory) == 0


class TestInFlight:
    def test_drops_what_was_copied_and_no_more(self, backend, stream, locks):
        in_flight = InFlight(4)
        first, second = (source_in(mapped(), locks, value) for value in (1, 2))
        copied, _ = sent(first, backend, stream)
        in_flight.add(first, copied)
        copied.synchronize()
        with held(stream):
            in_flight.add(second, sent(second, backend, stream)[0])
            in_flight.make_room()
            assert (len(first.memory), len(second.memory)) == (0, NBYTES)
        in_flight.drain()
        assert len(second.memory) == 0

    def test_waits_for_the_oldest_when_it_is_full(self, backend, stream, locks):
        in_flight = InFlight(2)
        sources = [source_in(mapped(), locks, value) for value in range(5)]
        for number, source in enumerate(sources):
            in_flight.make_room()
            in_flight.add(source, sent(source, backend, stream)[0])
            assert sum(len(each.memory) > 0 for each in sources[: number + 1]) <= 2
        assert in_flight.blocked_s > 0
        in_flight.drain()

    def test_what_was_not_sent_is_dropped_at_once(self, locks):
        source = source_in(mapped(), locks)
        InFlight(2).add(source)
        assert len(source.memory) == 0

    def test_what_a_stream_failed_to_copy_is_let_go_all_the_same(self, backend, stream, locks):
        def fail():
            raise ZeroDivisionError

        in_flight = InFlight(4)
        sources = [source_in(mapped(), locks) for _ in range(3)]
        stream.call(fail)
        for source in sources:
            in_flight.add(source, sent(source, backend, stream)[0])
        with pytest.raises(ZeroDivisionError):
            in_flight.drain()
        locks.close()
        assert [len(source.memory) for source in sources] == [0, 0, 0]
        assert backend.page_locks.locked == []
