"""`LoDTensor`: variable-length rows packed end to end, and the offsets that cut them.

A tensor is on one place and stays there: it is copied by `LoDTensor.to` and `LoDTensor.numpy` and
by nothing else, so that no line of a training loop waits for a device unseen.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

import numpy as np
import numpy.typing as npt

import gpufeed.lod as offset_math
from gpufeed.device import array_module, transfer, working_on
from gpufeed.device.backend import Array
from gpufeed.errors import FieldError, LoDError
from gpufeed.interop.dlpack import as_array
from gpufeed.lod import LoD, Offsets
from gpufeed.places import CPUPlace, CUDAPlace, Place, PlaceLike, as_place
from gpufeed.sequences import Sequences
from gpufeed.serialize import read_tensor, write_tensor

__all__ = ["LoDTensor"]

# Identity, not value, tells a tensor that was never set from one that was set to no rows.
_UNSET = np.empty(0, np.float32)


class LoDTensor(Sequences):
    """Variable-length rows packed end to end, with the offsets that cut them.

    Row ``i`` is ``data[offsets[i]:offsets[i + 1]]``; nothing is padded.

    >>> t = LoDTensor([7, 8, 9], lod=[[0, 2, 2, 3]])
    >>> [row.tolist() for row in t]
    [[7, 8], [], [9]]
    >>> t[1:]
    LoDTensor(shape=(1,), dtype=int64, lod=[[0, 0, 1]], place=cpu)

    Upper levels cut the entries of the level below. Indexing and slicing count samples, the
    entries of the top level:

    >>> t = LoDTensor([7, 8, 9], lod=[[0, 1, 3], [0, 2, 2, 3]])
    >>> t[1].lod(), t.to_list()
    ([[0, 0, 1]], [[[7, 8]], [[], [9]]])

    Args:
        data: ``(rows, *item)`` numbers or bools: a list, an array, or whatever speaks DLPack or
            ``__array__``. Arrays are taken as they are, without a copy. Without data the tensor
            is not set yet and takes any LoD.
        lod: Offsets, one list a level, the top level first.
        place: Where the tensor shall be; None leaves the data where it is.

    Raises:
        FieldError: The data is not a rectangle of numbers.
        LoDError: The offsets do not describe the rows.

    Source: LoDTensor of PaddlePaddle 1.x, whose method names are kept.
    """

    __slots__ = ()

    def __init__(
        self, data: object = None, lod: object = None, place: PlaceLike | None = None
    ) -> None:
        source: Place = CPUPlace()
        self._data = _UNSET
        self._lod, self._lod_on_place, self._lease = (), None, None
        if isinstance(data, LoDTensor):
            raise FieldError(
                "LoDTensor.data must be an array, got LoDTensor; use create_lod_tensor"
            )
        if data is not None:
            self._data, source = as_array(data, "LoDTensor.data")
        self._place = source if place is None else as_place(place)
        if data is not None:
            self._data = transfer(self._data, source, self._place)
        if lod is not None:
            self.set_lod(lod)

    @property
    def data(self) -> Array:
        """All rows, ``(rows, *item)``: a NumPy array, or a CuPy array on a GPU."""
        return self._data

    def __repr__(self) -> str:
        return (
            f"LoDTensor(shape={self.shape}, dtype={self.dtype}, "
            f"lod={reprlib.repr(self.lod())}, place={self._place})"
        )

    def set(self, data: object, place: PlaceLike | None = None) -> None:
        """Replace the rows by a copy of ``data``; the LoD stays, whether it fits or not.

        Args:
            data: As for the constructor.
            place: Where the copy goes; None keeps this tensor's place.

        Raises:
            FieldError: The data is not a rectangle of numbers.
        """
        array, source = as_array(data, "LoDTensor.set.data")
        target = self._place if place is None else as_place(place)
        with target:
            there = transfer(array, source, target)
            self._data = there.copy() if there is array else there
        self._place, self._lod_on_place, self._lease = target, None, None

    def to(self, place: PlaceLike) -> LoDTensor:
        """Return this tensor on another place, as a copy; on its own place, itself."""
        target = as_place(place)
        if target == self._place:
            return self
        data = _UNSET if self._data is _UNSET else transfer(self._data, self._place, target)
        return LoDTensor._assemble(data, self._lod, target)

    def numpy(self) -> npt.NDArray[Any]:
        """Return the rows on the host: a copy of a device's, the array itself otherwise."""
        rows: npt.NDArray[Any] = transfer(self._data, self._place, CPUPlace())
        return rows

    def to_list(self) -> list[Any]:
        """Return the samples as nested Python lists."""
        rows = self.numpy().tolist()
        for level in reversed(self._fitting()):
            rows = [rows[begin:end] for begin, end in pairwise(level.tolist())]
        return cast("list[Any]", rows)

    def save(self, file: str | Path | BinaryIO) -> None:
        """Write the tensor in the byte format of PaddlePaddle 1.x and 2.x.

        Args:
            file: A path, or a file open for writing bytes.

        Raises:
            FormatError: The format has no code for this dtype.
        """
        write_tensor(file, self.numpy(), self._fitting())

    @classmethod
    def load(cls, file: str | Path | BinaryIO, place: PlaceLike = "cpu") -> LoDTensor:
        """Read a tensor that `save` or PaddlePaddle has written.

        Args:
            file: A path, or a file open for reading bytes; it is read up to the tensor's end.
            place: Where the tensor goes.

        Raises:
            MissingFile: There is no such file.
            FormatError: It cannot be opened, or the bytes are no such tensor or end too early.
        """
        data, lod = read_tensor(file)
        return cls._assemble(data, lod, CPUPlace()).to(place)

    def to_torch(self) -> Any:
        """Return the rows as a torch tensor that shares their memory."""
        from gpufeed.interop import torch

        return torch.from_rows(self)

    def to_torch_nested(self) -> Any:
        """Return the sequences as a jagged torch tensor that shares their memory.

        Raises:
            LoDError: This tensor has no LoD, or more than one level: torch knows one.
        """
        from gpufeed.interop import torch

        if self.lod_level != 1:
            raise LoDError(
                f"LoDTensor.to_torch_nested must have one LoD level, got {self.lod_level}"
            )
        return torch.nested(self, self.cu_seqlens(), self.max_seqlen())

    def to_jax(self) -> Any:
        """Return the rows as a JAX array that shares their memory, where JAX can.

        On the host JAX copies what is not aligned to 64 bytes, and it halves 64-bit types unless
        ``jax_enable_x64`` is set.
        """
        from gpufeed.interop import jax

        return jax.from_rows(self)

    def to_arrow(self) -> Any:
        """Return the samples as a pyarrow array of (nested) lists over the same memory.

        Raises:
            TypeError: This tensor is on a device.
        """
        from gpufeed.interop import arrow

        return arrow.from_rows(np.asarray(self), self._fitting())

    @classmethod
    def from_arrow(cls, array: Any) -> LoDTensor:
        """Return a pyarrow array of (nested) lists as a tensor over the same memory.

        Lists become LoD levels, fixed-size lists become item dimensions.

        Raises:
            FieldError: It is no pyarrow array, or holds nulls, or something else than numbers.
            LoDError: Its offsets are damaged, which Arrow itself does not check.
        """
        from gpufeed.interop import arrow

        data, lod = arrow.to_rows(array)
        offset_math.check(lod, len(data), "from_arrow.array")
        return cls._assemble(data, lod, CPUPlace())

    def to_awkward(self) -> Any:
        """Return the samples as an awkward array over the same memory.

        Raises:
            TypeError: This tensor is on a device.
        """
        from gpufeed.interop import awkward

        return awkward.from_rows(np.asarray(self), self._fitting())

    @classmethod
    def from_dlpack(cls, array: Any, lod: object = None) -> LoDTensor:
        """Return an array of another library as a tensor over the same memory."""
        return cls(array, lod)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        if isinstance(self._place, CUDAPlace):
            raise TypeError(
                f"LoDTensor is on {self._place} and is not copied unasked; "
                "use tensor.numpy() or tensor.to('cpu')"
            )
        # NumPy before 2.0 says copy=False where later ones say None.
        array: npt.NDArray[Any] = np.array(self._data, dtype=dtype, copy=copy)
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # An AttributeError on the host, so that hasattr() says who has one.
        interface: dict[str, Any] = self._data.__cuda_array_interface__
        return interface

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._data.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if stream not in (None, -1):  # -1: the consumer does not want to be waited for
            self.record_stream(stream)
        said = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._data.__dlpack__(**{k: v for k, v in said.items() if v is not None})

    def __reduce__(self) -> tuple[Any, ...]:
        data = None if self._data is _UNSET else self.numpy()
        return _restore, (data, self._lod, self._place)

    def _num_rows(self) -> int:
        return len(self._data)

    def _rows_to_cover(self) -> int | None:
        if self._data is _UNSET:
            return None
        return self._num_rows() if self._data.ndim else 0

    def _window(self, begin: int, end: int, lod: LoD) -> Self:
        return self._assemble(self._data[begin:end], lod, self._place, lease=self._lease)

    def _gather(self, rows: Offsets, lod: LoD) -> Self:
        with working_on(self._place):
            return self._assemble(
                self._data[array_module(self._data).asarray(rows)], lod, self._place
            )

    def _entry(self, begin: int, end: int, lod: LoD) -> Any:
        return self._window(begin, end, lod) if lod else self._data[begin:end]

    def _sample(self, row: int) -> Any:
        return self._data[row]

    @classmethod
    def _join(cls, parts: Sequence[Self], lod: LoD) -> Self:
        place = parts[0].place
        arrays = [part._data[: part._num_rows()] for part in parts if part._num_rows()]
        arrays = arrays or [parts[0]._data[:0]]
        kinds = {(array.dtype, array.shape[1:]) for array in arrays}
        if len(kinds) > 1:
            got = ", ".join(sorted(f"{dtype.name} {shape}" for dtype, shape in kinds))
            raise FieldError(f"LoDTensor.parts must have one dtype and item shape, got {got}")
        with working_on(place):
            return cls._assemble(array_module(arrays[0]).concatenate(arrays), lod, place)


def _restore(data: npt.NDArray[Any] | None, lod: LoD, place: Place) -> LoDTensor:
    return LoDTensor._assemble(_UNSET if data is None else data, lod, CPUPlace()).to(place)
