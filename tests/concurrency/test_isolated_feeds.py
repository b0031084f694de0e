"""Batches that a process writes straight into page-locked memory: what is copied, when it is used
again, and what is left at the end."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.feeding import LateReader, assert_holds, batch, held, make_feeder, make_reader

from gpufeed.device import virtual_stream
from gpufeed.device.sources import InFlight
from gpufeed.device.virtual import VirtualBackend, virtual_devices
from gpufeed.errors import WorkerDied
from gpufeed.places import CUDAPlace
from gpufeed.workers.segment import MAX_SLOTS

PLACE = CUDAPlace(0)


@pytest.fixture(autouse=True)
def devices():
    with virtual_devices(2, seed=4, jitter=True):
        yield


class Transfers:
    """Notes of each transfer whether it begins in shared memory, and of each lock that there is."""

    def __init__(self, monkeypatch):
        self.are_shared = []
        self.num_locks = self.num_unlocks = 0
        copy, lock = VirtualBackend.copy_to_device, VirtualBackend.page_lock
        unlock = VirtualBackend.page_unlock

        def copy_to_device(backend, source, target, nbytes, to):
            self.are_shared.append(is_shared(source.ctypes.data))
            copy(backend, source, target, nbytes, to)

        def page_lock(backend, mapping):
            self.num_locks += 1
            return lock(backend, mapping)

        def page_unlock(backend, mapping):
            self.num_unlocks += 1
            unlock(backend, mapping)

        monkeypatch.setattr(VirtualBackend, "copy_to_device", copy_to_device)
        monkeypatch.setattr(VirtualBackend, "page_lock", page_lock)
        monkeypatch.setattr(VirtualBackend, "page_unlock", page_unlock)


@pytest.fixture
def transfers(monkeypatch):
    return Transfers(monkeypatch)


def is_shared(address):
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= address < end:
            return "/memfd:" in line or "/dev/shm/" in line
    return False


def isolated(reader, place=PLACE, **options):
    return make_feeder(place).decorate_reader(reader, isolate=True, **options)


def num_host_slabs(reader):
    return [staging.host_ring.num_made for staging in reader._pool._all]


def read_all(reader):
    for number, feed in enumerate(reader):
        assert_holds(feed, batch(number))
    return number + 1


@pytest.mark.parametrize("prefetch", [0, 2])
def test_transfers_begin_where_the_process_wrote(transfers, prefetch):
    reader = isolated(make_reader(12), prefetch=prefetch)
    assert read_all(reader) == 12
    assert transfers.are_shared == [True] * 12
    assert num_host_slabs(reader) == [0]


def test_and_so_they_do_to_many_devices_which_share_the_locks(transfers):
    places = [PLACE, CUDAPlace(1), PLACE]
    reader = isolated(make_reader(12), places, multi_devices=True)
    for step, feeds in enumerate(reader):
        for part, feed in enumerate(feeds):
            assert_holds(feed, batch(3 * step + part))
    assert transfers.are_shared == [True] * 12
    assert transfers.num_locks == transfers.num_unlocks < 12


def test_a_device_and_the_host_may_take_turns(transfers):
    reader = isolated(make_reader(8), ["cpu", PLACE], multi_devices=True)
    for step, feeds in enumerate(reader):
        for part, feed in enumerate(feeds):
            assert_holds(feed, batch(2 * step + part))
    assert transfers.are_shared == [True] * 4


def test_feeds_of_the_host_are_views_of_what_the_process_wrote(transfers):
    for number, feed in enumerate(isolated(make_reader(12), "cpu")):
        assert_holds(feed, batch(number))
        assert is_shared(feed["ids"].data.ctypes.data)
        assert is_shared(feed["label"].data.ctypes.data)
    assert (transfers.are_shared, transfers.num_locks) == ([], 0)


def test_feeds_of_the_host_that_are_kept_do_not_keep_the_process_from_writing():
    feeds = list(isolated(make_reader(MAX_SLOTS // 2 + 20), "cpu"))
    for number, feed in enumerate(feeds):
        assert_holds(feed, batch(number))
    assert is_shared(feeds[0]["ids"].data.ctypes.data)
    assert not is_shared(feeds[-1]["ids"].data.ctypes.data)


def test_no_mapping_is_locked_after_the_first_batches(transfers):
    assert read_all(isolated(make_reader(100))) == 100
    # Two that the process is ahead, four in flight, one between, and as many on their way back.
    assert transfers.num_locks == transfers.num_unlocks <= 14


def test_locked_memory_is_reported(transfers):
    reader = isolated(make_reader(6))
    with closing(reader()) as feeds:
        next(feeds)
        assert reader.stats().pinned_nbytes >= 1 << 18
    assert reader.stats().pinned_nbytes == 0


def test_where_locking_is_refused_batches_are_copied_into_slabs(transfers, monkeypatch):
    monkeypatch.setattr(VirtualBackend, "page_lock", lambda backend, mapping: False)
    reader = isolated(make_reader(12))
    assert read_all(reader) == 12
    assert transfers.are_shared == [False] * 12
    assert num_host_slabs(reader)[0] > 0
    assert transfers.num_unlocks == 0


def stage_all_while_held(num=12):
    """Stage so many batches whose copies are held; return the feeds, once these are released.

    The process is one batch ahead, so it knows of every slot that it may use before it needs one.
    """
    reader = isolated(make_reader(num), prefetch=1)
    (staging,) = stagings = reader._pool.borrow([PLACE], num)
    with closing(reader._reader.open(0, 0)) as batches, held(staging.copy_stream):
        staged = [staging.stage(batch.plan) for batch in batches]
    feeds = [staging.deliver(each) for each in staged]
    staging.drain()
    reader._pool.give_back(stagings, num)
    return feeds


def test_the_process_does_not_write_where_a_copy_still_reads():
    for number, feed in enumerate(stage_all_while_held()):
        assert_holds(feed, batch(number))


def test_and_would_be_found_out_if_it_did(monkeypatch):
    """A broken variant: the process may write again as soon as the copy is enqueued."""
    add = InFlight.add

    def too_early(in_flight, source, *copied):
        add(in_flight, source, *copied)
        source.memory = np.empty(0, np.uint8)

    monkeypatch.setattr(InFlight, "add", too_early)
    labels = [feed["label"].data.ravel().tolist() for feed in stage_all_while_held()]
    assert labels != [[number] * 4 for number in range(12)]


def test_feeds_that_late_streams_read_are_right():
    with virtual_stream(PLACE) as stream:
        late = LateReader(stream)
        for number, feed in enumerate(isolated(make_reader(40))):
            late.read(feed, batch(number), number)
            del feed
        assert late.check() == 120


class TestEnds:
    """The fixture of all tests finds what is left: processes, memory, locks."""

    @pytest.fixture(params=[0, 2], ids="prefetch={}".format)
    def prefetch(self, request):
        return request.param

    def test_a_pass_that_is_left(self, transfers, prefetch):
        reader = isolated(make_reader(1000), prefetch=prefetch)
        for num in (0, 1, 5):
            with closing(reader()) as feeds:
                for number, feed in enumerate(islice(feeds, num)):
                    assert_holds(feed, batch(number))
            assert VirtualBackend.page_locks.locked == []
        assert transfers.num_locks == transfers.num_unlocks > 0

    def test_an_iterator_that_is_collected(self, prefetch):
        feeds = isolated(make_reader(1000), prefetch=prefetch)()
        assert_holds(next(feeds), batch(0))
        del feeds
        gc.collect()
        assert VirtualBackend.page_locks.locked == []

    def test_a_process_that_is_killed(self, prefetch):
        def read():
            yield from map(batch, range(5))
            os.kill(os.getpid(), signal.SIGKILL)

        feeds = isolated(read, prefetch=prefetch)()
        for number in range(5):
            assert_holds(next(feeds), batch(number))
        with pytest.raises(WorkerDied):
            next(feeds)
        assert VirtualBackend.page_locks.locked == []

    def test_a_process_that_is_killed_while_it_writes(self, prefetch):
        class Death:
            def __index__(self):
                os.kill(os.getpid(), signal.SIGKILL)

        def read():
            yield from map(batch, range(3))
            yield [(np.arange(1000), Death())]

        feeds = isolated(read, prefetch=prefetch)()
        for number in range(3):
            assert_holds(next(feeds), batch(number))
        with pytest.raises(WorkerDied):
            next(feeds)
        assert VirtualBackend.page_locks.locked == []

    def test_a_reader_that_raises_with_copies_in_flight(self, prefetch):
        def read():
            yield from map(batch, range(5))
            raise KeyError("no sixth")

        with pytest.raises(KeyError, match="no sixth"):
            list(isolated(read, prefetch=prefetch))
        gc.collect()
        assert VirtualBackend.page_locks.locked == []

    def test_feeds_outlive_the_pass(self, prefetch):
        feeds = list(isolated(make_reader(6), prefetch=prefetch))
        assert VirtualBackend.page_locks.locked == []
        for number, feed in enumerate(feeds):
            assert_holds(feed, batch(number))

    def test_batches_that_outgrow_their_slots(self, transfers, prefetch):
        sizes = [10, 40_000, 20, 80_000, 160_000, 5]
        reader = isolated(
            lambda: ([(np.arange(size) + number, number)] for number, size in enumerate(sizes)),
            prefetch=prefetch,
        )
        for number, feed in enumerate(reader):
            assert feed["ids"].data[-1, 0] == sizes[number] - 1 + number
        assert transfers.are_shared == [True] * len(sizes)
