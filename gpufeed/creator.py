"""Reader creators: functions that make a reader of an array or of files.

Making a reader opens nothing; iterating it does. So a missing file is found then, and every pass
reads afresh.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Opener, PathLike, Seekable, Source, locate, resolve
from gpufeed.formats.csv import Column, Dtypes, check_csv, read_csv
from gpufeed.formats.idx import IdxFile
from gpufeed.formats.svmlight import check_svmlight, read_svmlight
from gpufeed.formats.text import read_text
from gpufeed.reader.base import Reader, drain

__all__ = ["csv", "idx", "np_array", "open", "svmlight", "text_file"]

Paths = PathLike | Sequence[PathLike]


def np_array(x: npt.ArrayLike) -> Reader[Any]:
    """Read an array along its first axis: views of its rows, NumPy scalars where it has one axis.

    >>> list(np_array([3, 1, 2])())
    [np.int64(3), np.int64(1), np.int64(2)]

    Args:
        x: Array of one dimension or more, or what NumPy makes one of.

    Raises:
        FieldError: ``x`` has no dimension.

    Source: ``paddle.reader.creator.np_array``.
    """
    array = np.asarray(x)
    if array.ndim == 0:
        raise FieldError(f"np_array.x must have a first axis to read along, got {array!r}")
    return _ArrayReader(array)


def text_file(path: Paths) -> Reader[Any]:
    r"""Read lines of UTF-8 text, without their line endings; a last line needs none.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".txt") as file:
    ...     print("one", "two", sep="\n", file=file, flush=True)
    ...     list(text_file(file.name))
    ['one', 'two']

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz`` are decompressed.

    Raises:
        FormatError: When iterated: a file is missing, empty, or not UTF-8.

    Source: ``paddle.reader.creator.text_file``.
    """
    return _FilesReader("text_file", _each(path, read_text), {})


def csv(
    path: Paths,
    columns: Sequence[Column] | None = None,
    dtypes: Dtypes | None = None,
    *,
    header: bool = True,
    delimiter: str = ",",
) -> Reader[Any]:
    r"""Read the rows of CSV files as tuples.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("name,age", "Ada,36", sep="\n", file=file, flush=True)
    ...     list(csv(file.name, ["age", "name"], {"age": "int64"}))
    [(36, 'Ada')]

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz`` are decompressed.
        columns: Names (with a header) or positions from 0, in the order wanted; None takes all.
        dtypes: One for all columns, or a mapping from column to dtype; the rest stays text.
        header: Whether the first row names the columns.
        delimiter: One character.

    Raises:
        FieldError: ``delimiter`` is not one character, or a dtype is none that text converts to.
        FormatError: When iterated: a file is missing, empty or damaged, a column is not there, a
            field does not convert to its dtype.
    """
    check_csv(columns, dtypes, header=header, delimiter=delimiter)
    options = {"columns": columns, "dtypes": dtypes, "header": header, "delimiter": delimiter}
    return _FilesReader("csv", _each(path, read_csv), options)


def svmlight(
    path: Paths,
    dim: int | None = None,
    *,
    binary: bool = False,
    zero_based: bool = False,
    query_id: bool = False,
) -> Reader[Any]:
    r"""Read svmlight (libsvm) files: sparse rows with a label.

    A sample is ``((indices, values), label)``, or ``(indices, label)`` if ``binary``: what a
    variable of layout ``"sparse_float"`` or ``"sparse_binary"`` takes. Indices are int64 from 0,
    values float32; a label is an int where it is written as one, else a float.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".svm") as file:
    ...     print("1 2:0.5 7:1", "-1 3:2", sep="\n", file=file, flush=True)
    ...     [(indices.tolist(), label) for (indices, _), label in svmlight(file.name)]
    [([1, 6], 1), ([2], -1)]

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz`` are decompressed.
        dim: Number of features; None leaves indices unbounded.
        binary: Whether all values are 1 and left out.
        zero_based: Whether the file counts features from 0, not 1.
        query_id: Whether samples end in the number after ``qid:``, None where a line has none.

    Raises:
        FieldError: ``dim`` is not a whole number >= 1.
        FormatError: When iterated: a file is missing, empty or damaged.
    """
    check_svmlight(dim, binary=binary, zero_based=zero_based, query_id=query_id)
    options = {"dim": dim, "binary": binary, "zero_based": zero_based, "query_id": query_id}
    return _FilesReader("svmlight", _each(path, read_svmlight), options)


def idx(*paths: PathLike) -> Reader[Any]:
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
        paths: Files with equal numbers of items; ``.gz .bz2 .xz`` are decompressed.

    Raises:
        FieldError: No path.
        FormatError: When iterated: a file is missing, empty or damaged, or the files
            hold different numbers of items.
    """
    if not paths:
        raise FieldError("idx.paths must be one file or more, got none")
    return _IdxReader([IdxFile(Source(os.fspath(path))) for path in paths])


