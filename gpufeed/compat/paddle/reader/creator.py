"""``paddle.reader.creator``: readers over arrays and files."""

from __future__ import annotations

from typing import Any

from gpufeed.creator import np_array, text_file
from gpufeed.creator import recordio as read_records
from gpufeed.creator.files import Paths
from gpufeed.reader.base import Reader
from gpufeed.reader.parallel import buffered

__all__ = ["np_array", "recordio", "text_file"]


def recordio(paths: Paths, buf_size: int = 100) -> Reader[Any]:
    """Unpickle the records of RecordIO files, up to ``buf_size`` of them ahead on a thread.

    A pickle runs whatever code it names: read no file with this that you would not run as a
    program. `gpufeed.creator.recordio` yields bytes unless it is told otherwise.

    Args:
        paths: A file, a glob pattern, several of these with commas between, or a list.
        buf_size: Records read ahead; 0 or less is any number.
    """
    return buffered(read_records(paths, allow_pickle=True), buf_size)
