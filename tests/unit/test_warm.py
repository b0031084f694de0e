"""Tests of gpufeed.warm: what a feed will run is compiled before it runs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpufeed.device import virtual_devices
from gpufeed.feeder import DataFeeder
from gpufeed.kernels import cpu, cpu_densify
from gpufeed.places import CPUPlace, CUDAPlace, Place, as_place
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, Variable, data, program_guard
from gpufeed.warm import kernels, warm_all, warm_up


def declare() -> list[Variable]:
    return [
        data("seen", [50], layout="sparse_binary", densify=True),
        data("price", [50], layout="sparse_float", densify=True),
        data("pixels", [3], wire_dtype="uint8", scale=1 / 255),
        data("ids", [1], "int64", wire_dtype="auto"),
        data("image", [2, 4], wire_dtype="uint8", scale=[1 / 255, 2 / 255], shift=-0.5),
    ]


def variables() -> list[Variable]:
    with program_guard(Program()):
        return declare()


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_the_first_feed_compiles_nothing(place):
    with virtual_devices(1):
        feed_after_warming(as_place(place))


def feed_after_warming(place: Place) -> None:
    thread = warm_up(variables(), [place])
    assert thread is not None
    thread.join()
    compiled = [cpu_densify._densify, cpu_densify._densify_again, cpu._scale]
    if isinstance(place, CUDAPlace):  # only what is sent is narrowed
        compiled.append(cpu._narrow)
    before = [kernel.signatures[:] for kernel in compiled]
    assert all(before)
    with program_guard(Program()):
        feeder = DataFeeder(declare(), place)
    feed = feeder.feed([([1], [(2, 0.5)], [0, 51, 255], [70_000], [[0] * 4, [255] * 4])])
    assert feed["pixels"].numpy().tolist() == [[0.0, pytest.approx(0.2), 1.0]]
    assert feed["price"].numpy()[0, 2] == 0.5
    assert [kernel.signatures for kernel in compiled] == before


def test_all_is_what_any_field_runs():
    warm_all(CPUPlace())
    densify = [cpu_densify._densify, cpu_densify._densify_again]
    rows = [cpu._pad, cpu._unpad, cpu._gather, cpu._number, cpu._mask]
    compiled = [*densify, *rows, cpu._scale, cpu._narrow]
    before = [kernel.signatures[:] for kernel in compiled]
    assert all(before)
    with virtual_devices(1):
        feed_after_warming(CPUPlace())
    tensor = LoDTensor([7.0, 8.0], lod=[[0, 1, 2]])
    LoDTensor.from_padded(*tensor.to_padded())
    tensor.reverse()
    tensor.mask()
    tensor.positions()
    assert [kernel.signatures for kernel in compiled] == before


def test_fields_that_need_no_kernel_start_no_thread():
    with program_guard(Program()):
        plain = [data("x", [3]), data("rows", [9], layout="sparse_binary")]
    assert warm_up(plain, [CPUPlace()]) is None


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ({"dtype": "bool", "wire_dtype": "auto"}, {}),
        ({"layout": "sparse_binary", "densify": True}, {}),
        ({"layout": "sparse_binary"}, {"checks_on_device": True}),
    ],
)
def test_a_gpu_has_one_kernel_for_all_that_is_done_there(monkeypatch, field, options):
    def note(**what: Any) -> None:
        warmed.append({name for name, wanted in what.items() if wanted})

    warmed: list[set[str]] = []
    monkeypatch.setattr(kernels, "warm_up", note)
    cupy = SimpleNamespace(zeros=lambda shape, dtype: None)
    monkeypatch.setattr("gpufeed.warm.array_module", lambda place: cupy)
    with virtual_devices(1), program_guard(Program()):
        thread = warm_up([data("x", [9], **field)], [CUDAPlace(0)], **options)
        assert thread is not None
        thread.join()
    assert warmed == [{"unpack", "zeros"}]


def test_a_compiler_that_fails_leaves_the_error_to_the_first_batch(monkeypatch, caplog):
    def fail(**_):
        raise OSError("no room")

    monkeypatch.setattr(kernels, "warm_up", fail)
    with caplog.at_level(logging.DEBUG, "gpufeed"):
        thread = warm_up(variables(), [CPUPlace()])
        assert thread is not None
        thread.join()
    assert "not compiled ahead" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fork_waits_for_the_compiler():
    script = """
import gpufeed as gf, os
row = gf.data("row", [50], layout="sparse_binary", densify=True)
feeder = gf.DataFeeder([row], "cpu")
child = os.fork()
if not child:
    os._exit(feeder.feed([([1],)])["row"].shape != (1, 50))
assert os.waitpid(child, 0)[1] == 0
"""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environment)
