"""CSV: one tuple a row, of all columns or some, as text or converted.

The dialect is that of the standard library's ``csv`` module: fields with delimiters, quotes or
line breaks in them are quoted. Blank lines are skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpufeed.errors import FieldError, FormatError
from gpufeed.formats.damage import OnDamage, refuse
from gpufeed.formats.source import Source
from gpufeed.formats.text import numbered_lines

__all__ = ["Column", "Dtypes", "check_csv", "read_csv"]

Column = str | int
Dtype = str | type | np.dtype[Any]
Dtypes = Dtype | Mapping[Column, Dtype]
_Convert = Callable[[str], Any]

_BOOLS = {"0": False, "1": True, "false": False, "true": True}


def check_csv(
    columns: Sequence[Column] | None = None,
    dtypes: Dtypes | None = None,
    *,
    header: bool = True,
    delimiter: str = ",",
) -> None:
    """Refuse options of `read_csv` that no file could be read with.

    Raises:
        FieldError: ``columns`` is no list of names and positions, ``header`` no truth value,
            ``delimiter`` not one character (no quote or line break), or a dtype is none that text
            converts to.
    """
    is_list = isinstance(columns, (list, tuple)) and len(columns) > 0
    if columns is not None and not (is_list and all(map(_is_column, columns))):
        raise FieldError(
            f"csv.columns must be a list of names, or of positions from 0, got {columns!r:.80}"
        )
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise FieldError(f"csv.delimiter must be one character, got {delimiter!r}")
    if not isinstance(header, bool):  # in other libraries 0 or a list of names may stand here
        raise FieldError(f"csv.header must be True or False, got {header!r:.80}")
    for dtype in dtypes.values() if isinstance(dtypes, Mapping) else (dtypes or "str",):
        _converter(dtype)


def read_csv(
    source: Source,
    columns: Sequence[Column] | None = None,
    dtypes: Dtypes | None = None,
    *,
    header: bool = True,
    delimiter: str = ",",
    skipped: OnDamage = refuse,
) -> Iterator[tuple[Any, ...]]:
    """Yield one tuple a row.

    Args:
        source: The file.
        columns: Names (with a header) or positions from 0, in the order wanted; None takes all.
        dtypes: One for all columns, or a mapping from column to dtype; the rest stays text.
        header: Whether the first row names the columns.
        delimiter: One character.
        skipped: Told of rows that do not fit or convert.

    Raises:
        FieldError: As `check_csv`.
        FormatError: A row has another number of fields, a field does not convert, a column is not
            there; names file, line, column, expected and got. The rows before it have been yielded.
    """
    check_csv(columns, dtypes, header=header, delimiter=delimiter)
    with source.open() as stream:
        lines = (line for _, line in numbered_lines(stream, source.path, newline=""))
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        table: _Table | None = None
        try:
            for row in rows:
                if not row:
                    continue
                if table is None:
                    names = row if header else [str(k) for k in range(len(row))]
                    table = _Table(source.path, names, columns, dtypes)
                    if header:
                        continue
                try:
                    sample = table.convert(row, rows.line_num)
                except FormatError as error:
                    skipped(error)
                else:
                    yield sample
        except csv.Error as error:
            raise FormatError(f"{source.path}, line {rows.line_num}: {error}") from error


class _Table:
    """The columns wanted from a file, and how each is converted."""

    def __init__(
        self,
        path: str,
        names: list[str],
        columns: Sequence[Column] | None,
        dtypes: Dtypes | None,
    ) -> None:
        self._path = path
        self._names = names
        wanted = range(len(names)) if columns is None else [self._position(c) for c in columns]
        said: dict[int, Dtype] = {}
        if isinstance(dtypes, Mapping):
            said = {self._position(column): dtype for column, dtype in dtypes.items()}
        elif dtypes is not None:
            said = dict.fromkeys(wanted, dtypes)
        self._fields = [(k, *_converter(said.get(k, "str"))) for k in wanted]

    def _position(self, column: Column) -> int:
        """Return where a column stands."""
        if isinstance(column, int) and 0 <= column < len(self._names):
            return column
        if self._names.count(str(column)) == 1:
            return self._names.index(str(column))
        raise FormatError(
            f"{self._path}: expected one column {column!r}, got columns {', '.join(self._names)}"
        )

    def convert(self, row: list[str], line: int) -> tuple[Any, ...]:
        if len(row) != len(self._names):
            raise FormatError(
                f"{self._path}, line {line}: expected {len(self._names)} fields, got {len(row)}"
            )
        sample = []
        for position, convert, rule in self._fields:
            try:
                sample.append(convert(row[position]))
            except (ValueError, KeyError):
                raise FormatError(
                    f"{self._path}, line {line}, column {self._names[position]!r}: "
                    f"expected {rule}, got {row[position][:60]!r}"
                ) from None
        return tuple(sample)


def _is_column(column: object) -> bool:
    is_position = isinstance(column, int) and not isinstance(column, bool) and column >= 0
    return is_position or isinstance(column, str)


def _converter(dtype: Dtype) -> tuple[_Convert, str]:
    """Return the function from text to a value of ``dtype``, and the rule it enforces."""
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise FieldError(f"csv.dtypes must be NumPy dtypes, got {dtype!r}") from error
    if kind.kind == "U":
        return str, "text"
    if kind.kind == "b":
        return lambda text: _BOOLS[text.strip().lower()], "0, 1, true or false"
    if kind.kind in "iu":
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
        return lambda text: _integer(text, low, high), f"a whole number in [{low}, {high}]"
    if kind.kind == "f":
        most = float(np.finfo(kind if kind.itemsize <= 8 else np.float64).max)
        return lambda text: _float(text, kind, most), f"a number that fits {kind.name}"
    raise FieldError(f"csv.dtypes must be of text, bool, integers or floats, got {kind}")


def _integer(text: str, low: int, high: int) -> int:
    number = int(text)
    # Python's own syntax is wider: it also reads underscores between digits.
    if "_" in text or not low <= number <= high:
        raise ValueError
    return number


def _float(text: str, kind: np.dtype[Any], most: float) -> float:
    number = float(text)
    if "_" in text:
        raise ValueError
    if abs(number) > most and "inf" not in text.lower():
        # Numbers a little above the largest one are still rounded to it.
        with np.errstate(over="ignore"):
            if np.isinf(kind.type(number)):
                raise ValueError
    return number
