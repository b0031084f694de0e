"""Creators over arrays: in memory, and in files of one array each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.creator.files import FilesReader, Paths, each_file, listed
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import PathLike, Source
from gpufeed.formats.idx import IdxFile
from gpufeed.formats.npy import check_npy, read_npy
from gpufeed.reader.base import Reader
from gpufeed.reader.shard import ShardedReader
from gpufeed.reader.sharding import Shard, ShardLike, as_shard

__all__ = ["idx", "np_array", "npy"]


def np_array(x: npt.ArrayLike, *, shard: ShardLike | None = None) -> Reader[Any]:
    """Read an array along its first axis: views of its rows, NumPy scalars where it has one axis.

    >>> list(np_array([3, 1, 2])())
    [np.int64(3), np.int64(1), np.int64(2)]

    Args:
        x: Array of one dimension or more, or what NumPy makes one of.
        shard: The part to read, as for `open`, row by row.

    Raises:
        FieldError: ``x`` is no array, has no dimension, or ``shard`` is out of range.

    Source: ``paddle.reader.creator.np_array``.
    """
    try:
        array = np.asarray(x)
    except ValueError as error:  # rows of several lengths
        raise FieldError(f"np_array.x must be an array, got {x!r:.80}: {error}") from error
    if array.ndim == 0:
        raise FieldError(f"np_array.x must have a first axis to read along, got {array!r}")
    return _ArrayReader(array, as_shard("np_array.shard", shard))


def idx(*paths: PathLike, shard: ShardLike | None = None) -> Reader[Any]:
    r"""Read the items of an IDX file; of several files side by side, tuples of items.

    Items are arrays in the machine's byte order, NumPy scalars if the file holds a vector:
    ``idx(images, labels)`` gives ``(image, label)``.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile(suffix=".idx") as file:
    ...     size = file.write(b"\0\0\x08\x01" b"\0\0\0\x02" b"\x07\x09")
    ...     file.flush()
    ...     list(idx(file.name))
    [np.uint8(7), np.uint8(9)]

    Args:
        paths: Files with equal numbers of items; ``.gz .bz2 .xz .zst`` are decompressed.
        shard: The part to read, as for `open`, item by item.

    Raises:
        FieldError: No path, or ``shard`` is out of range.
        FormatError: When iterated: a file is missing, empty or damaged, or the files
            hold different numbers of items.
    """
    files = [IdxFile(Source(path)) for path in listed("idx.paths", paths)]
    return _IdxReader(files, as_shard("idx.shard", shard))


def npy(
    path: Paths, columns: Sequence[str] | None = None, *, shard: ShardLike | None = None
) -> Reader[Any]:
    """Read npy files along their first axis, or the arrays of npz archives side by side.

    Items of an npy file are views of its memory map; they may be written to, which does not change
    the file. Samples of an npz archive are tuples with an item of each array.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file, x=np.array([[1, 2], [3, 4]]), label=np.array([0, 1]))
    ...     file.flush()
    ...     list(npy(file.name, ["label", "x"]))
    [(np.int64(0), array([1, 2])), (np.int64(1), array([3, 4]))]

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz .zst`` are decompressed.
        columns: Arrays of the archives, in the order wanted; None takes all, in the order in which
            they were saved.
        shard: The part to read, as for `open`.

    Raises:
        FieldError: ``columns`` is no list of names, or ``shard`` is out of range. When iterated:
            ``columns`` is given for an npy file.
        FormatError: When iterated: a file is missing, empty or damaged, holds Python objects
            (pickles are never opened), or arrays with different numbers of items.
    """
    check_npy(columns)
    files = each_file("npy.path", path, read_npy)
    return FilesReader("npy", files, {"columns": columns}, shard=shard)


class _ArrayReader(ShardedReader[Any]):
    def __init__(self, array: npt.NDArray[Any], division: Shard | None) -> None:
        dtype = array.dtype.name
        super().__init__("np_array", division=division, shape=array.shape, dtype=dtype)
        self._array = array

    def open_whole(self, epoch: int, skip: int) -> Iterator[Any]:
        return iter(self._array[skip:])

    def open_whole_every(self, epoch: int, skip: int, step: int) -> Iterator[Any]:
        return iter(self._array[skip::step])

    def count_whole(self) -> int:
        return len(self._array)


class _IdxReader(ShardedReader[Any]):
    """Items of one IDX file, or tuples of the items of several."""

    def __init__(self, files: Sequence[IdxFile], division: Shard | None) -> None:
        super().__init__("idx", division=division, paths=list(map(str, files)))
        self._files = files

    def count_whole(self) -> int | None:
        counts = {file.count() for file in self._files}
        return counts.pop() if len(counts) == 1 else None

    def open_whole(self, epoch: int, skip: int) -> Iterator[Any]:
        if len(self._files) == 1:
            yield from self._files[0].tail(skip)
            return
        counts = [file.count() for file in self._files]
        if len(set(counts)) > 1:
            held = ", ".join(
                f"{file}: {count}" for file, count in zip(self._files, counts, strict=True)
            )
            raise FormatError(f"idx.paths must hold equally many items, got {held}")
        with ExitStack() as stack:
            tails = [stack.enter_context(closing(file.tail(skip))) for file in self._files]
            # Strict, so that each file is read to its end and its end is checked.
            yield from zip(*tails, strict=True)
