import gc
import threading
import weakref

import numpy as np
import pytest
from support.feeding import raw

from gpufeed.device.host_staging import HostStaging
from gpufeed.device.pool import StagingPool
from gpufeed.device.slabs import POISON, RingClosed
from gpufeed.device.staging import DeviceStaging
from gpufeed.device.virtual import VirtualStream, virtual_devices, virtual_stream
from gpufeed.errors import PlaceError
from gpufeed.kernels.jobs import convert_job, table_shape, write_table
from gpufeed.places import CPUPlace, CUDAPlace

CPU, GPU = CPUPlace(), CUDAPlace(0)


class BytesPlan:
    """A batch of one wire array; `widened` adds an unpacked one that holds its values as int64."""

    source = None

    def __init__(self, values, widened=False, error=None):
        self.values = np.asarray(values, np.int32)
        self.error = error
        self.wire_nbytes = 256 + self.values.nbytes
        self.nbytes = 2048 + 2 * self.values.nbytes if widened else self.wire_nbytes
        self.num_launches = int(widened)
        self.checked = {}

    def settle(self, slab_nbytes, remains):
        return None

    def write(self, make):
        if self.error:
            raise self.error
        make(256, self.values.shape, np.int32)[...] = self.values

    def write_table(self, make, number=0, first=0):
        if self.num_launches:
            shape = self.values.shape
            source, target = (256, shape, np.dtype(np.int32)), (2048, shape, np.dtype(np.int64))
            job = convert_job(source, None, None, target)
            write_table(make(0, table_shape(1), np.int64), [(0, job)], number=number, first=first)

    def feed(self, make, lease):
        wire = make(256, self.values.shape, np.int32)
        return [wire, make(2048, self.values.shape, np.int64)] if self.num_launches else [wire]


@pytest.fixture(params=[CPU, GPU], ids=str)
def place(request):
    with virtual_devices(1, seed=1, jitter=True):
        yield request.param


@pytest.fixture
def staging(place):
    made = StagingPool().take(0, place, 1)
    yield made
    close_streams(made)


def close_streams(staging):
    # A fixture's value outlives the test, so its streams would too.
    if isinstance(staging, DeviceStaging):
        staging.copy_stream.close()
        staging.unpack_stream.close()


def feed_once(staging, values, **options):
    staging.recycle()
    return staging.deliver(staging.stage(BytesPlan(values, **options)))


class TestStaging:
    def test_delivers_what_was_written(self, staging):
        (wire,) = feed_once(staging, [1, 2, 3])
        assert wire.tolist() == [1, 2, 3]

    def test_delivers_what_was_unpacked(self, staging):
        wire, unpacked = feed_once(staging, [1, 2, 3], widened=True)
        assert wire.tolist() == [1, 2, 3]
        assert (unpacked.tolist(), unpacked.dtype) == ([1, 2, 3], np.int64)

    def test_delivers_an_empty_batch(self, staging):
        assert feed_once(staging, [])[0].shape == (0,)

    def test_a_delivered_feed_keeps_its_values_as_others_come_and_go(self, staging):
        kept = feed_once(staging, [7] * 100)
        for number in range(20):
            feed_once(staging, [number] * 100)
        assert kept[0].tolist() == [7] * 100

    def test_uses_its_slabs_again(self, staging):
        for number in range(20):
            feed_once(staging, [number] * (1 + number % 5))
        assert sum(ring.num_made for ring in staging.rings) <= 3 * len(staging.rings)
        assert staging.rings[0].num_held == 1

    def test_a_batch_that_cannot_be_written_leaves_the_staging_as_it_was(self, staging):
        for _ in range(10):
            with pytest.raises(ZeroDivisionError):
                feed_once(staging, [1], error=ZeroDivisionError())
        assert feed_once(staging, [1, 2])[0].tolist() == [1, 2]
        gc.collect()  # the error of such a plan holds the plan, and that the error
        staging.recycle()
        assert [ring.num_taken for ring in staging.rings] == [0] * len(staging.rings)

    def test_nor_does_keeping_its_error_block_anything(self, staging):
        kept = []
        for _ in range(10):
            with pytest.raises(ZeroDivisionError) as caught:
                feed_once(staging, [1], error=ZeroDivisionError())
            kept.append(caught.value)
        assert feed_once(staging, [1, 2])[0].tolist() == [1, 2]

    def test_after_close_it_refuses_until_it_is_opened(self, staging):
        feed_once(staging, [1])
        staging.close()
        with pytest.raises(RingClosed):
            feed_once(staging, [2])
        staging.open()
        assert feed_once(staging, [3])[0].tolist() == [3]

    def test_memory_is_poisoned_before_it_is_used_again(self, staging):
        class NothingWritten(BytesPlan):
            def write(self, make):
                pass

        staging.recycle()
        (wire,) = staging.deliver(staging.stage(NothingWritten([0] * 4)))
        assert wire.view(np.uint8).tolist() == [POISON] * 16


