"""What every backend must do, asked of the virtual devices and of CUDA in the same words.

A rig says the few things that differ: how a stream is held, and how raw memory is read late.
"""

from __future__ import annotations

import gc
import mmap
import threading
import weakref
from contextlib import contextmanager
from functools import partial
from itertools import islice

import numpy as np
import pytest
from conftest import HAS_CUDA_DEVICE
from support.feeding import batch, make_all_slabs, make_feeder, make_reader, num_device_slabs
from support.latch import KernelLatch

from gpufeed.device import array_module, backend_for, virtual_devices
from gpufeed.errors import PlaceError
from gpufeed.places import CPUPlace, CUDAPlace

NBYTES = 1 << 16
PLACE = CUDAPlace(0)


class VirtualRig:
    """Virtual devices: what a stream does, a Python function does."""

    def __init__(self):
        self.settings = virtual_devices(1, seed=13, jitter=True)
        self.backend = backend_for(PLACE)
        self.streams = []

    def stream(self):
        self.streams.append(self.backend.stream())
        return self.streams[-1]

    def latch(self):
        return threading.Event()

    def hold(self, stream, latch):
        stream.call(latch.wait)

    def capture(self, stream):
        return stream.capture()

    def read_late(self, memory, nbytes, stream):
        """Enqueue the reading of ``nbytes`` of device memory; return where they will be."""
        seen = np.zeros(nbytes, np.uint8)
        stream.call(lambda: np.copyto(seen, memory[:nbytes]))
        return seen

    def close(self):
        for stream in self.streams:
            stream.close()
        self.settings.__exit__(None, None, None)


class CudaRig:
    """A GPU: a kernel holds a stream, an asynchronous copy reads raw memory."""

    def __init__(self):
        import cupy

        self.cupy = cupy
        self.backend = backend_for(PLACE)
        # Page-locked in advance, as that may have to wait for a stream that is held.
        self.seen = self.backend.host_memory(64 * NBYTES)
        self.num_seen = 0

    def stream(self):
        return self.backend.stream()

    def latch(self):
        return KernelLatch()

    def hold(self, stream, latch):
        latch.hold(stream)

    @contextmanager
    def capture(self, stream):
        stream.raw.begin_capture(self.cupy.cuda.runtime.streamCaptureModeGlobal)
        try:
            yield
        finally:
            stream.raw.end_capture()

    def read_late(self, memory, nbytes, stream):
        seen = self.seen[self.num_seen :][:nbytes]
        self.num_seen += nbytes
        self.cupy.cuda.runtime.memcpyAsync(
            seen.ctypes.data,
            memory.memory.ptr,
            nbytes,
            self.cupy.cuda.runtime.memcpyDeviceToHost,
            stream.raw.ptr,
        )
        return seen

    def close(self):
        self.cupy.cuda.runtime.deviceSynchronize()


@pytest.fixture(
    params=[
        VirtualRig,
        pytest.param(
            CudaRig,
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
            ],
        ),
    ],
    ids=["virtual", "cuda"],
)
def rig(request):
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def latch(rig):  # opened before the rig closes its streams
    made = rig.latch()
    yield made
    made.set()


def filled(rig, value, nbytes=NBYTES):
    host = rig.backend.host_memory(nbytes)
    host.fill(value)
    return host


class TestMemory:
    @pytest.mark.parametrize("nbytes", [1, 4096, NBYTES + 1])
    def test_host_memory_is_bytes_of_the_size_asked_for(self, rig, nbytes):
        host = rig.backend.host_memory(nbytes)
        assert (host.dtype, host.shape) == (np.uint8, (nbytes,))
        host.fill(7)
        assert host.sum(dtype=np.int64) == 7 * nbytes

    def test_device_memory_has_the_size_asked_for(self, rig):
        assert rig.backend.device_memory(NBYTES).nbytes == NBYTES

    def test_a_view_is_typed_placed_and_not_a_copy(self, rig):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        rig.backend.fill(memory, 0, stream)
        stream.synchronize()
        root = rig.backend.view(memory, Owner(memory))
        array = rig.backend.array(root, 512, (3, 4), np.dtype(np.float32))
        assert (array.shape, array.dtype, root.dtype) == ((3, 4), np.float32, np.uint8)
        stream.call(lambda: array.fill(1.5))
        seen = rig.read_late(memory, NBYTES, stream)
        stream.synchronize()
        assert seen[512 : 512 + 48].view(np.float32).tolist() == [1.5] * 12
        assert not seen[:512].any()
        assert not seen[512 + 48 :].any()

    def test_a_view_keeps_its_owner_alive(self, rig):
        memory = rig.backend.device_memory(NBYTES)
        owner = Owner(memory)
        alive = weakref.ref(owner)
        root = rig.backend.view(memory, owner)
        array = rig.backend.array(root, 256, (4,), np.dtype(np.int32))[1:].reshape(-1)
        del owner, root
        gc.collect()
        assert alive() is not None
        del array
        gc.collect()
        assert alive() is None

    def test_arrays_go_there_and_back(self, rig):
        ids = np.arange(100).reshape(4, 25)
        there = rig.backend.from_host(ids)
        ids[0, 0] = -1
        assert isinstance(there, array_module(PLACE).ndarray)
        assert rig.backend.to_host(there).tolist() == np.arange(100).reshape(4, 25).tolist()


