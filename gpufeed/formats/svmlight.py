"""svmlight (libsvm): sparse rows as text, ``label [qid:q] index:value ... # comment`` a line.

Indices count from 1 unless ``zero_based``, and rise within a line. Blank lines and comments are
skipped.

Source: svmlight.joachims.org; unsorted and repeated indices are errors, as in scikit-learn's
``load_svmlight_file``.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufeed.checks import whole_number
from gpufeed.errors import FormatError
from gpufeed.formats.damage import OnDamage, refuse
from gpufeed.formats.source import Source

__all__ = ["Features", "check_svmlight", "read_svmlight"]

_INTEGER = re.compile(rb"[+-]?\d{1,18}")

_Values = npt.NDArray[np.float32]
_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Features:
    """How the features of a line are read.

    Attributes:
        dim: Indices must end up in ``[0, dim)``; None allows any.
        binary: Whether rows are indices alone; every value must then be 1.
        zero_based: Whether the file counts from 0.

    Raises:
        FieldError: ``dim`` is not a whole number >= 1.
    """

    dim: int | None = None
    binary: bool = False
    zero_based: bool = False

    def __post_init__(self) -> None:
        if self.dim is not None:
            object.__setattr__(self, "dim", whole_number("svmlight.dim", self.dim, minimum=1))

    def parse(self, features: Sequence[bytes]) -> _Indices | tuple[_Indices, _Values]:
        """Return the row of a line's ``index:value`` words.

        Raises:
            ValueError: A word breaks a rule; `rule` spells them.
            ArithmeticError: A number does not fit int64 or float32.
        """
        pairs = [feature.partition(b":") for feature in features]
        indices = self._indices([key for key, _, _ in pairs])
        values = [value for _, _, value in pairs]
        if not self.binary:
            return indices, _floats(values)
        if values.count(b"1") < len(values) and (_floats(values) != 1).any():
            raise ValueError
        return indices

    def _indices(self, words: list[bytes]) -> _Indices:
        # int and float read more than the format allows: signs, underscores between digits.
        if words and not b"".join(words).isdigit():
            raise ValueError
        indices = np.array(list(map(int, words)), np.int64)
        if not self.zero_based:
            indices -= 1
        if len(indices) and (
            indices[0] < 0
            or (self.dim is not None and indices[-1] >= self.dim)
            or not (indices[1:] > indices[:-1]).all()
        ):
            raise ValueError
        return indices

    @property
    def rule(self) -> str:
        """What a feature must look like, for errors."""
        first = 0 if self.zero_based else 1
        last = "" if self.dim is None else f" and <= {self.dim - 1 + first}"
        value = "1" if self.binary else "a float32"
        return f"index:value with index >= {first}{last}, above the one before, and value {value}"


def check_svmlight(
    dim: int | None = None,
    *,
    binary: bool = False,
    zero_based: bool = False,
    query_id: bool = False,
) -> None:
    """Refuse options of `read_svmlight` that no file could be read with.

    Raises:
        FieldError: ``dim`` is not a whole number >= 1.
    """
    Features(dim, binary, zero_based)


def read_svmlight(
    source: Source,
    dim: int | None = None,
    *,
    binary: bool = False,
    zero_based: bool = False,
    query_id: bool = False,
    skipped: OnDamage = refuse,
) -> Iterator[tuple[Any, ...]]:
    """Yield ``(row, label)`` a line, or ``(row, label, query id)``.

    Args:
        source: The file.
        dim: Number of features; None leaves indices unbounded.
        binary: Whether all values are 1 and left out.
        zero_based: Whether the file counts features from 0, not 1.
        query_id: Whether samples end in the number after ``qid:``.
        skipped: Told of lines that break the format.

    Raises:
        FieldError: As `check_svmlight`.
        FormatError: A line breaks the format; names file, line, expected and got. The samples
            before it have been yielded.
    """
    layout = Features(dim, binary, zero_based)
    with source.open() as stream:
        for number, line in enumerate(stream, 1):
            words = line.partition(b"#")[0].split()
            if words:
                where = f"{source.path}, line {number}"
                try:
                    sample = _parse_line(words, layout, where)
                except FormatError as error:
                    skipped(error)
                else:
                    yield sample if query_id else sample[:2]


def _parse_line(
    words: list[bytes], layout: Features, where: str
) -> tuple[Any, int | float, int | None]:
    label, *features = words
    query: int | None = None
    if features and features[0].startswith(b"qid:"):
        word = features.pop(0)
        query = _as_integer(word[4:])
        if query is None:
            raise _error(where, "qid:(whole number)", word)
    try:
        target = _label(label)
    except (ValueError, OverflowError):
        raise _error(where, "a number as label", label) from None
    try:
        return layout.parse(features), target, query
    except (ValueError, ArithmeticError):
        raise _error(where, layout.rule, _first_bad(features, layout)) from None


def _first_bad(features: list[bytes], layout: Features) -> bytes:
    """Return the feature at fault: the last one of the shortest prefix that does not parse."""

    def fails(count: int) -> bool:
        try:
            layout.parse(features[:count])
        except (ValueError, ArithmeticError):
            return True
        return False

    return features[bisect_left(range(len(features)), True, key=lambda last: fails(last + 1))]


def _floats(words: list[bytes]) -> _Values:
    if b"_" in b"".join(words):
        raise ValueError
    with np.errstate(over="raise"):
        numbers = np.array(list(map(float, words)), np.float32)
    if np.isinf(numbers).any():
        for word in words:
            _float(word)
    return numbers


def _float(word: bytes) -> float:
    number = float(word)
    if math.isinf(number) and b"inf" not in word.lower():
        raise OverflowError  # which `float` does not do: beyond its range it gives infinity
    return number


def _as_integer(word: bytes) -> int | None:
    return int(word) if _INTEGER.fullmatch(word) else None


def _label(word: bytes) -> int | float:
    # A label written as an integer stays one: a feeder refuses floats for an integer field.
    integer = _as_integer(word)
    if integer is not None:
        return integer
    if b"_" in word:
        raise ValueError
    return _float(word)


def _error(where: str, expected: str, word: bytes) -> FormatError:
    shown = word[:60].decode("ascii", "backslashreplace")
    return FormatError(f"{where}: expected {expected}, got '{shown}'")
