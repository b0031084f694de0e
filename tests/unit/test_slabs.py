import gc
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufeed.device.host import aligned_bytes, root_view, view_at
from gpufeed.device.slabs import RingClosed, SlabRing, poisoning, size_class
from gpufeed.device.virtual import VirtualEvent, VirtualStream


def event(*, has_passed):
    made = VirtualEvent()
    if has_passed:
        made.set(None)
    return made


def view_of(ring, slab):
    """Lease a slab and return the one view that keeps the lease alive."""
    lease = ring.lease(slab)
    ring.deliver(lease)
    return view_at(root_view(lease), 0, (8,), np.uint8)


@pytest.fixture
def stream():
    made = VirtualStream()
    yield made
    made.close()


class TestSizeClass:
    @given(st.integers(0, 1 << 40))
    def test_fits_and_wastes_a_quarter_at_most(self, nbytes):
        size = size_class(nbytes)
        assert size >= nbytes
        assert size <= max(4096, nbytes * 1.25)
        assert size % 256 == 0

    @given(st.integers(1, 1 << 40))
    def test_is_its_own_class_and_never_falls(self, nbytes):
        assert size_class(size_class(nbytes)) == size_class(nbytes)
        assert size_class(nbytes) <= size_class(nbytes + 1)

    def test_there_are_four_an_octave(self):
        assert len({size_class(n) for n in range((1 << 20) + 1, (1 << 21) + 1, 1024)}) == 4


class TestAcquire:
    def test_gives_what_was_asked_for_or_more(self):
        slab = SlabRing(aligned_bytes).acquire(5000)
        assert slab.nbytes == slab.memory.nbytes == size_class(5000)
        assert slab.is_idle()

    def test_gives_a_released_slab_again(self):
        ring = SlabRing(aligned_bytes)
        slab = ring.acquire(5000)
        ring.release(slab)
        assert ring.acquire(100) is slab
        assert ring.num_made == 1

    @pytest.mark.parametrize("depth", [1, 2, 4])
    def test_makes_depth_and_two_more(self, depth):
        ring = SlabRing(aligned_bytes, depth)
        slabs = [ring.acquire(1) for _ in range(depth + 2)]
        assert len({id(slab) for slab in slabs}) == ring.num_made == ring.num_taken == depth + 2

    def test_then_waits_until_one_comes_back(self):
        ring = SlabRing(aligned_bytes, 1)
        slabs = [ring.acquire(1) for _ in range(3)]
        taken = []
        producer = threading.Thread(target=lambda: taken.append(ring.acquire(1)))
        producer.start()
        assert not taken
        ring.release(slabs[1])
        producer.join()
        assert taken == [slabs[1]]
        assert ring.num_made == 3
        assert ring.blocked_s >= 0

    def test_takes_an_idle_slab_first(self):
        ring = SlabRing(aligned_bytes, 2)
        busy, idle = ring.acquire(1), ring.acquire(1)
        ring.release(busy, event(has_passed=False))
        ring.release(idle, event(has_passed=True))
        assert ring.acquire(1) is idle

    def test_makes_a_new_one_before_it_takes_a_busy_one(self):
        ring = SlabRing(aligned_bytes, 1)
        busy = [ring.acquire(1), ring.acquire(1)]
        pending = event(has_passed=False)
        for slab in busy:
            ring.release(slab, pending)
        assert ring.acquire(1) not in busy
        assert ring.acquire(1) is busy[0]  # the oldest: its readers are done first
        assert busy[0].busy == [pending]
        assert ring.num_made == 3

    def test_grows_to_the_largest_batch_and_stays_there(self):
        ring = SlabRing(aligned_bytes, 1)
        for nbytes in [1, 100_000, 5000, 99_999, 1]:
            ring.release(ring.acquire(nbytes))
        assert ring.num_made == 2
        slabs = [ring.acquire(1) for _ in range(3)]
        assert sorted(slab.nbytes for slab in slabs) == [4096, *[size_class(100_000)] * 2]

    def test_replaces_a_slab_that_is_outgrown_once_its_readers_are_done(self):
        ring = SlabRing(aligned_bytes, 0)
        small = [ring.acquire(1), ring.acquire(1)]
        memory = weakref.ref(small[0].memory)
        pending = event(has_passed=False)
        while small:
            ring.release(small.pop(0), pending)
        taken = []
        producer = threading.Thread(target=lambda: taken.append(ring.acquire(10_000)))
        producer.start()
        assert not taken
        assert memory() is not None
        pending.set(None)
        producer.join()
        assert taken[0].nbytes == size_class(10_000)
        assert memory() is None
        assert ring.nbytes == 4096 + size_class(10_000)

    @given(st.lists(st.integers(1, 1 << 20), max_size=60), st.integers(0, 3))
    def test_makes_at_most_one_round_of_slabs_a_size_class(self, sizes, depth):
        ring = SlabRing(np.empty, depth)
        for nbytes in sizes:
            ring.release(ring.acquire(nbytes))
        assert ring.num_made <= (depth + 2) * len({size_class(n) for n in sizes})
        assert ring.num_taken == 0