class TestPageLocks:
    @pytest.fixture
    def mapping(self, rig):
        return mmap.mmap(-1, NBYTES)

    @pytest.fixture
    def locked(self, rig, mapping):
        if not rig.backend.page_lock(mapping):
            pytest.skip("page-locking is refused on this machine")
        yield np.frombuffer(mapping, np.uint8)
        rig.backend.page_unlock(mapping)

    def test_the_host_does_not_wait_for_a_copy_of_locked_memory(self, rig, latch, locked):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        locked[:] = 3
        rig.hold(stream, latch)
        rig.backend.copy_to_device(locked[256:], memory, NBYTES - 256, stream)
        locked[:] = 4  # still in time, because the copy waits
        seen = rig.read_late(memory, NBYTES - 256, stream)
        latch.set()
        stream.synchronize()
        assert (seen == 4).all()

    def test_memory_may_be_locked_again(self, rig, mapping, locked):
        rig.backend.page_unlock(mapping)
        assert rig.backend.page_lock(mapping)


class Owner:
    """What a lease is to a view: the root of its bases."""

    def __init__(self, memory):
        self._interface = getattr(memory, "__array_interface__", None)
        self._memory = memory

    @property
    def __array_interface__(self):
        return self._interface


class TestStreams:
    def test_work_is_done_in_order(self, rig):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        sources = [filled(rig, value) for value in range(20)]
        seen = []
        for source in sources:
            rig.backend.copy_to_device(source, memory, NBYTES, stream)
            seen.append(rig.read_late(memory, NBYTES, stream))
        stream.synchronize()
        assert [(read == value).all() for value, read in enumerate(seen)] == [True] * 20

    def test_a_copy_moves_as_many_bytes_as_asked(self, rig):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        source = filled(rig, 2)
        rig.backend.fill(memory, 1, stream)
        rig.backend.copy_to_device(source, memory, 1000, stream)
        seen = rig.read_late(memory, NBYTES, stream)
        stream.synchronize()
        assert (seen[:1000] == 2).all()
        assert (seen[1000:] == 1).all()

    def test_the_host_does_not_wait_for_a_copy(self, rig, latch):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        source = filled(rig, 3)
        rig.hold(stream, latch)
        rig.backend.copy_to_device(source, memory, NBYTES, stream)
        source.fill(4)  # still in time, because the copy waits
        seen = rig.read_late(memory, NBYTES, stream)
        latch.set()
        stream.synchronize()
        assert (seen == 4).all()

    def test_an_event_passes_after_the_work_before_it(self, rig, latch):
        stream = rig.stream()
        before = stream.record()
        before.synchronize()
        rig.hold(stream, latch)
        after = stream.record()
        assert before.query()
        assert not after.query()
        latch.set()
        after.synchronize()
        assert after.query()

    def test_a_stream_waits_for_an_event_of_another(self, rig, latch):
        first, second = rig.stream(), rig.stream()
        memory, source = rig.backend.device_memory(NBYTES), filled(rig, 5)
        rig.hold(first, latch)
        rig.backend.copy_to_device(source, memory, NBYTES, first)
        second.wait(first.record())
        seen = rig.read_late(memory, NBYTES, second)
        done = second.record()
        assert not done.query()
        latch.set()
        done.synchronize()
        assert (seen == 5).all()

    def test_a_stream_waits_for_no_other_by_itself(self, rig, latch):
        first, second = rig.stream(), rig.stream()
        memory, source = rig.backend.device_memory(NBYTES), filled(rig, 6)
        rig.hold(first, latch)
        rig.backend.copy_to_device(source, memory, NBYTES, second)
        second.synchronize()
        assert not first.record().query()
        latch.set()  # before memory is freed, which waits for the whole device

    def test_a_wait_holds_only_what_comes_after_it(self, rig, latch):
        first, second = rig.stream(), rig.stream()
        rig.hold(first, latch)
        early = second.record()
        second.wait(first.record())
        late = second.record()
        early.synchronize()
        assert not late.query()

    def test_kernels_are_launched_in_order(self, rig, latch):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        array = rig.backend.view(memory, Owner(memory))
        source = filled(rig, 7)
        stream.call(lambda: array.__iadd__(1))  # a kernel's first launch may wait for the device
        rig.hold(stream, latch)
        rig.backend.copy_to_device(source, memory, NBYTES, stream)
        stream.call(lambda: array.__iadd__(1))
        seen = rig.read_late(memory, NBYTES, stream)
        latch.set()
        stream.synchronize()
        assert (seen == 8).all()

    def test_a_fill_sets_every_byte(self, rig):
        stream, memory = rig.stream(), rig.backend.device_memory(NBYTES)
        rig.backend.fill(memory, 0xCD, stream)
        seen = rig.read_late(memory, NBYTES, stream)
        stream.synchronize()
        assert (seen == 0xCD).all()

    def test_one_that_is_captured_says_so(self, rig):
        stream, other = rig.stream(), rig.stream()
        assert not stream.is_capturing()
        with rig.capture(stream):
            assert stream.is_capturing()
            assert not other.is_capturing()
        assert not stream.is_capturing()
        stream.record().synchronize()

    def test_a_thread_of_ours_works_on_while_a_stream_is_captured(self, rig):
        stream, other, source, made = rig.stream(), rig.stream(), filled(rig, 9), []

        def work():
            rig.backend.attach_thread()
            memory = rig.backend.device_memory(NBYTES)
            rig.backend.copy_to_device(source, memory, NBYTES, other)
            event = other.record()
            event.synchronize()
            assert event.query()
            made.append(memory)

        with rig.capture(stream):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert len(made) == 1
        seen = rig.read_late(made[0], NBYTES, stream)
        stream.synchronize()
        assert (seen == 9).all()

    @pytest.mark.parametrize("named", ["a name", 1.5, object()])
    def test_what_is_no_stream_is_refused(self, rig, named):
        with pytest.raises(PlaceError, match=r"cuda:0: stream must"):
            rig.backend.as_stream(named)

    def test_a_named_stream_is_taken_as_it_is(self, rig):
        stream = rig.stream()
        assert rig.backend.as_stream(stream) is stream


