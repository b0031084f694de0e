"""``fluid.core``: the names of the C++ part that scripts used."""

from __future__ import annotations

from enum import StrEnum

from gpufeed.create import LoDTensorArray
from gpufeed.device import num_cuda_devices, num_virtual_devices
from gpufeed.errors import EOFException
from gpufeed.formats import PathLike
from gpufeed.formats.recordio.writer import RecordIOWriter as PlainWriter
from gpufeed.places import CPUPlace, CUDAPinnedPlace, CUDAPlace
from gpufeed.tensor import LoDTensor

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "LoDTensor",
    "LoDTensorArray",
    "RecordIOCompressor",
    "RecordIOWriter",
    "Scope",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
]


def get_cuda_device_count() -> int:
    """Return how many CUDA (or virtual) devices there are."""
    return num_virtual_devices() or num_cuda_devices()


def is_compiled_with_cuda() -> bool:
    """Return whether there is a CUDA (or virtual) device; there, whether the build knew CUDA."""
    return get_cuda_device_count() > 0


class Scope:
    """What held the values of a network; readers persist in their programs."""


class RecordIOCompressor(StrEnum):
    """How the chunks of a file are compressed."""

    NoCompress = "none"
    Snappy = "snappy"


class RecordIOWriter(PlainWriter):
    """`gpufeed.RecordIOWriter` of the fluid dialect, with positional arguments.

    Args:
        filename: Of the file.
        compressor: `Compressor.Snappy` or `Compressor.NoCompress`.
        max_num_records: Most records in a chunk.
    """

    Compressor = RecordIOCompressor

    def __init__(
        self,
        filename: PathLike,
        compressor: RecordIOCompressor = RecordIOCompressor.Snappy,
        max_num_records: int = 1000,
    ) -> None:
        super().__init__(
            filename,
            compressor=compressor.value,
            max_num_records=max_num_records,
        )
