"""Batches that another process writes into shared memory, as the CUDA runtime sees that memory."""

from __future__ import annotations

import mmap
from contextlib import closing
from itertools import islice

import numpy as np
import pytest
from conftest import HAS_CUDA_DEVICE
from support.feeding import batch, make_feeder, make_reader
from support.latch import KernelLatch

from gpufeed.device import backend_for
from gpufeed.places import CPUPlace, CUDAPlace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
]

PLACE = CUDAPlace(0)
HOST = 1  # cudaMemoryTypeHost


@pytest.fixture
def copies(monkeypatch):
    """Note of each transfer where it begins, and what kind of memory that is."""
    from cupy.cuda import runtime

    noted, kind = [], type(backend_for(PLACE))
    copy = kind.copy_to_device

    def copy_to_device(backend, source, target, nbytes, to):
        noted.append((source.ctypes.data, runtime.pointerGetAttributes(source.ctypes.data).type))
        copy(backend, source, target, nbytes, to)

    monkeypatch.setattr(kind, "copy_to_device", copy_to_device)
    return noted


@pytest.fixture
def can_lock():
    mapping = mmap.mmap(-1, 1 << 16)
    if not backend_for(PLACE).page_lock(mapping):
        pytest.skip("page-locking is refused on this machine")
    backend_for(PLACE).page_unlock(mapping)


def assert_holds(feed, number):
    ids, label = feed["ids"].to(CPUPlace()), feed["label"].to(CPUPlace())
    rows = [row for row, _ in batch(number)]
    np.testing.assert_array_equal(ids.data.ravel(), np.concatenate(rows))
    assert ids.recursive_sequence_lengths() == [list(map(len, rows))]
    assert label.to_list() == [[number]] * 4


def num_host_slabs(reader):
    return [staging.host_ring.num_made for staging in reader._pool._all]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_sent_from_page_locked_shared_memory(can_lock, copies, prefetch):
    from cupy.cuda import runtime

    reader = make_feeder(PLACE).decorate_reader(make_reader(40), isolate=True, prefetch=prefetch)
    with closing(reader()) as feeds:
        for number, feed in enumerate(islice(feeds, 30)):
            assert_holds(feed, number)
        assert reader.stats().pinned_nbytes > 0
        assert num_host_slabs(reader) == [0]
    assert {kind for _, kind in copies} == {HOST}
    assert reader.stats().pinned_nbytes == 0
    # Unlocked, and unmapped: the runtime knows nothing of it any more.
    assert {runtime.pointerGetAttributes(begin).type for begin, _ in copies}.isdisjoint({HOST})


def test_to_places_that_repeat(can_lock, copies):
    feeder = make_feeder([PLACE, PLACE])
    reader = feeder.decorate_reader(make_reader(20), multi_devices=True, isolate=True)
    for step, feeds in enumerate(reader):
        for part, feed in enumerate(feeds):
            assert_holds(feed, 2 * step + part)
    assert {kind for _, kind in copies} == {HOST}


def test_where_it_is_refused_they_are_sent_from_slabs(copies, monkeypatch):
    monkeypatch.setattr(type(backend_for(PLACE)), "page_lock", lambda backend, mapping: False)
    reader = make_feeder(PLACE).decorate_reader(make_reader(20), isolate=True)
    for number, feed in enumerate(reader):
        assert_holds(feed, number)
    assert {kind for _, kind in copies} == {HOST}
    assert num_host_slabs(reader)[0] > 0


def test_memory_that_a_copy_still_reads_is_not_written(can_lock):
    num = 6
    reader = make_feeder(PLACE).decorate_reader(make_reader(4 * num), isolate=True, prefetch=1)
    (staging,) = stagings = reader._pool.borrow([PLACE], num)
    latch = KernelLatch()
    with closing(reader._reader.open(0, 0)) as batches:
        first = list(islice(batches, num))
        # In advance, as both may have to wait for a stream that is held.
        assert all(each.plan.source.lock(staging.backend) for each in first)
        for slab in [staging.device_ring.acquire(1 << 16) for _ in first]:
            staging.device_ring.release(slab)
        latch.hold(staging.copy_stream)
        staged = [staging.stage(first.pop(0).plan) for _ in range(num)]
        later = list(islice(batches, 2 * num))  # the process writes on meanwhile
        latch.set()
        for number, each in enumerate(staged):
            assert_holds(staging.deliver(each), number)
        assert len(later) == 2 * num
    staging.drain()
    reader._pool.give_back(stagings, num)
