"""What of the CUDA backend can be asked without a device: how it reads errors and names streams."""

import mmap
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from gpufeed.errors import PlaceError
from gpufeed.places import CUDAPlace

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
from gpufeed.device import cuda, cuda_info  # noqa: E402 - they import CuPy

OUT_OF_MEMORY, INVALID_VALUE, CAPTURE_IMPLICIT = 2, 1, 906


def refused(status):
    return cuda.runtime.CUDARuntimeError(status)


@pytest.fixture
def backend(monkeypatch):
    """One whose device need not be made current, which takes a driver."""
    monkeypatch.setattr(cuda.CudaBackend, "_here", lambda self: nullcontext())
    return cuda.CudaBackend(CUDAPlace(0))


def raw_stream(handle, is_capturing=False):
    def answer():
        if isinstance(is_capturing, Exception):
            raise is_capturing
        return is_capturing

    return SimpleNamespace(ptr=handle, is_capturing=answer)


class TestCapture:
    @pytest.mark.parametrize("is_capturing", [True, False])
    def test_a_stream_is_asked(self, is_capturing):
        stream = cuda.CudaStream(0, raw_stream(7, is_capturing))
        assert stream.is_capturing() is is_capturing

    def test_the_legacy_stream_beside_a_capture_must_not_be_used_either(self):
        assert cuda.CudaStream(0, raw_stream(0, refused(CAPTURE_IMPLICIT))).is_capturing()

    def test_any_other_refusal_is_an_error(self):
        with pytest.raises(cuda.runtime.CUDARuntimeError):
            cuda.CudaStream(0, raw_stream(0, refused(INVALID_VALUE))).is_capturing()


class TestAllocation:
    @pytest.fixture(autouse=True)
    def libraries(self, monkeypatch):
        self.freed = []
        monkeypatch.setattr(cuda, "_free_cached_memory", lambda: self.freed.append(True))
        monkeypatch.setattr(cuda.runtime, "memGetInfo", lambda: (1000, 2000))

    def allocator(self, *outcomes):
        left = list(outcomes)

        def allocate(nbytes):
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return allocate

    def test_is_asked_for_once(self, backend):
        assert backend._allocate(self.allocator("block"), 5, "device memory") == "block"
        assert self.freed == []

    def test_is_asked_for_again_when_libraries_have_given_back_theirs(self, backend):
        allocate = self.allocator(refused(OUT_OF_MEMORY), "block")
        assert backend._allocate(allocate, 5, "device memory") == "block"
        assert self.freed == [True]

    def test_and_then_the_error_says_how_much_there_is(self, backend):
        allocate = self.allocator(refused(OUT_OF_MEMORY), refused(OUT_OF_MEMORY))
        with pytest.raises(
            PlaceError, match=r"cuda:0: no room for a slab of 5,000 .* has 1,000 of 2,000 bytes"
        ):
            backend._allocate(allocate, 5000, "device memory")

    def test_another_refusal_is_not_taken_for_it(self, backend):
        with pytest.raises(cuda.runtime.CUDARuntimeError):
            backend._allocate(self.allocator(refused(INVALID_VALUE)), 5, "device memory")
        assert self.freed == []


class TestPageLocks:
    """Of memory that is there already, which the runtime stood in for may refuse to lock."""

    @pytest.fixture(autouse=True)
    def runtime(self, monkeypatch):
        self.is_supported, self.error, self.locked = 1, None, {}

        def register(address, nbytes, flags):
            if self.error is not None:
                raise self.error
            self.locked[address] = nbytes, flags

        def attribute(number, device_id):
            assert number == cuda.runtime.cudaDevAttrHostRegisterSupported
            return self.is_supported

        monkeypatch.setattr(cuda.runtime, "hostRegister", register)
        monkeypatch.setattr(cuda.runtime, "hostUnregister", self.unregister)
        monkeypatch.setattr(cuda.runtime, "deviceGetAttribute", attribute)

    def unregister(self, address):
        del self.locked[address]

    def test_are_of_the_whole_mapping_and_for_every_device(self, backend):
        mapping = mmap.mmap(-1, 1 << 16)
        assert backend.page_lock(mapping)
        address = np.frombuffer(mapping, np.uint8).ctypes.data
        assert self.locked == {address: (1 << 16, cuda.runtime.hostAllocPortable)}
        backend.page_unlock(mapping)
        assert self.locked == {}

    def test_are_not_asked_for_where_there_are_none(self, backend):
        self.is_supported = 0
        assert not backend.page_lock(mmap.mmap(-1, 1 << 16))
        assert self.locked == {}

    def test_may_be_refused(self, backend):
        self.error = refused(OUT_OF_MEMORY)
        assert not backend.page_lock(mmap.mmap(-1, 1 << 16))

    def test_do_not_keep_the_memory_mapped(self, backend):
        mapping = mmap.mmap(-1, 1 << 16)
        assert backend.page_lock(mapping)
        mapping.close()  # it raises while an array views it
        assert mapping.closed