class TestAcquireIdle:
    def test_gives_a_slab_that_may_be_written(self):
        ring = SlabRing(aligned_bytes, 0)
        assert ring.acquire_idle(1).is_idle()
        assert not ring.is_waiting_for_stream
        assert ring.blocked_s == 0

    def test_waits_for_the_stream_that_reads_it_and_counts_the_time(self):
        ring, pending = SlabRing(aligned_bytes, 0), event(has_passed=False)
        waits = []

        class Watched:
            def query(self):
                return pending.query()

            def synchronize(self):
                waits.append(ring.is_waiting_for_stream)
                pending.synchronize()

        busy = [ring.acquire(1), ring.acquire(1)]
        for slab in busy:
            ring.release(slab, Watched())
        taken = []
        producer = threading.Thread(target=lambda: taken.append(ring.acquire_idle(1)))
        producer.start()
        assert not taken
        pending.set(None)
        producer.join()
        assert taken == [busy[0]]
        assert waits == [True]
        assert not ring.is_waiting_for_stream
        assert ring.blocked_s > 0

    def test_a_ring_that_is_closed_meanwhile_refuses_and_loses_no_slab(self):
        ring = SlabRing(aligned_bytes, 0)

        class ClosesTheRing:
            def query(self):
                return False

            def synchronize(self):
                ring.close()

        for slab in [ring.acquire(1), ring.acquire(1)]:
            ring.release(slab, ClosesTheRing())
        with pytest.raises(RingClosed):
            ring.acquire_idle(1)
        assert ring.num_taken == 0

    def test_a_copy_that_failed_is_raised_and_loses_no_slab(self):
        ring, failed = SlabRing(aligned_bytes, 0), event(has_passed=False)
        failed.set(OSError("bus error"))
        ring.release(ring.acquire(1), failed)
        with pytest.raises(OSError, match="bus error"):
            ring.acquire_idle(1)
        assert ring.num_taken == 0


class TestAllocationFails:
    def room_for(self, nbytes):
        def allocate(asked):
            if asked > nbytes:
                raise MemoryError(asked)
            return aligned_bytes(asked)

        return allocate

    def test_the_ring_goes_on_with_smaller_batches(self):
        ring = SlabRing(self.room_for(1 << 20), 1)
        with pytest.raises(MemoryError):
            ring.acquire(1 << 21)
        slabs = [ring.acquire(5000) for _ in range(3)]
        assert {slab.nbytes for slab in slabs} == {size_class(5000)}
        assert ring.num_taken == 3

    def test_a_slab_that_made_room_is_no_longer_counted(self):
        ring = SlabRing(self.room_for(1 << 20), 0)
        small = [ring.acquire(1), ring.acquire(1)]
        ring.release(small.pop())
        with pytest.raises(MemoryError):
            ring.acquire(1 << 21)
        assert ring.nbytes == 4096
        assert ring.num_taken == 1
        assert ring.acquire(1).nbytes == 4096


