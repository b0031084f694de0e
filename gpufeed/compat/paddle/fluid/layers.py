"""``fluid.layers``: data layers and reader operators. There are no network layers here.

Executors hold what is fed against what ``fluid.data`` declares, and not against `data`: its shape
and dtype were for the network. What `batch` has left at the end of a pass is a batch of its own, as
it was until 2018; later releases dropped it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gpufeed.layers import (
    ReaderVariable,
    batch,
    double_buffer,
    has_next,
    multi_pass,
    open_files,
    open_recordio_file,
    random_data_generator,
    read_file,
    reset,
    shuffle,
)
from gpufeed.layers import __getattr__ as __getattr__  # says what any other layer ends in
from gpufeed.layers import py_reader as record_py_reader
from gpufeed.variables import Variable, default_main_program
from gpufeed.variables import data as declare

__all__ = [
    "batch",
    "create_py_reader_by_data",
    "data",
    "double_buffer",
    "has_next",
    "io",
    "multi_pass",
    "open_files",
    "open_recordio_file",
    "py_reader",
    "random_data_generator",
    "read_file",
    "reset",
    "shuffle",
]

io = sys.modules[__name__]  # ``fluid.layers.io``, where most of these were defined


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: object = None,  # noqa: A002 - the reference's name
    stop_gradient: bool = True,
) -> Variable:
    """Declare an input of the default main program.

    >>> from gpufeed.compat import fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     data("image", [1, 28, 28]).shape
    ...     data("label", [64, 1], False, "int64").shape
    (-1, 1, 28, 28)
    (64, 1)

    ``type`` and ``stop_gradient`` were for the layers above it, and change nothing.
    """
    variable = declare(name, shape, dtype, lod_level, append_batch_size=append_batch_size)
    default_main_program().global_block().unchecked.add(name)
    return variable


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ReaderVariable:
    """Record a `gpufeed.layers.py_reader` that converts samples, and takes tensors as they are."""
    return record_py_reader(
        *(capacity, shapes, dtypes, lod_levels, name, use_double_buffer), strict=False
    )


def create_py_reader_by_data(
    capacity: int,
    feed_list: Sequence[Variable],
    name: str | None = None,
    use_double_buffer: bool = True,
) -> ReaderVariable:
    """Record a `py_reader` whose fields have the shapes, dtypes and LoD levels of variables."""
    return py_reader(
        capacity,
        [variable.shape for variable in feed_list],
        [variable.dtype for variable in feed_list],
        [variable.lod_level for variable in feed_list],
        name,
        use_double_buffer,
    )
