"""`SparseRows`: rows of mostly zeros, kept as the places and values of what is not zero.

The compressed form is what travels to a device and what lives there; `SparseRows.to_dense` makes
the wide rows out of it, where it is.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

import gpufeed.lod as offset_math
from gpufeed.checks import whole_number
from gpufeed.device import array_module, transfer, working_on
from gpufeed.device.backend import Array
from gpufeed.device.slabs import Lease
from gpufeed.errors import FieldError, PlaceError
from gpufeed.interop.dlpack import as_array
from gpufeed.kernels import densify_rows
from gpufeed.kernels.checks import INDEX_DTYPES
from gpufeed.lod import LoD, Offsets
from gpufeed.places import CPUPlace, CUDAPlace, Place, PlaceLike, as_place
from gpufeed.ragged import Ragged, require_kernel_dtype
from gpufeed.tensor import LoDTensor

__all__ = ["SparseRows"]


class SparseRows(Ragged):
    """Rows of width ``dim`` in compressed form (CSR), with a LoD that cuts them into sequences.

    Row ``r`` is 0 but for ``row[indices[j]] += values[j]``, ``offsets[r] <= j < offsets[r + 1]``;
    without values each column that is listed is 1.

    >>> s = SparseRows([0, 2, 2, 3], [0, 3, 1], [5.0, 6.0, 7.0], dim=4)
    >>> s.to_dense()
    array([[5., 0., 0., 6.],
           [0., 0., 0., 0.],
           [0., 7., 0., 0.]])

    Slicing, `split`, `merge`, iteration and the LoD are those of `LoDTensor`; without a LoD a
    sample is what a reader gives for it, ``indices`` or ``(indices, values)``.

    >>> SparseRows([0, 2, 2, 3], [0, 3, 1], None, dim=4)[0].tolist()
    [0, 3]

    Args:
        offsets: ``(rows + 1,)`` whole numbers: where each row begins. Contiguous arrays are taken
            without a copy, these two if both are int32 or both int64, as kernels want them.
        indices: ``(stored,)`` whole numbers in ``[0, dim)``.
        values: ``(stored,)`` numbers, or None for a binary matrix.
        dim: Width of a row.
        lod: Offsets of the sequences that the rows form, one list a level.

    Raises:
        FieldError: The arrays do not fit each other, or an index is outside ``[0, dim)``.
        LoDError: ``offsets`` or ``lod`` break the rules of `gpufeed.lod`.
        PlaceError: The arrays are on different places.
    """

    __slots__ = ("_dim", "_indices", "_offsets", "_values")

    _offsets: Array
    _indices: Array
    _values: Array | None
    _dim: int

    def __init__(
        self, offsets: object, indices: object, values: object, dim: int, lod: object = ()
    ) -> None:
        self._offsets, self._place = _flat(offsets, "offsets", "iu")
        self._indices, *others = _flat(indices, "indices", "iu")
        self._values = None
        if values is not None:
            self._values, place = _flat(values, "values", "biuf")
            others.append(place)
        for place in others:
            if place != self._place:
                raise PlaceError(
                    f"SparseRows.offsets, indices and values must be on one place, "
                    f"got {self._place} and {place}"
                )
        self._dim = whole_number("SparseRows.dim", dim, minimum=1)
        self._lod_on_place, self._lease = None, None
        self._check()
        self._normalize()
        self.set_lod(lod)

    @classmethod
    def _assemble(
        cls,
        offsets: Array,
        indices: Array,
        values: Array | None,
        dim: int,
        lod: Sequence[Offsets],
        place: Place,
        lod_on_place: Sequence[Array] | None = None,
        lease: Lease | None = None,
    ) -> Self:
        """Return rows of parts that are known to fit; nothing is checked or copied."""
        self = object.__new__(cls)
        self._offsets = offsets
        self._indices = indices
        self._values = values
        self._dim = dim
        self._lod = tuple(lod)
        self._place = place
        self._lod_on_place = lod_on_place
        self._lease = lease
        return self

    @property
    def offsets(self) -> Array:
        """Where each row begins in ``indices``: ``(rows + 1,)``."""
        return self._offsets

    @property
    def indices(self) -> Array:
        """Columns of the stored entries, row after row: ``(stored,)``."""
        return self._indices

    @property
    def values(self) -> Array | None:
        """Values of the stored entries, ``(stored,)``; None where every one is 1."""
        return self._values

    @property
    def dim(self) -> int:
        """Width of a row."""
        return self._dim

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the dense form: ``(rows, dim)``."""
        return self._num_rows(), self._dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values; float32 where there are none."""
        kind: np.dtype[Any] = np.dtype(np.float32) if self._values is None else self._values.dtype
        return kind

    def __repr__(self) -> str:
        kind = "binary" if self._values is None else self.dtype
        return (
            f"SparseRows(shape={self.shape}, stored={len(self._indices)}, {kind}, "
            f"lod={reprlib.repr(self.lod())}, place={self._place})"
        )

    def to(self, place: PlaceLike) -> SparseRows:
        """Return these rows on another place, as a copy; on their own place, themselves."""
        target = as_place(place)
        if target == self._place:
            return self
        return SparseRows._assemble(
            transfer(self._offsets, self._place, target),
            transfer(self._indices, self._place, target),
            None if self._values is None else transfer(self._values, self._place, target),
            self._dim,
            self._lod,
            target,
        )

    def to_dense(self, out: Array | None = None) -> Array:
        """Return the wide rows, on this object's place; entries of one column add up.

        Args:
            out: ``(rows, dim)`` to overwrite; None makes a new array of `dtype`.

        Raises:
            FieldError: ``out`` has another shape or is not contiguous, or a dtype is one that no
                kernel takes.
        """
        require_kernel_dtype("SparseRows.to_dense: the values", self.dtype)
        with working_on(self._place):
            if out is None:
                out = array_module(self._indices).empty(self.shape, self.dtype)
            else:
                self._check_out(out)
            densify_rows(self._offsets, self._indices, self._values, out)
        return out

    def to_list(self) -> list[Any]:
        """Return the samples as nested Python lists of column lists, or (columns, values)."""
        host = self.to(CPUPlace())
        rows: list[Any] = []
        for begin, end in pairwise(host._offsets.tolist()):
            columns = host._indices[begin:end].tolist()
            rows.append(
                columns if host._values is None else (columns, host._values[begin:end].tolist())
            )
        for level in reversed(self._fitting()):
            rows = [rows[begin:end] for begin, end in pairwise(level.tolist())]
        return rows

    def to_scipy(self) -> Any:
        """Return the rows, without their LoD, as a SciPy ``csr_array`` over the same memory.

        Raises:
            TypeError: They are on a device.
        """
        self._refuse_device()
        from gpufeed.interop import scipy

        return scipy.csr(self._offsets, self._indices, self._values_or_ones(), self.shape)

    @classmethod
    def from_scipy(cls, matrix: Any, lod: object = ()) -> SparseRows:
        """Return a SciPy sparse matrix as rows; one in CSR form is not copied.

        Args:
            matrix: Any SciPy sparse array or matrix with two dimensions.
            lod: Offsets of the sequences that the rows form.

        Raises:
            FieldError: ``matrix`` is no such thing.
        """
        from gpufeed.interop import scipy

        return cls(*scipy.from_csr(matrix), lod)

    def to_cupyx(self) -> Any:
        """Return the rows, without their LoD, as a CuPy ``csr_matrix`` over the same memory.

        Raises:
            PlaceError: They are not on a GPU.
        """
        if not hasattr(self._indices, "__cuda_array_interface__"):
            raise PlaceError(f"SparseRows.to_cupyx must be called on a GPU, got {self._place}")
        from gpufeed.device.cuda_sparse import csr_matrix

        with working_on(self._place):
            return csr_matrix(self._values_or_ones(), self._indices, self._offsets, self.shape)

    def to_torch(self) -> Any:
        """Return the rows, without their LoD, as a sparse CSR torch tensor over the same memory."""
        from gpufeed.interop import torch

        return torch.csr(*self._lent(), self._dim)

    def to_jax(self) -> Any:
        """Return the rows, without their LoD, as a JAX ``BCSR`` array over the same memory."""
        from gpufeed.interop import jax

        return jax.csr(*self._lent(), self._dim)

    def __reduce__(self) -> tuple[Any, ...]:
        host = self.to(CPUPlace())
        parts = (host._offsets, host._indices, host._values, host._dim, host._lod)
        return _restore, (*parts, self._place)

    def _check(self) -> None:
        offsets = transfer(self._offsets, self._place, CPUPlace())
        offset_math.check_offsets(offsets, len(self._indices), "indices", "SparseRows.offsets")
        if self._values is not None and len(self._values) != len(self._indices):
            raise FieldError(
                f"SparseRows.values must be as many as the {len(self._indices)} indices, "
                f"got {len(self._values)}"
            )
        with working_on(self._place):
            outside = (self._indices < 0) | (self._indices >= self._dim)
            if not outside.any():
                return
            at = int(outside.argmax())
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        raise FieldError(
            f"SparseRows.indices must be in [0, {self._dim}), got {int(self._indices[at])} "
            f"in row {row}"
        )

    def _check_out(self, out: Array) -> None:
        if not hasattr(out, "flags"):
            raise FieldError(f"SparseRows.to_dense.out must be an array, got {type(out).__name__}")
        if tuple(out.shape) != self.shape:
            raise FieldError(
                f"SparseRows.to_dense.out must have shape {self.shape}, got {tuple(out.shape)}"
            )
        if not out.flags.c_contiguous:
            raise FieldError(
                f"SparseRows.to_dense.out must be C-contiguous, got strides {out.strides}"
            )
        require_kernel_dtype("SparseRows.to_dense.out", out.dtype)
        if out.dtype == bool and self._values is not None and self.dtype != bool:
            raise FieldError(
                f"SparseRows.to_dense.out must hold numbers for {self.dtype}, got bool"
            )

    def _normalize(self) -> None:
        """Make the arrays what kernels and other libraries take: contiguous, of one index dtype."""
        dtype = np.result_type(self._offsets.dtype, self._indices.dtype)
        if dtype not in INDEX_DTYPES:
            dtype = np.dtype(np.int64)
        with working_on(self._place):
            xp = array_module(self._indices)
            self._offsets = xp.ascontiguousarray(self._offsets, dtype)
            self._indices = xp.ascontiguousarray(self._indices, dtype)
            if self._values is not None:
                self._values = xp.ascontiguousarray(self._values)

    def _refuse_device(self) -> None:
        if isinstance(self._place, CUDAPlace):
            raise TypeError(
                f"SparseRows are on {self._place} and are not copied unasked; use rows.to('cpu')"
            )

    def _values_or_ones(self) -> Array:
        if self._values is not None:
            return self._values
        with working_on(self._place):
            return array_module(self._indices).ones(len(self._indices), np.float32)

    def _lent(self) -> tuple[LoDTensor, LoDTensor, LoDTensor]:
        """Return offsets, indices and values, each of them telling the lease who reads it."""

        def lend(part: Array) -> LoDTensor:
            return LoDTensor._assemble(part, (), self._place, lease=self._lease)

        return lend(self._offsets), lend(self._indices), lend(self._values_or_ones())

    def _num_rows(self) -> int:
        return len(self._offsets) - 1

    def _window(self, begin: int, end: int, lod: LoD) -> Self:
        offsets = self._offsets[begin : end + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        with working_on(self._place):
            offsets = offsets - first
        values = None if self._values is None else self._values[first:last]
        indices = self._indices[first:last]
        return self._assemble(
            offsets, indices, values, self._dim, lod, self._place, lease=self._lease
        )

    def _gather(self, rows: Offsets, lod: LoD) -> Self:
        offsets = transfer(self._offsets, self._place, CPUPlace())
        (taken,), stored = offset_math.take((offsets,), rows)
        with working_on(self._place):
            xp = array_module(self._indices)
            there = xp.asarray(stored)
            values = None if self._values is None else self._values[there]
            taken = xp.asarray(taken, self._offsets.dtype)
            return self._assemble(taken, self._indices[there], values, self._dim, lod, self._place)

    def _entry(self, begin: int, end: int, lod: LoD) -> Any:
        return self._window(begin, end, lod)

    def _sample(self, row: int) -> Any:
        begin, end = map(int, self._offsets[row : row + 2])
        if self._values is None:
            return self._indices[begin:end]
        return self._indices[begin:end], self._values[begin:end]

    @classmethod
    def _join(cls, parts: Sequence[Self], lod: LoD) -> Self:
        kinds = {(part.dim, part.dtype.name, part._values is None) for part in parts}
        if len(kinds) > 1:
            got = ", ".join(
                f"dim {dim} {'binary' if binary else dtype}" for dim, dtype, binary in sorted(kinds)
            )
            raise FieldError(f"SparseRows.parts must have one dim and dtype, got {got}")
        place = parts[0].place
        with working_on(place):
            xp = array_module(parts[0]._indices)
            offsets, stored = [parts[0]._offsets[:1]], 0
            for part in parts:
                offsets.append(part._offsets[1:] + stored)
                stored += len(part._indices)
            values = [part._values for part in parts]
            return cls._assemble(
                xp.concatenate(offsets),
                xp.concatenate([part._indices for part in parts]),
                None if values[0] is None else xp.concatenate(values),
                parts[0].dim,
                lod,
                place,
            )


def _flat(numbers: object, argument: str, kinds: str) -> tuple[Array, Place]:
    array, place = as_array(numbers, f"SparseRows.{argument}")
    if array.ndim == 1 and not array.size and isinstance(numbers, list):
        array = array.astype(np.int64)  # NumPy takes an empty list for floats
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise FieldError(
            f"SparseRows.{argument} must be flat numbers, got {array.dtype} of shape {array.shape}"
        )
    return array, place


def _restore(
    offsets: Array, indices: Array, values: Array | None, dim: int, lod: LoD, place: Place
) -> SparseRows:
    return SparseRows._assemble(offsets, indices, values, dim, lod, CPUPlace()).to(place)
