"""Creators over files of text: lines, CSV, JSON lines, svmlight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpufeed.creator.files import FilesReader, Paths, each_file
from gpufeed.formats.csv import Column, Dtypes, check_csv, read_csv
from gpufeed.formats.jsonl import check_jsonl, read_jsonl
from gpufeed.formats.svmlight import check_svmlight, read_svmlight
from gpufeed.formats.text import read_text
from gpufeed.reader.base import Reader
from gpufeed.reader.sharding import ShardLike
from gpufeed.reader.skipping import OnError

__all__ = ["csv", "jsonl", "svmlight", "text_file"]


def text_file(
    path: Paths, *, shard: ShardLike | None = None, on_error: OnError = "raise"
) -> Reader[Any]:
    r"""Read lines of UTF-8 text, without their line endings; a last line needs none.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".txt") as file:
    ...     print("one", "two", sep="\n", file=file, flush=True)
    ...     list(text_file(file.name))
    ['one', 'two']

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz .zst`` are decompressed.
        shard: The part to read, as for `open`.
        on_error: Whether to ``"skip"`` lines that are not UTF-8, as for `open`.

    Raises:
        FieldError: ``shard`` or ``on_error`` is something else.
        FormatError: When iterated: a file is missing, empty, or not UTF-8.

    Source: ``paddle.reader.creator.text_file``.
    """
    files = each_file("text_file.path", path, read_text)
    return FilesReader("text_file", files, {}, shard=shard, on_error=on_error)


def csv(
    path: Paths,
    columns: Sequence[Column] | None = None,
    dtypes: Dtypes | None = None,
    *,
    header: bool = True,
    delimiter: str = ",",
    shard: ShardLike | None = None,
    on_error: OnError = "raise",
) -> Reader[Any]:
    r"""Read the rows of CSV files as tuples.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".csv") as file:
    ...     print("name,age", "Ada,36", sep="\n", file=file, flush=True)
    ...     list(csv(file.name, ["age", "name"], {"age": "int64"}))
    [(36, 'Ada')]

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz .zst`` are decompressed.
        columns: Names (with a header) or positions from 0, in the order wanted; None takes all.
        dtypes: One for all columns, or a mapping from column to dtype; the rest stays text.
        header: Whether the first row names the columns.
        delimiter: One character.
        shard: The part to read, as for `open`.
        on_error: Whether to ``"skip"`` rows that do not fit, as for `open`.

    Raises:
        FieldError: ``columns`` is no list of names and positions, ``header`` no truth value,
            ``delimiter`` not one character, or a dtype is none that text converts to, ``shard`` or
            ``on_error`` is something else.
        FormatError: When iterated: a file is missing, empty or damaged, a column is not there, a
            field does not convert to its dtype.
    """
    check_csv(columns, dtypes, header=header, delimiter=delimiter)
    options = {"columns": columns, "dtypes": dtypes, "header": header, "delimiter": delimiter}
    files = each_file("csv.path", path, read_csv)
    return FilesReader("csv", files, options, shard=shard, on_error=on_error)


def jsonl(
    path: Paths,
    columns: Sequence[str] | None = None,
    *,
    shard: ShardLike | None = None,
    on_error: OnError = "raise",
) -> Reader[Any]:
    r"""Read the values of JSON Lines files.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     print('{"ids": [7, 8], "label": 1}', '{"ids": [], "label": 0}', sep="\n", file=file)
    ...     file.flush()
    ...     list(jsonl(file.name, ["label", "ids"]))
    [(1, [7, 8]), (0, [])]

    Args:
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz .zst`` are decompressed.
        columns: Keys of the lines' objects, for tuples of their values in this order; None gives
            the values as they are: a feeder takes an object's fields by their names.
        shard: The part to read, as for `open`.
        on_error: Whether to ``"skip"`` damaged lines, as for `open`.

    Raises:
        FieldError: ``columns`` is no list of names, ``shard`` or ``on_error`` is something else.
        FormatError: When iterated: a file is missing, empty or damaged, or a line lacks a key.
    """
    check_jsonl(columns)
    files = each_file("jsonl.path", path, read_jsonl)
    return FilesReader("jsonl", files, {"columns": columns}, shard=shard, on_error=on_error)


def svmlight(
    path: Paths,
    dim: int | None = None,
    *,
    binary: bool = False,
    zero_based: bool = False,
    query_id: bool = False,
    shard: ShardLike | None = None,
    on_error: OnError = "raise",
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
        path: A file, a glob pattern, or a list of both; ``.gz .bz2 .xz .zst`` are decompressed.
        dim: Number of features; None leaves indices unbounded.
        binary: Whether all values are 1 and left out.
        zero_based: Whether the file counts features from 0, not 1.
        query_id: Whether samples end in the number after ``qid:``, None where a line has none.
        shard: The part to read, as for `open`.
        on_error: Whether to ``"skip"`` damaged lines, as for `open`.

    Raises:
        FieldError: ``dim`` is not a whole number >= 1, ``shard`` or ``on_error`` is something else.
        FormatError: When iterated: a file is missing, empty or damaged.
    """
    check_svmlight(dim, binary=binary, zero_based=zero_based, query_id=query_id)
    options = {"dim": dim, "binary": binary, "zero_based": zero_based, "query_id": query_id}
    files = each_file("svmlight.path", path, read_svmlight)
    return FilesReader("svmlight", files, options, shard=shard, on_error=on_error)