class TestUnpacker:
    def test_the_kernel_gets_the_slab_and_the_words_of_the_host_themselves(
        self, backend, monkeypatch
    ):
        prepared, launched = [], []

        def prepare(slab, fault, stream):
            prepared.append((slab, fault, stream))
            return launched.append

        monkeypatch.setattr(cuda, "prepare_unpack", prepare)
        memory = cuda._DeviceBytes(SimpleNamespace(ptr=1 << 20), 8192)
        words = np.zeros(5, np.int64)
        stream = cuda.CudaStream(0, raw_stream(7))
        unpack = backend.unpacker(memory, words, stream)
        ((slab, fault, raw),) = prepared
        assert (slab.data.ptr, slab.shape, slab.dtype) == (1 << 20, (8192,), np.uint8)
        assert (fault.data.ptr, fault.shape, fault.dtype) == (words.ctypes.data, (5,), np.int64)
        assert raw is stream.raw
        unpack(False)
        unpack(True)
        assert launched == [False, True]


class TestStreams:
    @pytest.fixture(autouse=True)
    def current(self, monkeypatch):
        """Stand in for what asks the driver: CuPy's current stream, and the wrapping of another."""
        self.cupys = object.__new__(cupy.cuda.ExternalStream)
        self.cupys.ptr = 7
        monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda device_id: self.cupys)

        def from_external(stream):
            made = object.__new__(cupy.cuda.ExternalStream)
            _, made.ptr = stream.__cuda_stream__()
            return made

        monkeypatch.setattr(cupy.cuda.Stream, "from_external", from_external)

    def torch(self, handle, is_initialized=True):
        stream = SimpleNamespace(cuda_stream=handle)
        return SimpleNamespace(
            cuda=SimpleNamespace(
                is_initialized=lambda: is_initialized, current_stream=lambda device_id: stream
            )
        )

    @pytest.mark.parametrize(
        ("handle", "is_initialized", "handles"),
        [(9, True, [7, 9]), (7, True, [7]), (9, False, [7])],
    )
    def test_the_consumers_are_cupys_and_torchs_if_that_is_another(
        self, backend, monkeypatch, handle, is_initialized, handles
    ):
        monkeypatch.setitem(sys.modules, "torch", self.torch(handle, is_initialized))
        assert [stream.raw.ptr for stream in backend.consumer_streams()] == handles

    def test_without_torch_it_is_cupys(self, backend, monkeypatch):
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        assert [stream.raw for stream in backend.consumer_streams()] == [self.cupys]

    @pytest.mark.parametrize(
        "named",
        [11, SimpleNamespace(cuda_stream=11), SimpleNamespace(__cuda_stream__=lambda: (0, 11))],
        ids=["a handle", "torch's", "the protocol"],
    )
    def test_the_user_may_name_one_of_any_library(self, backend, named):
        stream = backend.as_stream(named)
        assert (stream.device_id, stream.raw.ptr) == (0, 11)
        assert backend.as_stream(stream) is stream
        assert stream == backend.as_stream(11)
        assert len({stream, backend.as_stream(11)}) == 1

    @pytest.mark.parametrize("named", ["a name", None, object()])
    def test_what_is_no_stream_is_refused(self, backend, named):
        with pytest.raises(PlaceError, match="cuda:0: stream must have __cuda_stream__ or be a h"):
            backend.as_stream(named)


class TestInfo:
    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch):
        runtime = SimpleNamespace(
            CUDARuntimeError=cuda.runtime.CUDARuntimeError,
            driverGetVersion=lambda: 13020,
            getDeviceProperties=lambda device_id: {
                "name": b"NVIDIA H200",
                "major": 9,
                "minor": 0,
                "totalGlobalMem": 150 << 30,
            },
            runtimeGetVersion=lambda: 12090,
        )
        monkeypatch.setattr(cuda_info, "runtime", runtime)
        monkeypatch.setattr(cuda_info, "num_devices", lambda: 1)
        monkeypatch.setattr(cuda.CudaBackend, "host_memory", lambda self, nbytes: bytes(1))
        monkeypatch.setattr(
            cuda_info, "_gb_per_s", lambda backend, source: 55.25 if len(source) == 1 else 9.5
        )
        self.runtime, self.locked, self.can_lock = runtime, [], True

        def page_lock(backend, mapping):
            self.locked += [mapping] * self.can_lock
            return self.can_lock

        monkeypatch.setattr(cuda.CudaBackend, "page_lock", page_lock)
        monkeypatch.setattr(
            cuda.CudaBackend, "page_unlock", lambda backend, mapping: self.locked.remove(mapping)
        )

    @pytest.mark.parametrize(
        ("can_lock", "said"),
        [(True, "sent from shared memory"), (False, "copied, as shared memory is not page-locked")],
    )
    def test_says_what_there_is_and_how_fast_it_is(self, can_lock, said):
        self.can_lock = can_lock
        assert cuda_info.describe() == [
            "CUDA driver 13.2, runtime 12.9",
            "cuda:0: NVIDIA H200, compute capability 9.0, 150.0 GiB; copies from page-locked "
            f"memory 55.2 GB/s, from pageable 9.5 GB/s; isolated feeds are {said}",
        ]
        assert self.locked == []

    def test_a_device_that_cannot_be_used_is_said_to_be_so(self):
        def refuse(device_id):
            raise refused(INVALID_VALUE)

        self.runtime.getDeviceProperties = refuse
        assert cuda_info.describe()[1].startswith("cuda:0: cannot be used (cudaErrorInvalidValue")
