"""Warming: kernels are compiled (or loaded from disk) while the first batches are still being read.

The thread is no daemon, and nobody closes it: a compiler must not be interrupted by the end of the
interpreter. It ends by itself, after a fraction of a second with a warm cache. A fork waits for it,
since a child would inherit the compiler's locks but not the thread that releases them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import gpufeed.kernels as kernels
from gpufeed.device import array_module
from gpufeed.lod import index_dtype
from gpufeed.places import Place
from gpufeed.variables import Variable

__all__ = ["warm_up"]

log = logging.getLogger("gpufeed")
_running: WeakSet[threading.Thread] = WeakSet()


def warm_up(variables: Sequence[Variable], places: Sequence[Place]) -> threading.Thread | None:
    """Compile on a thread what unpacking these fields on ``places`` runs; None if nothing."""
    densify = [
        (
            index_dtype(variable.dim),
            None if variable.layout == "sparse_binary" else variable.dtype,
            variable.dtype,
        )
        for variable in variables
        if variable.densify
    ]
    convert = [
        (
            variable.wire_dtype or variable.dtype,
            variable.dtype,
            variable.scale is not None or variable.shift is not None,
        )
        for variable in variables
        if variable.is_converted
    ]
    if not densify and not convert:
        return None
    thread = threading.Thread(
        target=_compile, args=(places, densify, convert), name="gpufeed-warm-up"
    )
    _running.add(thread)
    thread.start()
    return thread


def _compile(places: Sequence[Place], densify: Sequence[Any], convert: Sequence[Any]) -> None:
    try:
        for place in dict.fromkeys(places):
            with place:
                kernels.warm_up(densify=densify, convert=convert, zeros=array_module(place).zeros)
    except Exception:
        # The first batch makes the same call, and raises the same error where it can be caught.
        log.debug("kernels were not compiled ahead of the first batch", exc_info=True)


def _wait() -> None:
    for thread in list(_running):
        if thread.is_alive():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait)