class TestLease:
    def test_a_finalizer_only_enqueues(self):
        ring = SlabRing(aligned_bytes, 0)
        view = view_of(ring, ring.acquire(1))
        with ring._lock:  # in the middle of a held lock, on another thread
            thread = threading.Thread(target=gc.collect)
            view = [view]
            thread.start()
            view.clear()
            thread.join(10)
            assert not thread.is_alive()
            assert ring.num_taken == ring.num_held == 1
        ring.recycle()
        assert ring.num_taken == ring.num_held == 0

    def test_dies_with_the_last_view(self):
        ring = SlabRing(aligned_bytes, 0)
        first = view_of(ring, ring.acquire(1))
        second = first[1:].reshape(-1)
        del first
        ring.recycle()
        assert ring.num_taken == 1
        del second
        ring.recycle()
        assert ring.num_taken == 0

    def test_shows_no_memory_that_is_not_the_hosts(self):
        class DeviceBytes:
            nbytes = 4096

        ring = SlabRing(lambda nbytes: DeviceBytes())
        lease = ring.lease(ring.acquire(1))
        assert not hasattr(lease, "__array_interface__")

    def test_comes_back_busy_until_its_content_and_its_readers_are_done(self, stream):
        ring = SlabRing(aligned_bytes, 0)
        lease = ring.lease(ring.acquire(1))
        ready, latch = event(has_passed=False), threading.Event()
        lease.ready_at(ready)
        ring.deliver(lease, stream)
        stream.call(latch.wait)
        del lease
        ring.recycle()
        other, slab = ring.acquire(1), ring.acquire(1)
        assert not slab.is_idle()
        ready.set(None)
        assert not slab.is_idle()
        latch.set()
        slab.wait()
        assert slab.is_idle()
        assert slab is not other

    def test_one_event_a_stream_however_many_died(self, stream):
        ring = SlabRing(aligned_bytes)
        leases = [ring.lease(ring.acquire(1)) for _ in range(4)]
        for lease in leases:
            ring.deliver(lease, stream)
        records, record = [], stream.record
        stream.record = lambda: records.append(record()) or records[-1]
        del lease
        leases.clear()
        ring.recycle()
        assert len(records) == 1
        assert all(slab.busy == records for slab in ring._free)

    def test_comes_back_once_a_stream_that_read_it_is_no_longer_captured(self, stream):
        ring = SlabRing(aligned_bytes, 0)
        lease = ring.lease(ring.acquire(1))
        ring.deliver(lease, stream)
        del lease
        with stream.capture():
            ring.recycle()
            assert (ring.num_taken, ring.num_held) == (1, 1)
        ring.recycle()
        assert (ring.num_taken, ring.num_held, ring.leased_nbytes) == (0, 0, 0)

    def test_record_stream_adds_a_reader_once(self, stream):
        other = VirtualStream()
        ring = SlabRing(aligned_bytes, as_stream=lambda named: named)
        lease = ring.lease(ring.acquire(1))
        ring.deliver(lease, stream)
        for named in (other, other, stream, None):
            lease.record_stream(named)
        latch = threading.Event()
        other.call(latch.wait)
        del lease
        ring.recycle()
        (slab,) = ring._free
        assert len(slab.busy) == 2
        assert not slab.is_idle()
        latch.set()
        slab.wait()
        other.close()

    def test_is_read_until_the_step_after_its_death_not_its_delivery(self, stream):
        ring = SlabRing(aligned_bytes, 0)
        lease = ring.lease(ring.acquire(1))
        ring.deliver(lease, stream)
        latch = threading.Event()
        stream.call(latch.wait)  # after the delivery, before the death
        del lease
        ring.recycle()
        assert not ring._free[0].is_idle()
        latch.set()

    def test_two_threads_may_recycle_at_once(self):
        ring = SlabRing(aligned_bytes)

        def use():
            for _ in range(300):
                view_of(ring, ring.acquire(1))
                ring.recycle()

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ring.recycle()
        assert ring.num_taken == ring.num_held == 0


