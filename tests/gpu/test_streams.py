"""Consumers on any stream, copies beside computation, and leases, proven with a latch kernel."""

from __future__ import annotations

import gc
from itertools import islice

import numpy as np
import pytest
from conftest import HAS_CUDA_DEVICE
from support.feeding import batch, make_all_slabs, make_feeder, make_reader, num_device_slabs
from support.latch import KernelLatch

from gpufeed.device import backend_for
from gpufeed.places import CPUPlace, CUDAPlace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
]

PLACE = CUDAPlace(0)
STEPS = 60


@pytest.fixture
def cupy():
    import cupy

    yield cupy
    cupy.cuda.runtime.deviceSynchronize()


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    torch.zeros(1, device="cuda")  # from here on torch has a current stream
    yield torch
    torch.cuda.synchronize()


@pytest.fixture
def latch(cupy):
    made = KernelLatch()
    yield made
    made.set()


def sums(num=STEPS):
    """Return the sum of the ids of each batch."""
    return [int(sum(row.sum() for row, _ in batch(number))) for number in range(num)]


def values(results):
    """Return results as numbers, once all streams are done, also those that wait for no other."""
    from cupy.cuda import runtime

    runtime.deviceSynchronize()
    return [int(each) for each in results]


def large(number):
    """Return a batch whose copy takes a while: 8 MB of one value."""
    return [(np.full(1 << 18, number), number)] * 4


class TestConsumers:
    """Each reads a feed by a kernel, drops it and goes on; the host looks at results at the end."""

    def read(self, xp_sum, **options):
        reader = make_feeder(PLACE).decorate_reader(make_reader(STEPS), **options)
        return values([xp_sum(feed["ids"].data) for feed in reader])

    @pytest.mark.parametrize("prefetch", [0, 1, 3])
    def test_on_the_default_stream(self, cupy, prefetch):
        assert self.read(cupy.sum, prefetch=prefetch) == sums()

    def test_on_a_stream_of_their_own(self, cupy):
        with cupy.cuda.Stream(non_blocking=True):
            assert self.read(cupy.sum) == sums()

    def test_on_a_stream_that_is_named(self, cupy):
        stream = cupy.cuda.Stream(non_blocking=True)

        def sum_on_stream(array):
            with stream:
                return array.sum()

        assert self.read(sum_on_stream, stream=stream) == sums()

    def test_on_a_stream_of_torch(self, cupy, torch):
        with torch.cuda.stream(torch.cuda.Stream()):
            assert self.read(lambda ids: torch.from_dlpack(ids).sum()) == sums()

    def test_on_a_stream_of_torch_through_the_tensor_that_is_dropped_early(self, cupy, torch):
        side, seen = torch.cuda.Stream(), []
        for feed in make_feeder(PLACE).decorate_reader(make_reader(STEPS)):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                seen.append(feed["ids"].to_torch().sum())
                feed["ids"].record_stream(side)
            del feed
        assert values(seen) == sums()

    def test_on_a_stream_that_is_recorded(self, cupy):
        side, seen = cupy.cuda.Stream(non_blocking=True), []
        for feed in make_feeder(PLACE).decorate_reader(make_reader(STEPS)):
            side.wait_event(cupy.cuda.get_current_stream().record())
            with side:
                seen.append(feed["ids"].data.sum())
            feed["ids"].record_stream(side)
        assert values(seen) == sums()

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_of_a_place_that_repeats(self, cupy, prefetch):
        reader = make_feeder([PLACE, PLACE]).decorate_reader(
            make_reader(STEPS), multi_devices=True, prefetch=prefetch
        )
        seen = [feed["ids"].data.sum() for feeds in reader for feed in feeds]
        assert values(seen) == sums()

    def test_of_every_device_there_is(self, cupy):
        places = [CUDAPlace(n) for n in range(cupy.cuda.runtime.getDeviceCount())]
        reader = make_feeder(places).decorate_reader(make_reader(STEPS), multi_devices=True)
        numbers = iter(range(STEPS))
        for feeds in reader:
            for place, feed in zip(places, feeds, strict=True):
                assert feed["ids"].data.device.id == place.device_id
                assert feed["label"].to(CPUPlace()).to_list() == [[next(numbers)]] * 4

    def test_of_feeds_that_were_collated_in_another_process(self, cupy):
        assert self.read(cupy.sum, isolate=True) == sums()

    def test_that_keep_their_feeds(self, cupy):
        feeds = list(make_feeder(PLACE).decorate_reader(make_reader(STEPS)))
        assert [int(feed["ids"].data.sum()) for feed in feeds] == sums()


