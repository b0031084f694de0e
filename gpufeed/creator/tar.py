"""Creators over tar archives."""

from __future__ import annotations

from typing import Any

from gpufeed.creator.files import FilesReader, Paths, each_file
from gpufeed.formats.webdataset import WebDatasetFile
from gpufeed.reader.base import Reader
from gpufeed.reader.sharding import ShardLike
from gpufeed.reader.skipping import OnError

__all__ = ["webdataset"]


def webdataset(
    path: Paths,
    *,
    decode: bool = False,
    shard: ShardLike | None = None,
    on_error: OnError = "raise",
) -> Reader[Any]:
    """Read WebDataset shards: tar archives whose files are grouped to samples by their names.

    A sample is a dict with ``"__key__"`` and a field for each file: ``0001.jpg`` and
    ``0001.seg.png`` make ``{"__key__": "0001", "jpg": ..., "seg.png": ...}``.

    >>> import io, tarfile
    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile(suffix=".tar") as file:
    ...     with tarfile.open(file.name, "w") as archive:
    ...         for name, data in [("0001.txt", b"hello"), ("0001.cls", b"3")]:
    ...             member = tarfile.TarInfo(name)
    ...             member.size = len(data)
    ...             archive.addfile(member, io.BytesIO(data))
    ...     list(webdataset(file.name))
    ...     list(webdataset(file.name, decode=True))
    [{'__key__': '0001', 'txt': b'hello', 'cls': b'3'}]
    [{'__key__': '0001', 'txt': 'hello', 'cls': 3}]

    Args:
        path: An archive, a pattern, or a list of both; ``.gz .bz2 .xz .zst`` are decompressed.
        decode: Whether fields are decoded whose last suffix is ``json``, ``txt``, ``cls`` (a whole
            number) or ``npy`` (an array; pickles are never opened). The others are bytes always:
            decode images in parallel, with ``xmap_readers``.
        shard: The part to read, as for `open`.
        on_error: Whether to ``"skip"`` samples that cannot be decoded, as for `open`.

    Raises:
        FieldError: ``shard`` or ``on_error`` is something else.
        FormatError: When iterated: an archive is missing, empty or damaged, holds links or
            devices (nothing is extracted or followed), or a field cannot be decoded.
    """
    files = each_file("webdataset.path", path, WebDatasetFile)
    options = {"decode": bool(decode)}
    return FilesReader("webdataset", files, options, shard=shard, on_error=on_error)
