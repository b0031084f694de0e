"""The fixtures for users' own tests, in a pytest session of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

PLUGIN = "gpufeed.pytest_plugin"

TESTS = """
import os, subprocess, sys, threading
from multiprocessing import shared_memory
import pytest
import gpufeed as gf

kept = []

def test_virtual_devices(gpufeed_virtual_devices):
    places = gpufeed_virtual_devices(2)
    assert places == [gf.CUDAPlace(0), gf.CUDAPlace(1)]
    assert gf.LoDTensor([1, 2]).to(places[1]).place == places[1]

def test_virtual_devices_are_gone():
    with pytest.raises(gf.PlaceError):
        gf.CUDAPlace(0) and gf.cuda_places([1000])

def test_clean(gpufeed_no_leaks):
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()

def test_cycle(gpufeed_no_leaks):
    samples = gf.reader.buffered(lambda: iter(int, 1), 2)()
    next(samples)
    cycle = [samples]
    cycle.append(cycle)

def test_thread(gpufeed_no_leaks):
    event = threading.Event()
    kept.append(event)
    threading.Thread(target=event.wait, name="left-alone", daemon=True).start()

def test_child(gpufeed_no_leaks):
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_zombie(gpufeed_no_leaks):
    kept.append(child := subprocess.Popen(["true"], stdout=subprocess.PIPE))
    child.stdout.read()

def test_pipe(gpufeed_no_leaks):
    kept.append(os.pipe())

def test_resource_tracker(gpufeed_no_leaks):
    shared_memory.SharedMemory(create=True, size=1).unlink()

@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memfd here")
def test_shared_memory(gpufeed_no_leaks):
    kept.append(os.memfd_create("gpufeed-left"))

def test_others_leaks_do_not_matter():
    threading.Thread(target=threading.Event().wait, args=(0.01,), daemon=True).start()
"""


def run_tests(folder: Path, *options: str) -> str:
    (folder / "test_mine.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:randomly", "-p", PLUGIN]
    # Options given to this run may be of plugins that the other one goes without.
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    return done.stdout


def test_what_is_left_behind_fails_the_test_that_left_it(tmp_path):
    output = run_tests(tmp_path)
    assert "threads left behind: ['left-alone']" in output
    assert "child processes left behind: [" in output
    errors = [line for line in output.splitlines() if line.startswith("ERROR ") and "::" in line]
    wanted = {"test_thread", "test_child", "test_zombie", "test_pipe"}
    if hasattr(os, "memfd_create"):
        wanted.add("test_shared_memory")
        assert "shared memory left behind: [" in output
    assert {line.partition("::")[2].split()[0] for line in errors} == wanted
    assert "11 passed" in output


def test_it_imports_nothing_that_a_conftest_may_want_to_prepare():
    heavy = {"numpy", "numba", "cupy", "torch"}
    code = f"import sys, {PLUGIN}; print({heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_it_is_registered_by_its_own_name():
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert settings["project"]["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
