"""``import paddle.fluid as fluid``: declaring, feeding and reading; no networks.

`data` takes its shape as it is, batch dimension and all, as ``fluid.data`` did.

Differences to the reference that a script may see: ``LoDTensor.shape`` is a tuple and no method,
and samples of a wrong number of fields end in a `FieldError` and no ``AssertionError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpufeed.compat.paddle.fluid import (
    compiler,
    core,
    framework,
    io,
    layers,
    recordio_writer,
    unique_name,
)
from gpufeed.compat.paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from gpufeed.compat.paddle.fluid.data_feeder import DataFeeder
from gpufeed.compat.paddle.fluid.executor import (
    Executor,
    ParallelExecutor,
    global_scope,
    scope_guard,
)
from gpufeed.create import LoDTensorArray, create_lod_tensor, create_random_int_lodtensor
from gpufeed.device import cuda_places
from gpufeed.places import CPUPlace, CUDAPinnedPlace, CUDAPlace, cpu_places
from gpufeed.tensor import LoDTensor
from gpufeed.variables import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_guard,
)
from gpufeed.variables import data as declare

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "ExecutionStrategy",
    "Executor",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "Program",
    "Scope",
    "Variable",
    "compiler",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "framework",
    "global_scope",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "program_guard",
    "recordio_writer",
    "scope_guard",
    "unique_name",
]

Scope = core.Scope
is_compiled_with_cuda = core.is_compiled_with_cuda


def data(
    name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0
) -> Variable:
    """Declare an input of the default main program, of just this shape.

    >>> with program_guard(Program()):
    ...     data("label", [None, 1], "int64").shape
    (-1, 1)
    """
    return declare(name, shape, dtype, lod_level, append_batch_size=False)