class TestDeviceStaging:
    @pytest.fixture
    def staging(self):
        with virtual_devices(1, seed=2, jitter=True):
            made = DeviceStaging(GPU, 1)
            yield made
            close_streams(made)

    @pytest.fixture
    def latch(self, staging):  # opened before the streams are closed
        latch = threading.Event()
        yield latch
        latch.set()

    def test_stage_does_not_wait_for_the_copy(self, staging, latch):
        staging.copy_stream.call(latch.wait)
        staged = staging.stage(BytesPlan([1, 2]))
        assert not staged.ready.query()
        latch.set()
        assert staging.deliver(staged)[0].tolist() == [1, 2]

    def test_the_host_waits_at_deliver_where_the_host_consumes(self, staging):
        staged = staging.stage(BytesPlan([1, 2]))
        staging.deliver(staged)
        assert staged.ready.query()

    def test_a_stream_waits_at_deliver_and_the_host_goes_on(self, staging, latch):
        staging.copy_stream.call(latch.wait)
        seen = []
        with virtual_stream(GPU) as stream:
            feed = staging.deliver(staging.stage(BytesPlan([1, 2])))
            stream.call(lambda: seen.append(feed[0].tolist()))
            assert not seen
            latch.set()
        assert seen == [[1, 2]]

    def test_unpacking_does_not_hold_up_the_next_copy(self, staging, latch):
        staging.unpack_stream.call(latch.wait)
        first = staging.stage(BytesPlan([1], widened=True))
        second = staging.stage(BytesPlan([2]))
        second.ready.synchronize()
        assert not first.ready.query()

    def test_unpacking_comes_after_its_copy(self, staging, latch):
        staging.copy_stream.call(latch.wait)
        staged = staging.stage(BytesPlan([1, 2], widened=True))
        latch.set()
        assert staging.deliver(staged)[1].tolist() == [1, 2]

    def test_a_page_locked_slab_waits_for_its_copy(self, staging, latch):
        class WatchedPlan(BytesPlan):
            def write(self, make):
                written_after_release.append(latch.is_set())
                super().write(make)

        written_after_release = []
        staging.copy_stream.call(latch.wait)
        staged = [staging.stage(WatchedPlan([number])) for number in range(3)]
        del staged[0]
        staging.recycle()
        producer = threading.Thread(
            target=lambda: staged.append(staging.stage(WatchedPlan([3]))), daemon=True
        )
        producer.start()
        latch.set()
        producer.join()
        assert written_after_release == [False, False, False, True]
        assert staging.host_ring.num_made == 3
        assert [staging.deliver(each)[0].tolist() for each in staged] == [[1], [2], [3]]

    def test_a_slab_is_not_overwritten_before_its_stream_is_done(self, staging, latch):
        seen = []
        stream = VirtualStream()
        stream.call(latch.wait)
        for number in range(3):
            feed = staging.deliver(staging.stage(BytesPlan([number] * 4)), stream)
            memory = raw(feed[0])
            stream.call(lambda memory=memory: seen.append(memory.tolist()))
            del feed
            staging.recycle()
        staged = staging.stage(BytesPlan([9] * 4))
        latch.set()
        stream.synchronize()
        assert seen == [[number] * 4 for number in range(3)]
        assert staging.deliver(staged)[0].tolist() == [9] * 4
        stream.close()

    def test_a_consumer_that_is_captured_is_refused(self, staging):
        stream = VirtualStream()
        staging.require_no_capture(stream)
        with stream.capture(), pytest.raises(PlaceError, match=r"cuda:0: .* graph capture"):
            staging.require_no_capture(stream)
        with virtual_stream(GPU) as current, current.capture(), pytest.raises(PlaceError):
            staging.require_no_capture(None)
        staging.require_no_capture(None)
        stream.close()

    def test_a_failed_copy_is_raised_at_deliver(self, staging):
        def fail():
            raise OSError("bus error")

        staging.copy_stream.call(fail)
        staged = staging.stage(BytesPlan([1]))
        with pytest.raises(OSError, match="bus error"):
            staging.deliver(staged)

    def test_no_room_on_the_device_is_one_error_and_smaller_batches_go_on(
        self, staging, monkeypatch
    ):
        allocate = staging.device_ring._allocate

        def allocate_up_to_a_mebibyte(nbytes):
            if nbytes > 1 << 20:
                raise PlaceError("cuda:0: no room")
            return allocate(nbytes)

        monkeypatch.setattr(staging.device_ring, "_allocate", allocate_up_to_a_mebibyte)
        assert feed_once(staging, [1])[0].tolist() == [1]
        with pytest.raises(PlaceError, match="no room"):
            feed_once(staging, np.zeros(1 << 20))
        for number in range(5):
            assert feed_once(staging, [number] * 2000)[0].tolist() == [number] * 2000


