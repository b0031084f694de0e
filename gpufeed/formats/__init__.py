"""File formats: one module each, behind a registry that users can add to.

A format is a tag (``"csv"``) and an opener: a function of a `Source` and the format's own options
that returns an iterable of samples. An iterable that also has ``count()`` and ``tail(skip)`` (see
`Seekable`) is resumed without reading what was skipped. Formats know files; readers and passes
are built on them in `gpufeed.creator`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gpufeed.errors import FieldError, FormatError
from gpufeed.formats.arrow_ipc import check_arrow, read_arrow
from gpufeed.formats.csv import check_csv, read_csv
from gpufeed.formats.idx import IdxFile
from gpufeed.formats.jsonl import check_jsonl, read_jsonl
from gpufeed.formats.npy import check_npy, read_npy
from gpufeed.formats.parquet import check_parquet, read_parquet
from gpufeed.formats.recordio import RecordIOFile, check_recordio
from gpufeed.formats.source import PathLike, Source, locate
from gpufeed.formats.svmlight import check_svmlight, read_svmlight
from gpufeed.formats.text import read_text
from gpufeed.formats.webdataset import WebDatasetFile, check_webdataset

__all__ = [
    "Format",
    "Opener",
    "PathLike",
    "Seekable",
    "SeekableRows",
    "Source",
    "locate",
    "register",
    "resolve",
]

Opener = Callable[..., Iterable[Any]]


@runtime_checkable
class Seekable(Protocol):
    """Samples that know their number and can start at any of them."""

    def count(self) -> int:
        """Return the number of samples.

        Not ``__len__``: ``list`` would allocate for it before a damaged file is found out.
        """

    def tail(self, skip: int) -> Iterator[Any]:
        """Yield the samples after the first ``skip``."""


@runtime_checkable
class SeekableRows(Protocol):
    """Record batches that know their number of rows and can start at any row."""

    def num_rows(self) -> int:
        """Return the number of rows."""

    def record_batches(self, skip_rows: int) -> Iterator[Any]:
        """Yield all rows after the first ``skip_rows``, as record batches."""


@dataclass(frozen=True)
class Format:
    """A registered format.

    Attributes:
        tag: Its name, as in ``creator.open("tag:path")``.
        opener: ``opener(source, **options)`` returns an iterable of samples.
        endings: Of file names that are of this format, compression suffixes aside.
        check: ``check(**options)`` refuses options before there is a file; None leaves that to the
            opener.
    """

    tag: str
    opener: Opener
    endings: tuple[str, ...] = ()
    check: Callable[..., None] | None = None


_formats: dict[str, Format] = {}


def register(
    tag: str,
    opener: Opener,
    *,
    endings: Iterable[str] = (),
    check: Callable[..., None] | None = None,
) -> None:
    """Add a format, or replace the one of the same tag.

    >>> def read_words(source):
    ...     with source.open() as stream:
    ...         for line in stream:
    ...             yield from line.split()
    >>> register("words", read_words, endings=[".words"])
    >>> resolve("words:corpus/*")[0].tag, resolve("corpus.words.gz")[0].tag
    ('words', 'words')

    Args:
        tag: Two or more of ``a-z 0-9 _``, a letter first.
        opener: ``opener(source, **options)`` returns an iterable of samples; source is a `Source`.
        endings: Of file names that `creator.open` gives to this format.
        check: ``check(**options)`` raises what is wrong with options, when a reader is made; None
            leaves that to the opener, when a file is read.

    Raises:
        FieldError: ``tag`` is spelled otherwise, or ``endings`` is no list of texts.
        TypeError: ``opener`` or ``check`` is not callable.
    """
    if not isinstance(tag, str) or not re.fullmatch(_TAG, tag):
        raise FieldError(f"register.tag must be two or more of a-z, 0-9 and _, got {tag!r}")
    if not callable(opener):
        raise TypeError(f"register.opener must be callable, got {opener!r}")
    if check is not None and not callable(check):
        raise TypeError(f"register.check must be callable or None, got {check!r}")
    _formats[tag] = Format(tag, opener, _in_lower_case(endings), check)


def _in_lower_case(endings: Iterable[str]) -> tuple[str, ...]:
    """Return endings as the names that they are compared with are spelled."""
    found = tuple(endings) if isinstance(endings, Iterable) else ("",)
    if isinstance(endings, str) or not all(isinstance(each, str) and each for each in found):
        raise FieldError(f"register.endings must be a list of texts, got {endings!r}")
    return tuple(ending.lower() for ending in found)


def resolve(spec: str) -> tuple[Format, str]:
    """Return the format that ``"tag:path"`` names, or that the path's ending implies, and the path.

    >>> resolve("csv:table.dat")[1], resolve("table.csv.gz")[0].tag
    ('table.dat', 'csv')

    Raises:
        FormatError: No such format.
    """
    # A colon before "//" ends a URL's scheme, one before another colon a link of a chained URL.
    tagged = re.match(f"({_TAG}):(?!//|:)", spec)
    if tagged:
        path = spec[tagged.end() :]
        if tagged[1] in _formats:
            return _formats[tagged[1]], path
    else:
        path = spec
        name = Source(path).stem.lower()
        for form in _formats.values():
            if name.endswith(form.endings):
                return form, path
    known = ", ".join(_formats)
    raise FormatError(f"{spec}: unknown format; write 'tag:path' with one of the tags {known}")


# One letter before a colon is a drive, not a tag.
_TAG = "[a-z][a-z0-9_]+"

register("text", read_text, endings=[".txt"])
register("csv", read_csv, endings=[".csv"], check=check_csv)
# MNIST's files have no suffix: train-images-idx3-ubyte.
register("idx", IdxFile, endings=[".idx", "idx1-ubyte", "idx2-ubyte", "idx3-ubyte", "idx4-ubyte"])
register("svmlight", read_svmlight, endings=[".svm", ".svmlight", ".libsvm"], check=check_svmlight)
register("jsonl", read_jsonl, endings=[".jsonl", ".ndjson"], check=check_jsonl)
register("npy", read_npy, endings=[".npy", ".npz"], check=check_npy)
register("parquet", read_parquet, endings=[".parquet", ".pq"], check=check_parquet)
register("arrow", read_arrow, endings=[".arrow", ".feather", ".ipc"], check=check_arrow)
register("webdataset", WebDatasetFile, endings=[".tar"], check=check_webdataset)
register("recordio", RecordIOFile, endings=[".recordio", ".rec"], check=check_recordio)