class TestFeeds:
    """The feed reader on a device, seen through copies back to the host."""

    def read(self, feed):
        return {name: tensor.to(CPUPlace()) for name, tensor in feed.items()}

    def wanted(self, number):
        samples = batch(number)
        return [row.tolist() for row, _ in samples], [[label] for _, label in samples]

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_hold_what_was_read(self, rig, prefetch):
        reader = make_feeder(PLACE).decorate_reader(make_reader(20), prefetch=prefetch)
        for number, feed in enumerate(reader):
            host = self.read(feed)
            ids, labels = self.wanted(number)
            assert [[row for (row,) in sequence] for sequence in host["ids"].to_list()] == ids
            assert host["label"].to_list() == labels
            assert isinstance(feed["ids"].data, array_module(PLACE).ndarray)
        assert number == 19

    def test_that_are_held_keep_their_values(self, rig):
        feeds = list(make_feeder(PLACE).decorate_reader(make_reader(20)))
        for number, feed in enumerate(feeds):
            assert self.read(feed)["label"].to_list() == self.wanted(number)[1]

    def test_on_a_place_that_repeats(self, rig):
        reader = make_feeder([PLACE, PLACE]).decorate_reader(make_reader(20), multi_devices=True)
        numbers = iter(range(20))
        for feeds in reader:
            for feed in feeds:
                assert self.read(feed)["label"].to_list() == self.wanted(next(numbers))[1]

    @pytest.mark.parametrize("prefetch", [1, 3])
    def test_that_are_dropped_while_the_stream_is_held_are_read_in_time(self, rig, latch, prefetch):
        stream = rig.stream()
        reader = make_feeder(PLACE).decorate_reader(
            make_reader(30), prefetch=prefetch, stream=stream
        )
        make_all_slabs(reader, prefetch, 4096)
        feeds, read = reader(), partial(self.read_label_late, rig, stream=stream)
        rig.hold(stream, latch)
        seen = list(map(read, islice(feeds, prefetch + 2)))
        assert num_device_slabs(reader) == [prefetch + 2]
        latch.set()
        seen.extend(map(read, feeds))
        stream.synchronize()
        assert [read.view(np.int64).tolist() for read in seen] == [[n] * 4 for n in range(30)]
        assert num_device_slabs(reader) == [prefetch + 2]
        assert reader.stats().num_slabs <= 2 * (prefetch + 2)

    def read_label_late(self, rig, feed, stream):
        lease, label = feed["label"]._lease, feed["label"].data
        memory = lease._slab.memory
        address = getattr(memory, "ctypes", None)
        if address is None:  # CUDA: the label's place in its slab, by pointers
            begin = label.data.ptr - memory.memory.ptr
        else:
            begin = label.ctypes.data - address.data
        return rig.read_late(memory, begin + label.nbytes, stream)[begin:]

    def test_may_be_left_and_taken_again(self, rig):
        reader = make_feeder(PLACE).decorate_reader(make_reader(20))
        for _ in range(5):
            feeds = reader()
            assert self.read(next(feeds))["label"].to_list() == self.wanted(0)[1]
            feeds.close()
