"""Files in which one can go back and forth, whatever they are read from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

from gpufeed.formats.source import Source

__all__ = ["seekable"]


@contextmanager
def seekable(source: Source) -> Iterator[IO[bytes]]:
    """Open a source whose format is read from its end, or in any order.

    What is not compressed and can seek is given as it is. Anything else is copied to a temporary
    file first, on disk, so that memory stays as it was.

    Raises:
        FormatError: As `Source.open`.
    """
    with source.open() as stream:
        if not source.compression and stream.seekable():
            yield stream
        else:
            with TemporaryFile() as copy:
                shutil.copyfileobj(stream, copy)
                copy.seek(0)
                yield copy
