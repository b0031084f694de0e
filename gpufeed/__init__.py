"""gpufeed: variable-length and sparse data from Python readers into GPU memory at copy speed.

Everything public is named here; the modules below are where it is documented.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpufeed import reader
from gpufeed.columnar import ColumnarBatch
from gpufeed.create import LoDTensorArray, create_lod_tensor, create_random_int_lodtensor
from gpufeed.device import array_module, cuda_places, virtual_devices, virtual_stream
from gpufeed.errors import (
    ComposeNotAligned,
    EOFException,
    FieldError,
    FormatError,
    GpufeedError,
    LoDError,
    MissingExtra,
    MissingFile,
    PlaceError,
    ReaderError,
    ReaderTimeout,
    WorkerDied,
)
from gpufeed.feed import Feed
from gpufeed.feeder import DataFeeder
from gpufeed.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    cpu_places,
    local_place,
)
from gpufeed.reader import Skip, batch
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import (
    Program,
    Variable,
    data,
    default_main_program,
    default_startup_program,
    program_guard,
)

if TYPE_CHECKING:
    from gpufeed import creator, dataset, formats, interop, observe

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ColumnarBatch",
    "ComposeNotAligned",
    "DataFeeder",
    "EOFException",
    "Feed",
    "FieldError",
    "FormatError",
    "GpufeedError",
    "LoDError",
    "LoDTensor",
    "LoDTensorArray",
    "MissingExtra",
    "MissingFile",
    "Place",
    "PlaceError",
    "Program",
    "ReaderError",
    "ReaderTimeout",
    "Skip",
    "SparseRows",
    "Variable",
    "WorkerDied",
    "array_module",
    "batch",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "creator",
    "cuda_places",
    "data",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "formats",
    "interop",
    "local_place",
    "observe",
    "program_guard",
    "reader",
    "virtual_devices",
    "virtual_stream",
]

# Imported when first used: a training loop that reads its own files needs none of them.
_ON_DEMAND = {"creator", "dataset", "formats", "interop", "observe"}


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f"gpufeed.{name}")
    raise AttributeError(f"module 'gpufeed' has no attribute {name!r}")