class TestOverlap:
    def test_copies_go_on_while_the_consumers_stream_is_held(self, cupy, latch):
        prefetch = 2
        stream = backend_for(PLACE).stream()
        reader = make_feeder(PLACE).decorate_reader(
            make_reader(9, large), prefetch=prefetch, stream=stream
        )
        for _ in reader:
            pass
        del _  # or its slab is one that cannot be made anew
        make_all_slabs(reader, prefetch, 9 << 20)
        (staging,) = reader._pool._all
        feeds = reader()
        latch.hold(stream)
        held = stream.record()
        kept = list(islice(feeds, prefetch))
        staging.copy_stream.synchronize()  # which would never return, if they waited for it
        assert not held.query()
        latch.set()
        stream.synchronize()
        assert [int(feed["label"].data[0, 0]) for feed in kept] == list(range(prefetch))
        feeds.close()


class TestLifetime:
    @pytest.mark.parametrize("prefetch", [1, 2])
    def test_no_byte_changes_before_the_readers_are_done(self, cupy, latch, prefetch, monkeypatch):
        """Hold the stream, drop the feeds, ask on: copies queue up, and stop behind the readers."""
        most = prefetch + 2
        stream, side = backend_for(PLACE).stream(), backend_for(PLACE).stream()
        reader = make_feeder(PLACE).decorate_reader(
            make_reader(STEPS), prefetch=prefetch, stream=stream
        )
        seen = [cupy.cuda.PinnedMemory(8 * 4) for _ in range(2 * most)]
        for feed in reader:  # so that all that follows has run before
            self.copy_label(feed, seen[0], stream)
        del feed
        stream.synchronize()
        make_all_slabs(reader, prefetch, 4096)
        made = num_device_slabs(reader)
        (staging,) = reader._pool._all
        deliver, ready = staging.deliver, []

        def delivered(staged, stream):
            ready.append(staged.ready)
            return deliver(staged, stream)

        monkeypatch.setattr(staging, "deliver", delivered)
        feeds, addresses = reader(), []
        latch.hold(stream)
        for number in range(most):
            feed = next(feeds)
            addresses.append(self.copy_label(feed, seen[number], stream))
            del feed
        for number, address in enumerate(addresses):  # and a look behind the stream's back
            side.wait(ready[number])
            self.copy(address, seen[most + number], side)
        side.synchronize()
        untouched = [self.label(memory) for memory in seen[most:]]
        assert untouched == [[number] * 4 for number in range(most)]
        assert num_device_slabs(reader) == made
        latch.set()
        stream.synchronize()
        assert [self.label(memory) for memory in seen[:most]] == untouched
        feeds.close()
        gc.collect()

    def copy_label(self, feed, memory, stream):
        address = feed["label"].data.data.ptr
        self.copy(address, memory, stream)
        return address

    def copy(self, address, memory, stream):
        from cupy.cuda import runtime

        runtime.memcpyAsync(memory.ptr, address, 32, runtime.memcpyDeviceToHost, stream.raw.ptr)

    def label(self, memory):
        import cupy

        pointer = cupy.cuda.PinnedMemoryPointer(memory, 0)
        return np.frombuffer(pointer, np.int64, 4).tolist()
