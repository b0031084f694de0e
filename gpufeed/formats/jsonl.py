"""JSON Lines: one JSON value a line, UTF-8.

Blank lines are skipped. ``NaN`` and ``Infinity`` are read, as Python's ``json`` writes them.

Source: jsonlines.org.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gpufeed.errors import FormatError
from gpufeed.formats.damage import OnDamage, refuse
from gpufeed.formats.names import check_columns
from gpufeed.formats.source import Source
from gpufeed.formats.text import numbered_lines

__all__ = ["check_jsonl", "read_jsonl"]


def check_jsonl(columns: Sequence[str] | None = None) -> None:
    """Refuse options of `read_jsonl` that no file could be read with.

    Raises:
        FieldError: ``columns`` is no list of names.
    """
    check_columns("jsonl.columns", columns)


def read_jsonl(
    source: Source, columns: Sequence[str] | None = None, *, skipped: OnDamage = refuse
) -> Iterator[Any]:
    """Yield the value of every line, or of every line's object the values of some keys.

    Args:
        source: The file.
        columns: Keys that every line must have, for tuples in this order; None gives the values
            as they are.
        skipped: Told of lines that are damaged.

    Raises:
        FieldError: ``columns`` is no list of names.
        FormatError: A line is not JSON, or lacks a key; names file, line and column. The samples
            before it have been yielded.
    """
    check_jsonl(columns)
    with source.open() as stream:
        for number, line in numbered_lines(stream, source.path, skipped=skipped):
            if line.isspace():
                continue
            try:
                value = _parse(line.removesuffix("\n"), source.path, number)
                sample = value if columns is None else _pick(value, columns, source.path, number)
            except FormatError as error:
                skipped(error)
            else:
                yield sample


def _parse(text: str, path: str, number: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{path}, line {number}, column {error.pos + 1}: "
            f"expected JSON ({error.msg}), got {text[error.pos : error.pos + 40]!r}"
        ) from error
    except (ValueError, RecursionError) as error:  # too many digits, or levels
        raise FormatError(f"{path}, line {number}: {error}") from error


def _pick(value: Any, columns: Sequence[str], path: str, number: int) -> tuple[Any, ...]:
    if isinstance(value, dict) and value.keys() >= set(columns):
        return tuple(value[column] for column in columns)
    got = f"keys {', '.join(value)}" if isinstance(value, dict) else type(value).__name__
    raise FormatError(
        f"{path}, line {number}: expected an object with {', '.join(columns)}, got {got}"
    )
