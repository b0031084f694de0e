"""The samples of files: what every creator over files returns, and the one for any format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpufeed.formats import Opener, PathLike, Seekable, locate, resolve
from gpufeed.reader.base import Reader, drain

__all__ = ["FilesReader", "Paths", "each_file", "open"]

Paths = PathLike | Sequence[PathLike]


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
    return FilesReader("open", [(path, form.opener) for form, path in found], options)


class FilesReader(Reader[Any]):
    """The samples of several files, one file after the other, in the order given."""

    def __init__(
        self, creator: str, files: Sequence[tuple[str, Opener]], options: Mapping[str, Any]
    ) -> None:
        super().__init__(creator, paths=[path for path, _ in files], options=_named(options))
        self._files = files
        self._options = options

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        """Skip files that know their number of samples without reading them."""
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


def each_file(path: Paths, opener: Opener) -> list[tuple[str, Opener]]:
    """Return every path or pattern with the opener that reads it."""
    return [(one, opener) for one in _listed(path)]


def _listed(path: Paths) -> list[str]:
    paths = [path] if isinstance(path, str | os.PathLike) else path
    return [os.fspath(one) for one in paths]
