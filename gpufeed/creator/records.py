"""The creator over files of records: RecordIO."""

from __future__ import annotations

import os
from typing import Any

from gpufeed.creator.files import FilesReader, Paths, each_file
from gpufeed.formats.recordio import RecordIOFile, check_recordio
from gpufeed.formats.remote import is_url
from gpufeed.reader.base import Reader
from gpufeed.reader.sharding import ShardLike
from gpufeed.reader.skipping import OnError

__all__ = ["recordio"]


def recordio(
    paths: Paths,
    *,
    allow_pickle: bool = False,
    tensors: bool = False,
    encoding: str = "ASCII",
    shard: ShardLike | None = None,
    on_error: OnError = "raise",
) -> Reader[Any]:
    """Read the records of RecordIO files, of PaddlePaddle's fluid dialect, of Go's, or of both.

    A record is bytes. What Python programs put into records is mostly a pickle, and what
    PaddlePaddle does a tuple of tensors:

    >>> from tempfile import TemporaryDirectory
    >>> from gpufeed import RecordIOWriter
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/words.recordio"
    ...     with RecordIOWriter(path, compressor="none") as writer:
    ...         writer.write(b"one")
    ...     list(recordio(path))
    [b'one']

    Args:
        paths: A file, a glob pattern, or a list of both; in one text also with commas between.
        allow_pickle: Unpickle each record. A pickle runs whatever code it names: only for files
            from a source that you would also take programs from.
        tensors: Decode each record into a tuple of LoDTensors.
        encoding: Of what Python 2 pickled as ``str``, as for `pickle.loads`: ``"latin1"`` where
            that is the values of arrays, ``"bytes"`` where it is no text.
        shard: As for `creator.open`.
        on_error: ``"skip"`` or a `Skip` goes on behind what is damaged: a chunk, counted with all
            its records (or as one, where its header is damaged), or a record that does not decode.

    Raises:
        FieldError: Both ``allow_pickle`` and ``tensors``, or another option breaks its rule.
        FormatError: When iterated: a file is missing, empty, damaged or cut.
        MissingExtra: When iterated: a chunk needs Snappy, and its package is not installed.

    Source: ``paddle.reader.creator.recordio``; here a damaged file is an error, not its end.
    """
    check_recordio(allow_pickle=allow_pickle, tensors=tensors, encoding=encoding)
    options = {"allow_pickle": allow_pickle, "tensors": tensors, "encoding": encoding}
    files = each_file("recordio.paths", _without_commas(paths), RecordIOFile)
    return FilesReader("recordio", files, options, shard=shard, on_error=on_error)


def _without_commas(paths: Paths) -> Paths:
    if isinstance(paths, str) and not is_url(paths) and not os.path.exists(paths):
        return paths.split(",")
    return paths
