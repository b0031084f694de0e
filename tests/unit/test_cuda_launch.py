"""What a prepared launch passes on, and to whom, on a numba-cuda that is stood in for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

core = pytest.importorskip("cuda.core", reason="numba-cuda is not installed")
from gpufeed.kernels import cuda_launch  # noqa: E402 - it imports numba-cuda


class Kernel:
    """A dispatcher; what it is launched with goes to ``by_numba``."""

    def __init__(self, entry):
        self.entry, self.compiled, self.by_numba = entry, [], []

    def __getitem__(self, configuration):
        def launch(*args):
            self.by_numba.append((configuration, args))

        return Launch(launch)

    def typeof_pyval(self, value):
        return type(value)

    def compile(self, signature):
        self.compiled.append(signature)
        found = SimpleNamespace(argument_types=signature, _prepare_args=self.prepare_args)
        if self.entry is not None:
            found._codelibrary = SimpleNamespace(get_cufunc=self.load)
        return found

    def load(self):
        assert cuda_launch._loading.locked()  # as numba fails if two threads are here at once
        return SimpleNamespace(kernel=self.entry)

    def prepare_args(self, kind, value, stream, retr, words):
        words += [len(value), value[0]] if kind is tuple else [value]


class Launch:
    stream = "the stream"

    def __init__(self, call):
        self.call = call

    def __call__(self, *args):
        self.call(*args)


@pytest.fixture
def by_core(monkeypatch):
    launched = []
    monkeypatch.setattr(cuda_launch.config, "ENABLE_CUDASIM", 0)
    monkeypatch.setattr(core, "launch", lambda *args: launched.append(args))
    return launched


def test_arguments_are_taken_apart_once_and_launched_as_often_as_wanted(by_core):
    kernel = Kernel("the entry")
    launch = cuda_launch.prepared(kernel, (1024, 256), None, (7, 8), 1)
    for _ in range(2):
        launch()
    assert kernel.compiled == [(tuple, int)]
    assert kernel.by_numba == []
    for stream, geometry, entry, *words in by_core:
        assert (stream, entry, words) == ("the stream", "the entry", [2, 7, 1])
        assert (geometry.grid, geometry.block) == ((1024, 1, 1), (256, 1, 1))
    assert len(by_core) == 2


def test_a_numba_that_launches_in_another_way_does_it_itself(by_core):
    kernel = Kernel(None)
    cuda_launch.prepared(kernel, (1024, 256), None, (7, 8), 1)()
    assert by_core == []
    assert kernel.by_numba == [((1024, 256, 0), ((7, 8), 1))]


def test_so_does_the_simulator(monkeypatch):
    monkeypatch.setattr(cuda_launch.config, "ENABLE_CUDASIM", 1)
    kernel = Kernel("the entry")
    cuda_launch.prepared(kernel, (3, 8), None, (7, 8))()
    assert (kernel.compiled, len(kernel.by_numba)) == ([], 1)