class TestBorrowed:
    """Memory that another process has written, and writes again."""

    def borrow(self, ring):
        memory = aligned_bytes(64)
        lease = ring.borrow(memory)
        ring.deliver(lease)
        return weakref.ref(memory), view_at(root_view(lease), 8, (8,), np.uint8)

    def test_goes_back_as_soon_as_no_view_is_left(self):
        ring = SlabRing(aligned_bytes, depth=1)
        memory, view = self.borrow(ring)
        part = view[2:]
        del view
        assert memory() is not None
        del part
        assert memory() is None

    def test_is_counted_while_it_is_held_and_never_used_here(self):
        ring = SlabRing(aligned_bytes, depth=1)
        held = [self.borrow(ring)[1] for _ in range(5)]
        assert (ring.num_held, ring.leased_nbytes) == (5, 5 * 64)
        held.clear()
        ring.recycle()
        assert (ring.num_held, ring.leased_nbytes, ring.num_taken, ring.nbytes) == (0, 0, 0, 0)
        ring.release(ring.acquire(64))
        assert ring.num_made == 1


class TestHeldFeeds:
    def test_never_block(self):
        ring = SlabRing(aligned_bytes, 1)
        views = []
        for _ in range(50):
            ring.recycle()
            views.append(view_of(ring, ring.acquire(1)))
        assert ring.num_held == ring.num_taken == 50
        assert len({view.ctypes.data for view in views}) == 50

    def test_give_their_slabs_back_in_the_end(self):
        ring = SlabRing(aligned_bytes, 1)
        views = []
        for _ in range(50):
            ring.recycle()
            views.append(view_of(ring, ring.acquire(1)))
        views.clear()
        ring.recycle()
        ring.close()
        ring.open()
        view_of(ring, ring.acquire(1))
        ring.recycle()
        assert ring.num_held == ring.num_taken == 0
        assert ring.nbytes <= 4 * 4096

    def test_that_come_and_go_in_groups_make_no_slab_in_steady_state(self):
        ring = SlabRing(aligned_bytes, 1)
        made = []
        for _ in range(5):
            group = []
            for _ in range(8):  # as gradient accumulation holds micro-batches
                ring.recycle()
                group.append(view_of(ring, ring.acquire(1)))
            made.append(ring.num_made)
            del group
        assert made[1:] == made[:1] * 4

    def test_memory_that_a_stream_still_reads_is_not_freed(self, stream):
        ring = SlabRing(aligned_bytes)
        latch, leases, memories = threading.Event(), [], []
        for _ in range(12):
            lease = ring.lease(ring.acquire(1))
            ring.deliver(lease, stream)
            leases.append(lease)
            memories.append(weakref.ref(lease._slab.memory))
        stream.call(latch.wait)
        del lease
        leases.clear()
        ring.recycle()
        assert all(memory() is not None for memory in memories)
        latch.set()
        stream.synchronize()
        ring.release(ring.acquire(1))
        assert sum(memory() is not None for memory in memories) < 12


class TestClose:
    def test_wakes_and_refuses_a_waiting_producer(self):
        ring = SlabRing(aligned_bytes, 0)
        slabs = [ring.acquire(1), ring.acquire(1)]
        errors = []

        def produce():
            try:
                ring.acquire(1)
            except RingClosed as error:
                errors.append(error)

        producer = threading.Thread(target=produce)
        producer.start()
        ring.close()
        producer.join()
        assert len(errors) == 1
        assert ring.num_taken == len(slabs) == 2

    def test_refuses_a_later_one_even_if_there_is_a_slab(self):
        ring = SlabRing(aligned_bytes, 0)
        ring.release(ring.acquire(1))
        ring.close()
        ring.close()
        with pytest.raises(RingClosed):
            ring.acquire(1)

    def test_open_serves_again_with_the_same_slabs(self):
        ring = SlabRing(aligned_bytes, 0)
        slab = ring.acquire(1)
        ring.release(slab)
        ring.close()
        ring.open()
        assert ring.acquire(1) is slab

    def test_slabs_that_are_leased_meanwhile_come_back(self):
        ring = SlabRing(aligned_bytes, 0)
        view = view_of(ring, ring.acquire(1))
        ring.close()
        del view
        ring.open()
        ring.recycle()
        assert ring.num_taken == ring.num_held == 0


@pytest.mark.parametrize(("said", "meant"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_poisoning_is_asked_for_by_the_environment(monkeypatch, said, meant):
    monkeypatch.setenv("GPUFEED_POISON", said)
    assert poisoning() is meant


def test_poisoning_is_off_by_default(monkeypatch):
    monkeypatch.delenv("GPUFEED_POISON")
    assert poisoning() is False
