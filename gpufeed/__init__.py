"""gpufeed: variable-length and sparse data from Python readers into GPU memory at copy speed.

Everything public is named here; the modules below are where it is documented. A name is imported
when it is first used, so that a worker process starts with no more than its reader needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufeed import (
        compat,
        creator,
        dataset,
        formats,
        interop,
        kernels,
        layers,
        observe,
        provider,
        reader,
        stateful,
        testing,
    )
    from gpufeed.buffering import double_buffer
    from gpufeed.columnar import ColumnarBatch
    from gpufeed.convert import (
        convert_reader_to_recordio_file,
        convert_reader_to_recordio_files,
    )
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
    from gpufeed.executor import Executor, ParallelExecutor
    from gpufeed.feed import Feed
    from gpufeed.feeder import DataFeeder
    from gpufeed.formats.recordio.writer import RecordIOWriter
    from gpufeed.places import (
        CPUPlace,
        CUDAPinnedPlace,
        CUDAPlace,
        Place,
        cpu_places,
        local_place,
    )
    from gpufeed.provider.sources import define_py_data_sources2
    from gpufeed.reader.batch import batch
    from gpufeed.reader.skipping import Skip
    from gpufeed.sparse import SparseRows
    from gpufeed.stateful.functions import (
        open_files,
        open_recordio_file,
        py_reader,
        random_data_generator,
    )
    from gpufeed.tensor import LoDTensor
    from gpufeed.training import (
        BeginIteration,
        BeginPass,
        EndIteration,
        EndPass,
        present_places,
        train,
    )
    from gpufeed.variables import (
        Program,
        Variable,
        data,
        default_main_program,
        default_startup_program,
        program_guard,
    )

__all__ = [
    "BeginIteration",
    "BeginPass",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ColumnarBatch",
    "ComposeNotAligned",
    "DataFeeder",
    "EOFException",
    "EndIteration",
    "EndPass",
    "Executor",
    "Feed",
    "FieldError",
    "FormatError",
    "GpufeedError",
    "LoDError",
    "LoDTensor",
    "LoDTensorArray",
    "MissingExtra",
    "MissingFile",
    "ParallelExecutor",
    "Place",
    "PlaceError",
    "Program",
    "ReaderError",
    "ReaderTimeout",
    "RecordIOWriter",
    "Skip",
    "SparseRows",
    "Variable",
    "WorkerDied",
    "array_module",
    "batch",
    "compat",
    "convert_reader_to_recordio_file",
    "convert_reader_to_recordio_files",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "creator",
    "cuda_places",
    "data",
    "dataset",
    "default_main_program",
    "default_startup_program",
    "define_py_data_sources2",
    "double_buffer",
    "formats",
    "interop",
    "kernels",
    "layers",
    "local_place",
    "observe",
    "open_files",
    "open_recordio_file",
    "present_places",
    "program_guard",
    "provider",
    "py_reader",
    "random_data_generator",
    "reader",
    "stateful",
    "testing",
    "train",
    "virtual_devices",
    "virtual_stream",
]

# Where each of them lives, by module; what is not listed is a module itself.
_HOMES = {
    "buffering": ("double_buffer",),
    "columnar": ("ColumnarBatch",),
    "convert": ("convert_reader_to_recordio_file", "convert_reader_to_recordio_files"),
    "create": ("LoDTensorArray", "create_lod_tensor", "create_random_int_lodtensor"),
    "device": ("array_module", "cuda_places", "virtual_devices", "virtual_stream"),
    "errors": (
        "ComposeNotAligned",
        "EOFException",
        "FieldError",
        "FormatError",
        "GpufeedError",
        "LoDError",
        "MissingExtra",
        "MissingFile",
        "PlaceError",
        "ReaderError",
        "ReaderTimeout",
        "WorkerDied",
    ),
    "executor": ("Executor", "ParallelExecutor"),
    "feed": ("Feed",),
    "feeder": ("DataFeeder",),
    "formats.recordio.writer": ("RecordIOWriter",),
    "places": ("CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "Place", "cpu_places", "local_place"),
    "provider.sources": ("define_py_data_sources2",),
    "reader.batch": ("batch",),
    "reader.skipping": ("Skip",),
    "sparse": ("SparseRows",),
    "stateful.functions": (
        "open_files",
        "open_recordio_file",
        "py_reader",
        "random_data_generator",
    ),
    "tensor": ("LoDTensor",),
    "training": (
        "BeginIteration",
        "BeginPass",
        "EndIteration",
        "EndPass",
        "present_places",
        "train",
    ),
    "variables": (
        "Program",
        "Variable",
        "data",
        "default_main_program",
        "default_startup_program",
        "program_guard",
    ),
}
_MODULE_OF = {name: f"gpufeed.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gpufeed' has no attribute {name!r}")
    module = _MODULE_OF.get(name)
    if module is None:
        return importlib.import_module(f"gpufeed.{name}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
