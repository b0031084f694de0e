"""What numba's CPU target lacks to work with memory that is larger than the cache.

A plain store of a line that is not in the cache fetches it first, and pushes something else out.
What is written whole is better stored past the cache: half the traffic. What is written here and
there waits for one line after the other, unless lines are asked for ahead of time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LINE_NBYTES", "prefetch", "stream_copy"]

LINE_NBYTES = 64

_WORD, _LANE = ir.IntType(64), ir.IntType(32)
_LINE = ir.VectorType(_LANE, LINE_NBYTES // 4)


@intrinsic  # type: ignore[untyped-decorator]
def _store_lines(_typing_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """Copy whole lines to address ``target``, which is a line's, from any address ``source``."""
    signature = types.void(types.uint64, types.uint64, types.uint64)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, source, nbytes = arguments
        past_the_cache = builder.module.add_metadata([ir.Constant(_LANE, 1)])
        start, step = ir.Constant(_WORD, 0), ir.Constant(_WORD, LINE_NBYTES)
        with cgutils.for_range_slice(builder, start, nbytes, step, intp=_WORD) as (at, _count):
            load_from = builder.inttoptr(builder.add(source, at), _LINE.as_pointer())
            store_to = builder.inttoptr(builder.add(target, at), _LINE.as_pointer())
            line = builder.load(load_from, align=1)
            store = builder.store(line, store_to, align=LINE_NBYTES)
            store.set_metadata("nontemporal", past_the_cache)
        # Such stores are not ordered with others: whoever reads the target must see them first.
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_typing_context: Any, address: Any) -> Any:
    """Ask for the line at ``address``, to use it once and soon. Any address is harmless."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _LANE, _LANE, _LANE])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # To read, into the first level only, data: a quarter faster than into all of them to write,
        # as nothing is pushed out of the second level.
        flags = [ir.Constant(_LANE, flag) for flag in (0, 0, 1)]
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *flags])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@njit  # type: ignore[untyped-decorator]
def stream_copy(source: Any, target: Any) -> None:
    """Copy ``source`` into ``target``: contiguous, of one dtype, whose size divides a line's.

    The ends of ``target`` that are parts of lines only are stored as usual.
    """
    itemsize = np.uint64(target.itemsize)
    address = np.uint64(target.ctypes.data)
    size = np.uint64(target.size)
    line = np.uint64(LINE_NBYTES)
    head = min(size, ((line - address % line) % line) // itemsize)
    for i in range(head):
        target[i] = source[i]
    nbytes = (size - head) * itemsize // line * line
    start = head * itemsize
    _store_lines(address + start, np.uint64(source.ctypes.data) + start, nbytes)
    for i in range(head + nbytes // itemsize, size):
        target[i] = source[i]
