"""Text: one sample a line, UTF-8, any of the three line endings."""

from __future__ import annotations

import io
from collections.abc import Iterator

from gpufeed.errors import FormatError
from gpufeed.formats.damage import OnDamage, refuse
from gpufeed.formats.source import Source

__all__ = ["numbered_lines", "read_text"]


def read_text(source: Source, *, skipped: OnDamage = refuse) -> Iterator[str]:
    """Yield the lines of a text file without their line endings; other white space is kept.

    Args:
        source: The file.
        skipped: Told of lines that are not UTF-8.

    Raises:
        FormatError: A line is not UTF-8; the lines before it have been yielded.
    """
    with source.open() as stream:
        for _, line in numbered_lines(stream, source.path, skipped=skipped):
            yield line.removesuffix("\n")


def numbered_lines(
    stream: io.BufferedReader,
    path: str,
    *,
    newline: str | None = None,
    skipped: OnDamage = refuse,
) -> Iterator[tuple[int, str]]:
    """Yield the lines of ``stream`` with their endings, each with its number in the file, from 1.

    A byte order mark in front is dropped.

    Args:
        stream: Of bytes; closed at the end.
        path: For errors.
        newline: As in `open`: None makes every ending a line feed, ``""`` keeps them.
        skipped: Told of lines that are not UTF-8.
    """
    # Whole blocks are decoded at once, so a strict decoder would lose the good lines in front of
    # the bad one. Escapes mark the bad bytes instead, and are looked for line by line.
    with io.TextIOWrapper(
        stream, encoding="utf-8", errors="surrogateescape", newline=newline
    ) as text:
        for number, line in enumerate(text, 1):
            error = None if line.isascii() else _bad_byte(line, path, number)
            if error is not None:
                skipped(error)
                continue
            yield number, line.removeprefix("\ufeff") if number == 1 else line


def _bad_byte(line: str, path: str, number: int) -> FormatError | None:
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(line[error.start]) - 0xDC00
        return FormatError(
            f"{path}, line {number}, character {error.start + 1}: "
            f"expected UTF-8, got byte 0x{byte:02x}"
        )
    return None