class TestStagingPool:
    @pytest.fixture(autouse=True)
    def devices(self):
        with virtual_devices(2):
            yield

    def test_one_for_each_place_even_if_it_repeats(self):
        stagings = StagingPool().borrow([GPU, GPU, CPU], 2)
        assert [staging.place for staging in stagings] == [GPU, GPU, CPU]
        assert len(set(map(id, stagings))) == 3
        assert isinstance(stagings[0], DeviceStaging)
        assert isinstance(stagings[2], HostStaging)

    def test_gives_the_same_ones_to_the_next_pass(self):
        pool = StagingPool()
        places = [GPU, GPU]
        stagings = pool.borrow(places, 2)
        pool.give_back(stagings, 2)
        assert pool.borrow(places, 2) == stagings

    @pytest.mark.parametrize(("places", "depth"), [([GPU], 3), ([CUDAPlace(1)], 2), ([CPU], 2)])
    def test_but_not_to_a_pass_of_another_kind(self, places, depth):
        pool = StagingPool()
        stagings = pool.borrow([GPU], 2)
        pool.give_back(stagings, 2)
        assert pool.borrow(places, depth) != stagings

    def test_two_passes_at_once_share_none(self):
        pool = StagingPool()
        assert pool.borrow([GPU], 2) != pool.borrow([GPU], 2)

    def test_one_pair_of_streams_a_device_serves_all(self):
        pool = StagingPool()
        stagings = [*pool.borrow([GPU, GPU], 2), *pool.borrow([GPU], 1), pool.take(0, GPU, None)]
        other = pool.take(0, CUDAPlace(1), None)
        assert len({id(staging.copy_stream) for staging in stagings}) == 1
        assert len({id(staging.unpack_stream) for staging in stagings}) == 1
        assert other.copy_stream is not stagings[0].copy_stream
        assert stagings[0].copy_stream is not stagings[0].unpack_stream

    def test_so_three_places_on_one_device_run_two_threads(self):
        pool = StagingPool()
        before = threading.active_count()
        stagings = pool.borrow([GPU] * 3, 1)
        feeds = [feed_once(staging, [1], widened=True) for staging in stagings]
        assert threading.active_count() == before + 2
        assert [feed[1].tolist() for feed in feeds] == [[1]] * 3

    def test_which_outlives_every_pass(self):
        pool = StagingPool()
        first = pool.take(0, GPU, 1).copy_stream  # and is not given back
        gc.collect()
        assert pool.take(0, GPU, 1).copy_stream is first

    def test_opens_what_the_last_pass_closed(self):
        pool = StagingPool()
        (staging,) = pool.borrow([CPU], 1)
        staging.close()
        pool.give_back([staging], 1)
        assert pool.borrow([CPU], 1) == [staging]
        assert feed_once(staging, [1])[0].tolist() == [1]

    def test_a_device_that_is_not_there(self):
        with pytest.raises(PlaceError):
            StagingPool().borrow([CUDAPlace(7)], 2)

    def test_counts_over_all_its_stagings(self):
        pool = StagingPool()
        one, other = pool.borrow([CPU, GPU], 1)
        feeds = [feed_once(one, [1]), feed_once(other, [2])]
        assert (pool.num_held, pool.num_slabs, pool.nbytes) == (2, 3, 3 * 4096)
        assert (pool.pinned_nbytes, pool.leased_nbytes) == (4096, 2 * 4096)
        del feeds
        one.recycle()
        assert (pool.num_held, pool.leased_nbytes) == (1, 4096)

    def test_keeps_nothing_alive_that_was_not_given_back(self):
        pool = StagingPool()
        gone = weakref.ref(pool.borrow([CPU], 1)[0])
        gc.collect()
        assert gone() is None
        assert pool.num_slabs == 0

    def test_a_finalizer_may_give_back_inside_the_lock(self):
        pool = StagingPool()
        stagings = pool.borrow([CPU], 1)
        with pool._lock:
            pool.give_back(stagings, 1)
        assert pool.borrow([CPU], 1) == stagings
