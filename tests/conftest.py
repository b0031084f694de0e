"""What must be settled before any test imports numba, and the fixtures every test gets."""

from __future__ import annotations

import compileall
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# What a shell starts in the background ignores Ctrl-C, and so would every process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Run by an interpreter that has the reference installed, and holding no doctests.
collect_ignore = ["support/reference_script.py", "support/reference_worker.py"]

# In an installed gpufeed an entry point names it too, which is the same plugin and not a second.
pytest_plugins = ["gpufeed.pytest_plugin"]


@pytest.fixture(autouse=True)
def no_leaks(gpufeed_no_leaks: None) -> None:
    """Every test must leave nothing behind."""


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """Take what is there for good (torch, say) out of all the collections that tests ask for."""
    yield
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Compile the package once, where each process that a test starts would do so for itself."""
    if sys.dont_write_bytecode:
        compileall.compile_dir(Path(__file__).parents[1] / "gpufeed", quiet=2)


def pytest_collection_finish() -> None:
    """Do so before the first test too."""
    gc.collect()
    gc.freeze()


def _has_cuda_device() -> bool:
    """Ask the driver itself: importing numba or CuPy here would settle the question too early."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 < count.value


HAS_CUDA_DEVICE = _has_cuda_device()
if not HAS_CUDA_DEVICE:
    # Without a GPU the CUDA kernels run in numba's simulator, chosen when numba is imported.
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
# An example that compiles a kernel takes seconds. In CI a run repeats the last one, so that it
# fails for a change and not by chance; elsewhere every run tries new examples.
settings.register_profile("gpufeed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gpufeed")
# Recycled slabs are overwritten at once, so that a view that outlives its lease is seen.
os.environ["GPUFEED_POISON"] = "1"
