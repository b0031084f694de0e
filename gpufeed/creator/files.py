"""The samples of files: what every creator over files returns, and the one for any format."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpufeed.errors import FieldError
from gpufeed.formats import (
    Format,
    Opener,
    PathLike,
    Seekable,
    SeekableRows,
    Source,
    locate,
    resolve,
)
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import drain, reading
from gpufeed.reader.rows import without_rows
from gpufeed.reader.shard import ShardedReader
from gpufeed.reader.sharding import ShardLike, as_shard
from gpufeed.reader.skipping import OnError, SkipLog, skip_policy

__all__ = ["FilesReader", "Paths", "each_file", "listed", "open"]

Paths = PathLike | Sequence[PathLike]
_File = tuple[Source, Opener]


def open(  # noqa: A001 - `creator.open` is its public name
    spec: Paths,
    *,
    shard: ShardLike | None = None,
    on_error: OnError = "raise",
    **options: Any,
) -> Reader[Any]:
    """Read files of any registered format, one after the other.

    >>> reader = open("svmlight:a9a/*", dim=123)  # or by ending: open("train.csv.gz")

    Args:
        spec: ``"tag:path"`` or ``"path"``, whose ending then tells the format; the path may be a
            glob pattern. Or a list of these.
        shard: The part to read: ``(num_shards, index)``, ``"auto"`` as the launcher's environment
            says, or None for everything. Whole files where there are enough, else samples; with
            a `Shard` of ``equal=True`` always samples, equally many for every rank.
        on_error: ``"raise"``, or ``"skip"`` or a `Skip` to leave damaged samples out, where the
            format can.
        options: Of the format: those of the creator of the same name.

    Raises:
        FieldError: An option breaks a rule of the format, ``spec``, ``shard`` or ``on_error`` is
            something else, or the format cannot skip samples.
        TypeError: The format has no such option, or needs one.
        FormatError: Unknown format. When iterated: what that format raises.
    """
    found = [resolve(one) for one in listed("open.spec", spec)]
    for form, path in found:
        _require_options(form, path, options)
    return FilesReader(
        "open",
        [(path, form.opener) for form, path in found],
        options,
        shard=shard,
        on_error=on_error,
    )


class FilesReader(ShardedReader[Any]):
    """The samples of several files, one file after the other, in the order given.

    Of a pass that is shared, each rank reads whole files, those at its index and every
    ``num_shards``-th after it, so that none reads what another delivers. If there are fewer files
    than ranks, or all must get equally many samples, each reads all files and takes its samples.

    Args:
        creator: That made it, as the user spells it.
        files: Paths and patterns, each with the opener that reads what it names.
        options: Of the openers.
        shard: ``(num_shards, index)``, ``"auto"``, a `Shard`, or None.
        on_error: What to do about a damaged sample, where the format can go on after one: its
            opener takes ``skipped``, to be called with the error (and, if it is not one, the
            number of samples that are lost) before it goes on.

    Raises:
        FieldError: ``shard`` or ``on_error`` is something else, or a format cannot go on.
    """

    def __init__(
        self,
        creator: str,
        files: Sequence[tuple[str, Opener]],
        options: Mapping[str, Any],
        *,
        shard: ShardLike | None = None,
        on_error: OnError = "raise",
    ) -> None:
        self._policy = skip_policy(f"{creator}.on_error", on_error)
        shown = {"shard": shard, "on_error": self._policy}
        super().__init__(
            creator,
            division=as_shard(f"{creator}.shard", shard),
            paths=[path for path, _ in files],
            options=_named(options),
            **{key: value for key, value in shown.items() if value is not None},
        )
        self._files = files
        self._options = options
        if self._policy is not None:
            for path, opener in files:
                _require_skipping(f"{creator}.on_error", path, opener)

    @property
    def is_columnar(self) -> bool:
        """Whether it was asked for record batches."""
        return bool(self._options.get("columnar"))

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        """Skip files that know their number of samples without reading them."""
        files, division, worlds = self._located(), self.division, self.worlds
        num_ranks = worlds[0][0] if worlds else division.num_shards
        if division.equal or len(files) < num_ranks:
            return super().open(epoch, skip)
        if not worlds:
            return self._read(files[division.index :: num_ranks], skip)
        left_over = self._left_over(files, *worlds[0])
        drain(left_over, division.begin(worlds[1:], skip))
        return division.take(left_over)

    def open_rows(self, epoch: int, skip: int) -> Iterator[Any]:
        """Return record batches without their first ``skip`` rows, for `gpufeed.batch`.

        Files that can find a row do. Where ranks share files, whose rows these are depends on all
        record batches before them.
        """
        files, division = self._located(), self.division
        is_shared = division.equal or len(files) < division.num_shards
        if skip and not (self.worlds or is_shared or self._policy is not None):
            files = files[division.index :: division.num_shards]
            tables = [opener(source, **self._options) for source, opener in files]
            if all(isinstance(table, SeekableRows) for table in tables):
                return _rows_after(skip, tables)
        return self._drop_rows(epoch, skip)

    def _drop_rows(self, epoch: int, skip: int) -> Iterator[Any]:
        with reading(self, epoch, 0) as record_batches:
            yield from without_rows(record_batches, skip)

    def open_whole(self, epoch: int, skip: int) -> Iterator[Any]:
        """Read all files, whoever they are for."""
        return self._read(self._located(), skip)

    def count_whole(self) -> int | None:
        """Add up the counts of all files, where each tells its own."""
        if self._policy is not None:
            return None
        files = [opener(source, **self._options) for source, opener in self._located()]
        counts = [file.count() for file in files if isinstance(file, Seekable)]
        return sum(counts) if len(counts) == len(files) else None

    def count(self) -> int | None:
        """Return the number of samples, where that of all files is known and all are read."""
        return self.count_whole() if self.division.num_shards == 1 else None

    def _located(self) -> list[_File]:
        return [(source, opener) for path, opener in self._files for source in locate(path)]

    def _left_over(self, files: list[_File], num_ranks: int, num_read: int) -> Iterator[Any]:
        """Yield what ``num_ranks`` ranks left of their files, each after ``num_read`` samples."""
        for index in range(num_ranks):
            yield from self._read(files[index::num_ranks], num_read)

    def _read(self, files: Sequence[_File], skip: int) -> Iterator[Any]:
        if self._policy is not None:
            readable = self._read_what_can_be(files, self.start_skipping(self._policy))
            drain(readable, skip)
            yield from readable
            return
        for source, opener in files:
            samples = opener(source, **self._options)
            if isinstance(samples, Seekable):
                skipped = min(skip, samples.count()) if skip else 0
                rest = samples.tail(skipped)
            else:
                rest = iter(samples)
                skipped = drain(rest, skip)
            skip -= skipped
            yield from rest

    def _read_what_can_be(self, files: Sequence[_File], log: SkipLog) -> Iterator[Any]:
        num_read = 0

        def skipped(error: Exception, num_samples: int = 1) -> None:
            log.skip(num_read + log.count, error, num_samples)

        for source, opener in files:
            for sample in opener(source, **self._options, skipped=skipped):
                num_read += 1
                yield sample


def _rows_after(skip: int, tables: Iterable[Any]) -> Iterator[Any]:
    for table in tables:
        skipped = min(skip, table.num_rows()) if skip else 0
        skip -= skipped
        yield from table.record_batches(skipped)


def _require_options(form: Format, path: str, options: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(form.opener)
    except ValueError:  # of something that is written in C
        return
    try:
        parameters.bind(path, **options)
    except TypeError as error:
        raise TypeError(f"open of {path}: format {form.tag}: {error}") from None
    if form.check is not None:
        form.check(**options)


def _require_skipping(name: str, path: str, opener: Opener) -> None:
    if "skipped" not in inspect.signature(opener).parameters:
        raise FieldError(f"{name} must be 'raise': the format of {path} cannot skip samples")


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
    if isinstance(option, partial):
        bound = {"args": option.args, "keywords": option.keywords}
        return ["partial", _name(option.func), _name(bound)]
    if callable(option):
        # What is no function and no class, such as an object with `__call__`, goes by its class.
        known = option if hasattr(option, "__qualname__") else type(option)
        module = getattr(known, "__module__", None) or "builtins"
        return f"{module}.{known.__qualname__}"
    return option


def _dtype_name(dtype: Any) -> Any:
    try:
        return str(np.dtype(dtype))
    except TypeError:  # the option of another format, with rules of its own
        return _name(dtype)


def each_file(name: str, path: Paths, opener: Opener) -> list[tuple[str, Opener]]:
    """Return every path or pattern of an argument with the opener that reads it."""
    return [(one, opener) for one in listed(name, path)]


def listed(name: str, path: Paths) -> list[str]:
    """Return every path or pattern of an argument.

    >>> listed("csv.path", "train.csv")
    ['train.csv']

    Args:
        name: ``owner.argument``, for the message.
        path: What the user gave.

    Raises:
        FieldError: It is neither a path nor a list of them, or there is none: a pass over no file
            would be an empty one.
    """
    given = [path] if isinstance(path, str | bytes | os.PathLike) else path
    paths = list(given) if isinstance(given, Iterable) else []
    if not paths or not all(isinstance(one, str | os.PathLike) and os.fspath(one) for one in paths):
        raise FieldError(f"{name} must be a path or a list of one or more, got {path!r:.80}")
    return [os.fspath(one) for one in paths]
