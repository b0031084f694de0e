import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

import gpufeed.device
from gpufeed.device import (
    array_module,
    backend_for,
    cuda_places,
    transfer,
    virtual_devices,
)
from gpufeed.device.host import ALIGNMENT, aligned_bytes, root_view, view_at
from gpufeed.errors import PlaceError
from gpufeed.places import CPUPlace, CUDAPinnedPlace, CUDAPlace


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(gpufeed.device, "num_cuda_devices", lambda: 0)
    with virtual_devices(0):
        yield


class TestPlaces:
    def test_all_virtual_devices(self):
        with virtual_devices(3):
            assert cuda_places() == [CUDAPlace(0), CUDAPlace(1), CUDAPlace(2)]

    def test_some_of_them_in_any_order_and_more_than_once(self):
        with virtual_devices(3):
            assert cuda_places([2, 0, 2]) == [CUDAPlace(2), CUDAPlace(0), CUDAPlace(2)]

    def test_none_of_them(self):
        with virtual_devices(1):
            assert cuda_places([]) == []

    @pytest.mark.parametrize("ids", [2, CUDAPlace(0)])
    def test_a_number_is_no_list_of_them(self, ids):
        with virtual_devices(3), pytest.raises(PlaceError, match="ids must be a list of device"):
            cuda_places(ids)

    def test_one_that_is_not_there(self):
        with virtual_devices(2), pytest.raises(PlaceError, match=r"CUDAPlace\(2\).* 2 virtual"):
            cuda_places([0, 2])

    def test_without_any_device_the_error_says_what_to_do(self, no_gpu):
        with pytest.raises(PlaceError, match=r"no CUDA device; use CPUPlace\(\)"):
            cuda_places()
        with pytest.raises(PlaceError, match=r"CUDAPlace\(3\): no CUDA device"):
            backend_for(CUDAPlace(3))

    @pytest.mark.parametrize("place", [CPUPlace(), CUDAPinnedPlace()])
    def test_only_devices_have_a_backend(self, place):
        with virtual_devices(1), pytest.raises(PlaceError, match=f"got {place}"):
            backend_for(place)

    def test_without_cupy_there_is_no_device(self, monkeypatch):
        monkeypatch.setattr(gpufeed.device.importlib.util, "find_spec", lambda name: None)
        assert gpufeed.device.num_cuda_devices() == 0


class TestArrayModule:
    @pytest.mark.parametrize("of", ["cpu", CPUPlace(), np.arange(3), "cuda:0"])
    def test_is_numpy_where_arrays_are_numpys(self, of):
        with virtual_devices(1):
            assert array_module(of) is np

    def test_is_numpy_where_there_is_no_gpu(self, no_gpu):
        assert array_module("cuda:0") is np


