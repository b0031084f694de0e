"""Fixtures for pytest, there for whoever has gpufeed installed; none takes effect unasked.

pytest imports this module in every session, before any conftest. So it imports no part of gpufeed:
what is imported here would be settled before a conftest can say how, numba's simulator for one.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpufeed.places import Place

# How long a thread that was told to end may take for it on a busy machine; nothing waits this long
# in a test that passes.
GRACE_S = 20.0


@pytest.fixture
def gpufeed_virtual_devices() -> Iterator[Callable[[int], list[Place]]]:
    """Return a function that makes ``n`` virtual devices for the length of a test.

    It returns their places: ``places = gpufeed_virtual_devices(2)``.
    """
    from gpufeed.device import cuda_places, virtual_devices

    with ExitStack() as stack:

        def make(n: int) -> list[Place]:
            stack.enter_context(virtual_devices(n))
            return cuda_places()

        yield make


@pytest.fixture
def gpufeed_no_leaks() -> Iterator[None]:
    """Fail a test that leaves a thread, process, zombie, shared memory or file open behind.

    And memory that virtual devices hold page-locked. Of other systems than Linux only that and
    threads are known. A reader that outlives the test has to be closed in it, since its processes
    wait for the next pass.
    """
    threads, before = set(threading.enumerate()), {kind: look() for kind, look in _LOOKS.items()}
    yield
    left = {kind: look() - before[kind] for kind, look in _LOOKS.items()}
    if set(threading.enumerate()) - threads or any(left.values()):
        # What only a reference cycle keeps alive, as a traceback does, is not a leak yet.
        gc.collect()
        surviving = _surviving(set(threading.enumerate()) - threads)
        left = {kind: look() - before[kind] for kind, look in _LOOKS.items()}
        left["threads"] = {each.name for each in surviving}
    for kind, names in left.items():
        if names:
            pytest.fail(f"{kind} left behind: {sorted(names)}", pytrace=False)


def _surviving(threads: set[threading.Thread]) -> set[threading.Thread]:
    for thread in threads:
        if thread.name.startswith("gpufeed-"):
            thread.join(GRACE_S)
    return {thread for thread in threads if thread.is_alive()}


def _children() -> set[str]:
    """Child processes, but for the one that `multiprocessing` keeps for itself until exit."""
    found = set()
    for task in _listed(Path("/proc/self/task")):
        for pid in _text(task / "children").split():
            command = _text(Path("/proc") / pid / "cmdline").replace("\0", " ")
            if "multiprocessing.resource_tracker" not in command:
                found.add(f"{pid} {command}")
    return found


def _shared_memory() -> set[str]:
    """Segments that this process holds open or mapped, and names that it left in /dev/shm."""
    found = {
        target
        for entry in _listed(Path("/proc/self/fd"))
        if (target := _link(entry)).startswith(("/dev/shm/", "/memfd:"))
    }
    mapped = _text(Path("/proc/self/maps"))
    if "/dev/shm/" in mapped or "/memfd:" in mapped:
        for line in mapped.splitlines():
            if "/dev/shm/" in line or "/memfd:" in line:
                found.add(line.split(maxsplit=5)[-1])
    prefix = f"gpufeed-{os.getpid()}-"
    found |= {str(entry) for entry in _listed(Path("/dev/shm")) if entry.name.startswith(prefix)}
    return found


def _open_files() -> set[str]:
    """Files, pipes and sockets that this process holds open, as number and target."""
    # What `multiprocessing` keeps until exit, with the process that `_children` leaves out.
    module = sys.modules.get("multiprocessing.resource_tracker")
    kept = {str(getattr(getattr(module, "_resource_tracker", None), "_fd", None))}
    return {
        f"{entry.name} ({target})"
        for entry in _listed(Path("/proc/self/fd"))
        if entry.name not in kept
        if (target := _link(entry)) and not target.startswith(("/dev/", "/proc/", "/memfd:"))
    }


def _page_locks() -> set[str]:
    virtual = sys.modules.get("gpufeed.device.virtual")
    return set() if virtual is None else set(map(hex, virtual.VirtualBackend.page_locks.locked))


_LOOKS: dict[str, Callable[[], set[str]]] = {
    "child processes": _children,
    "shared memory": _shared_memory,
    "open files": _open_files,
    "page locks": _page_locks,
}


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # ended since it was listed, or a system without /proc
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
