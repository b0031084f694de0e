"""Text: one sample a line, UTF-8, any of the three line endings."""

from __future__ import annotations

import io
from collections.abc import Iterator

from gpufeed.errors import FormatError
from gpufeed.formats.source import Source

__all__ = ["decode_lines", "read_text"]


def read_text(source: Source) -> Iterator[str]:
    """Yield the lines of a text file without their line endings; other white space is kept.

    Raises:
        FormatError: A line is not UTF-8; the lines before it have been yielded.
    """
    with source.open() as stream:
        for line in decode_lines(stream, source.path):
            yield line.removesuffix("\n")


def decode_lines(
    stream: io.BufferedReader, path: str, *, newline: str | None = None
) -> Iterator[str]:
    """Yield the lines of ``stream`` with their endings; a byte order mark in front is dropped.

    Args:
        stream: Of bytes; closed at the end.
        path: For errors.
        newline: As in `open`: None makes every ending a line feed, ``""`` keeps them.
    """
    # Whole blocks are decoded at once, so a strict decoder would lose the good lines in front of
    # the bad one. Escapes mark the bad bytes instead, and are looked for line by line.
    with io.TextIOWrapper(
        stream, encoding="utf-8", errors="surrogateescape", newline=newline
    ) as text:
        for number, line in enumerate(text, 1):
            if not line.isascii():
                _refuse_escapes(line, path, number)
            yield line.removeprefix("\ufeff") if number == 1 else line


def _refuse_escapes(line: str, path: str, number: int) -> None:
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(line[error.start]) - 0xDC00
        raise FormatError(
            f"{path}, line {number}, character {error.start + 1}: "
            f"expected UTF-8, got byte 0x{byte:02x}"
        ) from None