class TestTransfer:
    @pytest.mark.parametrize(
        ("source", "target"), [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cuda:0", "cuda:1")]
    )
    def test_copies(self, source, target):
        places = {"cpu": CPUPlace(), "cuda:0": CUDAPlace(0), "cuda:1": CUDAPlace(1)}
        array = np.arange(6).reshape(2, 3)
        with virtual_devices(2):
            there = transfer(array, places[source], places[target])
        assert there.tolist() == array.tolist()
        assert not np.shares_memory(there, array)

    def test_to_the_same_place_is_none(self):
        array = np.arange(3)
        assert transfer(array, CUDAPlace(0), CUDAPlace(0)) is array


def test_a_virtual_place_can_be_made_current():
    with virtual_devices(1), CUDAPlace(0) as place:
        assert place == CUDAPlace(0)


def test_a_device_that_is_not_there_cannot_be_made_current(no_gpu):
    with pytest.raises(PlaceError, match="no CUDA device"), CUDAPlace(0):
        pass


class TestHostMemory:
    @pytest.mark.parametrize("nbytes", [1, 255, 256, 4097, 1 << 20])
    def test_is_aligned_and_of_the_size_asked_for(self, nbytes):
        memory = aligned_bytes(nbytes)
        assert memory.nbytes == nbytes
        assert memory.ctypes.data % ALIGNMENT == 0

    def test_a_view_is_not_a_copy(self):
        memory = aligned_bytes(1024)
        view = view_at(memory, 256, (2, 3), np.float32)
        view[...] = 1.5
        assert view.shape == (2, 3)
        assert view.flags.c_contiguous
        assert np.frombuffer(memory[256:280].tobytes(), np.float32).tolist() == [1.5] * 6
        assert view.ctypes.data == memory.ctypes.data + 256

    def test_a_view_beyond_the_end_is_an_error(self):
        with pytest.raises(TypeError):
            view_at(aligned_bytes(64), 60, (2,), np.float32)


class Owner:
    def __init__(self):
        self.memory = np.arange(64, dtype=np.uint8)

    @property
    def __array_interface__(self):
        return self.memory.__array_interface__


DERIVED = {
    "slice": lambda view: view[1:],
    "transposed": lambda view: view.T,
    "reshaped": lambda view: view.reshape(-1),
    "retyped": lambda view: view.view(np.int8),
    "slice of a slice": lambda view: view[1:][1:].reshape(-1)[::2],
    "subclass": lambda view: view.view(np.matrix),
    "asarray": lambda view: np.asarray(view[:1]),
    "memoryview": memoryview,
    "slice of a memoryview": lambda view: memoryview(view)[1:],
    "array of a memoryview": lambda view: np.asarray(memoryview(view)),
    "frombuffer": lambda view: np.frombuffer(view[0], np.uint8),
    "from_dlpack": np.from_dlpack,
    "iterator": iter,
    "broadcast": lambda view: np.broadcast_to(view, (2, *view.shape)),
    "strided": lambda view: np.lib.stride_tricks.sliding_window_view(view, 2, 0),
    "flat": lambda view: view.flat,
    "record": lambda view: view.view([("a", np.uint8), ("b", np.uint8)])["a"],
    "split": lambda view: np.split(view, 2),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED.keys())
def test_every_derived_view_keeps_the_owner_of_the_memory_alive(derive):
    owner = Owner()
    alive = weakref.ref(owner)
    derived = derive(view_at(root_view(owner), 0, (4, 8), np.uint8))
    del owner
    gc.collect()
    assert alive() is not None
    del derived
    gc.collect()
    assert alive() is None


def test_torch_keeps_the_owner_of_the_memory_alive():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    owner = Owner()
    alive = weakref.ref(owner)
    derived = torch.from_numpy(view_at(root_view(owner), 0, (4, 8), np.uint8))[1:].view(-1)
    del owner
    gc.collect()
    assert alive() is not None
    del derived
    gc.collect()
    assert alive() is None


def test_asking_for_virtual_devices_imports_no_cupy(tmp_path):
    script = """
import sys
from gpufeed.device import backend_for, virtual_devices
from gpufeed.places import CUDAPlace
with virtual_devices(1):
    backend_for(CUDAPlace(0)).stream().synchronize()
sys.exit("cupy" in sys.modules or "numba" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_a_cupy_that_cannot_be_imported_is_no_device_and_says_why(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('libcudart.so: cannot open')")
    script = """
import gpufeed as gf
from gpufeed.device import num_cuda_devices
assert num_cuda_devices() == 0
assert gf.array_module("cuda:0").__name__ == "numpy"
try:
    gf.DataFeeder([gf.data("x", [1])], "cuda:0")
except gf.PlaceError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("GPUFEED_VIRTUAL_DEVICES", None)
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment
    )
    assert "no CUDA device (CuPy cannot be imported: libcudart.so: cannot open)" in done.stdout


def test_arrays_of_virtual_devices_can_be_read_after_them(no_gpu):
    with virtual_devices(2):
        there = transfer(np.arange(3), CPUPlace(), CUDAPlace(1))
    here = transfer(there, CUDAPlace(1), CPUPlace())
    assert here.tolist() == [0, 1, 2]
    assert not np.shares_memory(here, there)
    with pytest.raises(PlaceError, match=r"CUDAPlace\(1\): "):
        transfer(there, CPUPlace(), CUDAPlace(1))
