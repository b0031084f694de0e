"""Warming: kernels are compiled (or loaded from disk) while the first batches are still being read.

The thread is no daemon: a compiler must not be interrupted by the end of the interpreter. It ends
by itself, after a fraction of a second with a warm cache.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpufeed.collate import index_dtype
from gpufeed.device import array_module
from gpufeed.places import CUDAPlace, Place
from gpufeed.variables import Variable

__all__ = ["warm_up"]


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
    thread.start()
    return thread


def _compile(places: Sequence[Place], densify: Sequence[Any], convert: Sequence[Any]) -> None:
    from gpufeed.kernels import warm_up as compile_kernels

    for place in dict.fromkeys(places):
        with place:
            compile_kernels(
                densify=densify,
                convert=convert,
                offsets_dtype=np.int32 if isinstance(place, CUDAPlace) else np.int64,
                zeros=array_module(place).zeros,
            )
