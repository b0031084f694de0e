"""Virtual devices tell a wrong use of page-locked memory, of which real ones say nothing."""

import gc
import mmap
import threading

import numpy as np
import pytest

from gpufeed.device.virtual import VirtualBackend, virtual_devices
from gpufeed.device.virtual_locks import PageLockBooks
from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace

NBYTES = 1 << 14


@pytest.fixture
def backend(monkeypatch):
    monkeypatch.setattr(VirtualBackend, "page_locks", PageLockBooks())
    with virtual_devices(1):
        yield VirtualBackend(CUDAPlace(0))


@pytest.fixture
def mapping():
    return mmap.mmap(-1, NBYTES)


def test_memory_is_locked_once_and_unlocked_once(backend, mapping):
    assert backend.page_lock(mapping)
    with pytest.raises(PlaceError, match="must not be locked already"):
        backend.page_lock(mapping)
    backend.page_unlock(mapping)
    with pytest.raises(PlaceError, match=r"page_unlock\.mapping must be locked"):
        backend.page_unlock(mapping)


def test_memory_that_a_copy_reads_must_stay_locked(backend, mapping):
    backend.page_lock(mapping)
    stream, latch = backend.stream(), threading.Event()
    stream.call(latch.wait)
    source = np.frombuffer(mapping, np.uint8)[100:200]
    backend.copy_to_device(source, backend.device_memory(100), 100, stream)
    with pytest.raises(PlaceError, match="must not be read by a copy, got 1 under way"):
        backend.page_unlock(mapping)
    latch.set()
    stream.close()


def test_after_the_copy_it_need_not(backend, mapping):
    backend.page_lock(mapping)
    stream = backend.stream()
    for _ in range(3):
        source = np.frombuffer(mapping, np.uint8)[:100]
        backend.copy_to_device(source, backend.device_memory(100), 100, stream)
    stream.close()
    backend.page_unlock(mapping)
    assert backend.page_locks.locked == []


def test_copies_of_other_memory_do_not_matter(backend, mapping):
    backend.page_lock(mapping)
    stream, latch = backend.stream(), threading.Event()
    stream.call(latch.wait)
    backend.copy_to_device(backend.host_memory(100), backend.device_memory(100), 100, stream)
    backend.page_unlock(mapping)
    latch.set()
    stream.close()


def test_a_copy_of_locked_memory_keeps_nothing_but_the_mapping_alive(backend, mapping):
    backend.page_lock(mapping)
    stream, latch = backend.stream(), threading.Event()
    stream.call(latch.wait)
    source, target = np.frombuffer(mapping, np.uint8)[:8], backend.device_memory(8)
    backend.copy_to_device(source, target, 8, stream)
    source[:] = 9  # too early: on a device, as here, it is what arrives
    latch.set()
    stream.close()
    assert target.tolist() == [9] * 8
    backend.page_unlock(mapping)


@pytest.mark.parametrize("method", ["page_lock", "page_unlock"])
def test_memory_that_is_unmapped_while_it_is_locked_is_told_once(backend, method):
    backend.page_lock(mmap.mmap(-1, NBYTES))
    gc.collect()
    other = mmap.mmap(-1, NBYTES)
    with pytest.raises(PlaceError, match="must be unlocked before it is unmapped, got 0x"):
        getattr(backend, method)(other)
    assert backend.page_lock(other)
    backend.page_unlock(other)
