"""Files in which one can go back and forth, whatever they are read from."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import cast

from gpufeed.formats.source import Source

__all__ = ["seekable"]


@contextmanager
def seekable(source: Source, stream: io.BufferedReader) -> Iterator[io.BufferedReader]:
    """Give the bytes of a source for a format that is read from its end, or in any order.

    What is not compressed and can seek is given as it is. Anything else is copied to a temporary
    file first, on disk, so that memory stays as it was.

    Args:
        source: The file.
        stream: What `Source.open` gave, at its beginning.
    """
    if source.measure(stream) is not None:
        yield stream
    else:
        with TemporaryFile() as copy:
            shutil.copyfileobj(stream, copy)
            copy.seek(0)
            yield cast(io.BufferedReader, copy)
