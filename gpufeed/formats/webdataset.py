"""WebDataset: samples in tar archives, whose files belong together by their names.

The key of a file is its path up to the first dot of the last part, what follows is the field:
``train/0001.seg.png`` is the field ``seg.png`` of sample ``train/0001``. The files of a sample
stand next to each other. Files whose names begin with a dot or have none are left out.

Source: the WebDataset format at webdataset.github.io.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from gpufeed.errors import FormatError
from gpufeed.formats.damage import OnDamage, refuse
from gpufeed.formats.npy import parse_npy
from gpufeed.formats.source import Source
from gpufeed.formats.tar import Member, TarReader

__all__ = ["WebDatasetFile", "check_webdataset"]

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)

_File = tuple[str, str, Member]  # key, field, and where its data is


class WebDatasetFile:
    """The samples of one archive: dicts of ``"__key__"`` and a field for each file.

    Args:
        source: The archive.
        decode: Whether fields are decoded whose last suffix is ``json``, ``txt``, ``cls`` (a whole
            number) or ``npy`` (an array; no pickle is opened). The others are bytes always.
        skipped: Told of samples that cannot be decoded.
    """

    def __init__(self, source: Source, *, decode: bool = False, skipped: OnDamage = refuse) -> None:
        self._source = source
        self._decode = decode
        self._skipped = skipped

    def count(self) -> int:
        """Return the number of samples; only headers are read for it where the file can seek."""
        with self._source.open() as stream:
            return sum(1 for _ in _samples(TarReader(self._source, stream)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.tail(0)

    def tail(self, skip: int) -> Generator[dict[str, Any], None, None]:
        """Yield the samples after the first ``skip``, of which only headers are read.

        Raises:
            FormatError: The archive is damaged, holds links or devices, a field twice in a sample,
                or one that cannot be decoded; names file and byte.
        """
        with self._source.open() as stream:
            tar = TarReader(self._source, stream)
            for key, files in islice(_samples(tar), skip, None):
                sample, places = self._read(tar, key, files)
                try:
                    if self._decode:
                        self._decode_fields(tar, sample, places)
                except FormatError as error:
                    self._skipped(error)
                else:
                    yield sample

    def _read(
        self, tar: TarReader, key: str, files: Iterator[_File]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Return a sample, and where in the archive its fields are."""
        sample: dict[str, Any] = {"__key__": key}
        places: dict[str, int] = {}
        for _, field, member in files:
            if field in sample:
                raise tar.error(member.at, f"each field of {key!r:.80} once", f"a second {field!r}")
            sample[field] = tar.read(member)
            places[field] = member.at
        return sample, places

    def _decode_fields(
        self, tar: TarReader, sample: dict[str, Any], places: dict[str, int]
    ) -> None:
        for field, at in places.items():
            suffix = field.rpartition(".")[2]
            if suffix not in _DECODERS:
                continue
            try:
                sample[field] = _DECODERS[suffix](sample[field])
            except (ValueError, RecursionError) as error:
                got = f"{sample[field][:40]!r} ({error})"
                raise tar.error(at, f"{suffix} in {sample['__key__']}.{field}", got) from error


def check_webdataset(*, decode: bool = False) -> None:
    """Refuse options of other names than `WebDatasetFile` has; of those, any value will do."""


def _samples(tar: TarReader) -> Iterator[tuple[str, Iterator[_File]]]:
    """Yield key and files of every sample."""
    return groupby(_files(tar), itemgetter(0))


def _files(tar: TarReader) -> Iterator[_File]:
    for member in tar:
        named = _NAME.fullmatch(member.name)
        if named:
            yield named[1], named[2].lower(), member


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "txt": bytes.decode,
    "cls": int,
    "npy": parse_npy,
}
