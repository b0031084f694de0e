"""Warming: kernels are compiled (or loaded from disk) while the first batches are still being read.

The thread is no daemon, and nobody closes it: a compiler must not be interrupted by the end of the
interpreter. It ends by itself, after a fraction of a second with a warm cache. A fork waits for it,
since a child would inherit the compiler's locks but not the thread that releases them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

import gpufeed.kernels as kernels
from gpufeed.device import array_module
from gpufeed.kernels.checks import VALUE_DTYPES
from gpufeed.lod import index_dtype
from gpufeed.narrowing import narrower
from gpufeed.places import CUDAPlace, Place
from gpufeed.variables import Variable

__all__ = ["warm_all", "warm_up"]

log = logging.getLogger("gpufeed")
_running: WeakSet[threading.Thread] = WeakSet()


def warm_up(
    variables: Sequence[Variable], places: Sequence[Place], *, checks_on_device: bool = False
) -> threading.Thread | None:
    """Compile on a thread what unpacking these fields on ``places`` runs; None if nothing."""
    calls = _calls(variables, any(isinstance(place, CUDAPlace) for place in places))
    calls["unpack"] = any(
        variable.is_converted or variable.densify or (checks_on_device and variable.is_sparse)
        for variable in variables
    )
    if not any(calls.values()):
        return None
    thread = threading.Thread(target=_compile, args=(places, calls), name="gpufeed-warm-up")
    _running.add(thread)
    thread.start()
    return thread


def warm_all(place: Place) -> float:
    """Compile what fields of any dtype run on ``place``, with int32 offsets; return the seconds.

    What is compiled stays in a cache on disk, so later processes load it in a moment. numba's own
    import and start, which every process pays, is not counted.
    """
    calls: dict[str, list[Any]] = {"densify": [], "convert": [], "narrow": [], "pad": []}
    for dtype in VALUE_DTYPES:
        calls["densify"] += [("int32", values, dtype) for values in (None, dtype)]
        calls["convert"] += [(wire, dtype, False) for wire in narrower(dtype)]
        calls["narrow"] += [(dtype, wire) for wire in narrower(dtype)]
        calls["pad"].append((dtype, "int32"))
        if dtype.kind == "f":
            scaled = [(wire, dtype, how) for wire in ("uint8", dtype) for how in (True, "channels")]
            calls["convert"] += scaled
    with place:
        zeros = array_module(place).zeros
        kernels.warm_up(convert=[("uint8", "float32", True)], zeros=zeros)
        begin = time.perf_counter()
        kernels.warm_up(**calls, unpack=True, zeros=zeros)
        return time.perf_counter() - begin


def _calls(variables: Sequence[Variable], is_sent: bool) -> dict[str, Any]:
    """Return what to warm, as `gpufeed.kernels.warm_up` takes it."""
    calls: dict[str, Any] = {"densify": [], "convert": [], "narrow": []}
    for variable in variables:
        dtype = variable.dtype
        if variable.is_sparse:
            if variable.densify:
                values = None if variable.layout == "sparse_binary" else dtype
                calls["densify"].append((index_dtype(variable.dim), values, dtype))
            if variable.densify == "reuse":  # which copies the entries
                calls["convert"].append((*[index_dtype(variable.dim)] * 2, False))
            continue
        wires: list[Any] = [variable.wire_dtype or dtype]
        if variable.wire_dtype == "auto":
            wires = [dtype, *(narrower(dtype) if is_sent else [])]
            calls["narrow"] += [(dtype, wire) for wire in wires[1:]]
        has_channels = variable.channel_axis is not None
        calls["convert"] += [
            (wire, dtype, "channels" if has_channels else variable.is_scaled)
            for wire in wires
            if wire != dtype or variable.is_scaled
        ]
    return calls


def _compile(places: Sequence[Place], calls: dict[str, Any]) -> None:
    try:
        for place in dict.fromkeys(places):
            with place:
                zeros = array_module(place).zeros
                # A device does all jobs by one kernel; what is sent is still narrowed on the host.
                on_gpu = {what: calls[what] for what in ("narrow", "unpack")}
                kernels.warm_up(**(calls if zeros is np.zeros else on_gpu), zeros=zeros)
    except Exception:
        # The first batch makes the same call, and raises the same error where it can be caught.
        log.debug("kernels were not compiled ahead of the first batch", exc_info=True)


def _wait() -> None:
    for thread in list(_running):
        if thread.is_alive():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait)