def open(spec: Paths, **options: Any) -> Reader[Any]:  # noqa: A001 - `creator.open` is its public name
    """Read files of any registered format, one after the other.

    >>> reader = open("svmlight:a9a/*", dim=123)  # or by ending: open("train.csv.gz")

    Args:
        spec: ``"tag:path"`` or ``"path"``, whose ending then tells the format; the path may be a
            glob pattern. Or a list of these.
        options: Of the format: those of the creator of the same name.

    Raises:
        FieldError: An option breaks a rule of the format.
        FormatError: Unknown format. When iterated: what that format raises.
    """
    found = [resolve(one) for one in _listed(spec)]
    for form, _ in found:
        if form.check is not None:
            form.check(**options)
    return _FilesReader("open", [(path, form.opener) for form, path in found], options)


class _ArrayReader(Reader[Any]):
    def __init__(self, array: npt.NDArray[Any]) -> None:
        super().__init__("np_array", shape=array.shape, dtype=array.dtype.name)
        self._array = array

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        return iter(self._array[skip:])


class _FilesReader(Reader[Any]):
    """The samples of several files, one file after the other, in the order given."""

    def __init__(
        self, creator: str, files: Sequence[tuple[str, Opener]], options: Mapping[str, Any]
    ) -> None:
        super().__init__(creator, paths=[path for path, _ in files], options=_named(options))
        self._files = files
        self._options = options

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        for pattern, opener in self._files:
            for source in locate(pattern):
                samples = opener(source, **self._options)
                if isinstance(samples, Seekable):
                    skipped = min(skip, samples.count()) if skip else 0
                    rest = samples.tail(skipped)
                else:
                    rest = iter(samples)
                    skipped = drain(rest, skip)
                skip -= skipped
                yield from rest


class _IdxReader(Reader[Any]):
    """Items of one IDX file, or tuples of the items of several."""

    def __init__(self, files: Sequence[IdxFile]) -> None:
        super().__init__("idx", paths=list(map(str, files)))
        self._files = files

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
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


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in words that are the same in every process, for `Reader.identity`."""
    named = {key: _name(option) for key, option in options.items()}
    dtypes = options.get("dtypes")
    if isinstance(dtypes, Mapping):
        named["dtypes"] = {column: _dtype_name(dtype) for column, dtype in dtypes.items()}
    elif dtypes is not None:
        named["dtypes"] = _dtype_name(dtypes)
    return named


def _name(option: Any) -> Any:
    if isinstance(option, Mapping):
        return {key: _name(value) for key, value in option.items()}
    if isinstance(option, list | tuple):
        return [_name(value) for value in option]
    if callable(option):
        # What is no function and no class, such as a partial, goes by its class.
        known = option if hasattr(option, "__qualname__") else type(option)
        module = getattr(known, "__module__", None) or "builtins"
        return f"{module}.{known.__qualname__}"
    return option


def _dtype_name(dtype: Any) -> Any:
    try:
        return str(np.dtype(dtype))
    except TypeError:  # the option of another format, with rules of its own
        return _name(dtype)


def _each(path: Paths, opener: Opener) -> list[tuple[str, Opener]]:
    return [(one, opener) for one in _listed(path)]


def _listed(path: Paths) -> list[str]:
    paths = [path] if isinstance(path, str | os.PathLike) else path
    return [os.fspath(one) for one in paths]
