"""Page-locked and device memory, as the CUDA runtime itself describes them."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import HAS_CUDA_DEVICE
from support.feeding import batch, make_feeder, make_reader

from gpufeed.device import backend_for
from gpufeed.device.host import ALIGNMENT
from gpufeed.errors import PlaceError
from gpufeed.feeder import DataFeeder
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.variables import Program, data, program_guard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
]

PLACE = CUDAPlace(0)
HOST, DEVICE = 1, 2  # cudaMemoryTypeHost, cudaMemoryTypeDevice


def memory_type(address):
    from cupy.cuda import runtime

    return runtime.pointerGetAttributes(address).type


class TestPinned:
    @pytest.mark.parametrize("nbytes", [1, 4096, 1 << 24])
    def test_host_memory_is_page_locked(self, nbytes):
        memory = backend_for(PLACE).host_memory(nbytes)
        assert memory_type(memory.ctypes.data) == HOST
        assert memory_type(memory.ctypes.data + nbytes - 1) == HOST

    def test_memory_of_numpy_is_not(self):
        assert memory_type(np.zeros(4096).ctypes.data) not in (HOST, DEVICE)

    def test_every_slab_that_is_copied_from_is(self):
        reader = make_feeder(PLACE).decorate_reader(make_reader(20))
        for _ in reader:
            pass
        (staging,) = reader._pool._all
        slabs = staging.host_ring._free
        assert slabs
        assert {memory_type(slab.memory.ctypes.data) for slab in slabs} == {HOST}
        assert reader.stats().pinned_nbytes == sum(slab.nbytes for slab in slabs)


class TestDevice:
    def test_a_feed_is_views_of_one_slab(self):
        feed = make_feeder(PLACE).feed(batch(3))
        slab = feed["ids"]._lease._slab
        begin, end = slab.memory.memory.ptr, slab.memory.memory.ptr + slab.nbytes
        for array in (feed["ids"].data, feed["label"].data, feed["ids"].cu_seqlens()):
            assert memory_type(array.data.ptr) == DEVICE
            assert begin <= array.data.ptr <= array.data.ptr + array.nbytes <= end
            assert array.data.ptr % ALIGNMENT == 0


class TestOutOfMemory:
    """Dense rows of a sparse field need no room on the host, so only the device runs out."""

    def make_feeder(self):
        with program_guard(Program()):
            word = data("word", [1 << 26], layout="sparse_binary", densify=True)
            return DataFeeder([word], PLACE)

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_is_one_error_that_says_how_much_was_wanted_and_the_next_pass_works(self, prefetch):
        too_many = [([7],)] * 6400  # 1.7 TB
        sizes = iter([[too_many], [[([7],)]]])
        reader = self.make_feeder().decorate_reader(lambda: next(sizes), prefetch=prefetch)
        with pytest.raises(
            PlaceError, match=r"cuda:0: no room for a slab of 1,[\d,]+ bytes of dev"
        ):
            next(reader())
        (feed,) = reader
        dense = feed["word"].data
        assert (float(dense[0, 7]), float(dense.sum())) == (1.0, 1.0)

    def test_leaves_no_error_behind_for_others(self):
        import cupy

        with pytest.raises(PlaceError, match="no room"):
            self.make_feeder().feed([([7],)] * 6400)
        assert cupy.arange(10).sum().item() == 45
        assert make_feeder(PLACE).feed(batch(1))["label"].to(CPUPlace()).to_list() == [[1]] * 4


def test_a_device_that_is_not_there_is_named():
    from cupy.cuda import runtime

    number = runtime.getDeviceCount()
    with pytest.raises(PlaceError, match=rf"CUDAPlace\({number}\): there are {number} CUDA dev"):
        make_feeder(CUDAPlace(number))
