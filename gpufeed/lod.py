"""Offset arithmetic: the LoD of a batch, apart from any values.

A LoD is a tuple of int64 arrays, one a level, the top level first. Each starts at 0 and never
falls. Level ``k`` cuts the entries of level ``k + 1``; the lowest level cuts rows:

    offsets [[0, 2, 3], [0, 3, 5, 9]]     two samples, of 2 and 1 sentences,
    lengths [[2, 1],    [3, 2, 4]]        which have 3 and 2, and 4 words

No level at all means plain rows; no entry in a level (``[0]``) is an empty batch. Nothing here
touches a device, a tensor, or the values themselves.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpufeed.errors import LoDError

__all__ = [
    "LoD",
    "Offsets",
    "absolute",
    "check",
    "check_offsets",
    "concatenate",
    "from_lengths",
    "from_offsets",
    "index_dtype",
    "num_entries",
    "offsets_of",
    "segment_ids",
    "slice_level",
    "take",
    "to_lengths",
]

Offsets: TypeAlias = npt.NDArray[np.int64]
LoD: TypeAlias = tuple[Offsets, ...]


def from_offsets(levels: object, rows: int | None = None, owner: str = "lod") -> LoD:
    """Return offset lists as a checked LoD that shares no memory with them.

    >>> from_offsets([[0, 2, 3]], rows=4)
    Traceback (most recent call last):
        ...
    gpufeed.errors.LoDError: lod level 0 must cover 4 rows, got 3

    Args:
        levels: One list or array of whole numbers a level, the top level first.
        rows: How many rows the lowest level has to cover; None leaves that open.
        owner: How error messages call the argument.

    Raises:
        LoDError: The levels break a rule of this module's head.
    """
    lod = _as_arrays(levels, owner)
    check(lod, rows, owner)
    return lod


def from_lengths(levels: object, rows: int | None = None, owner: str = "lengths") -> LoD:
    """Return sequence lengths, one list a level, as a LoD.

    >>> [level.tolist() for level in from_lengths([[2, 1], [3, 2, 4]])]
    [[0, 2, 3], [0, 3, 5, 9]]

    Args:
        levels: One list or array of whole numbers >= 0 a level, the top level first.
        rows: How many rows the lowest level has to cover; None leaves that open.
        owner: How error messages call the argument.

    Raises:
        LoDError: A length is negative, or the levels do not fit each other or ``rows``.
    """
    lengths = _as_arrays(levels, owner)
    for number, level in enumerate(lengths):
        if level.size and level.min() < 0:
            at = int(level.argmin())
            raise LoDError(
                f"{owner} level {number} must hold lengths >= 0, got {level[at]} at entry {at}"
            )
    lod = tuple(map(offsets_of, lengths))
    check(lod, rows, owner)
    return lod


def offsets_of(lengths: Sequence[int] | Offsets) -> Offsets:
    """Return the offsets of one level's lengths, which are trusted.

    >>> offsets_of([3, 2, 4]).tolist()
    [0, 3, 5, 9]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets


def index_dtype(largest: int) -> np.dtype[Any]:
    """Return the dtype of offsets and indices up to ``largest`` where kernels read them."""
    return np.dtype(np.int32 if largest < 2**31 else np.int64)


def to_lengths(lod: LoD) -> LoD:
    """Return the lengths of every level's entries: the inverse of `from_lengths`."""
    return tuple(np.diff(level) for level in lod)


def check(lod: LoD, rows: int | None = None, owner: str = "lod") -> None:
    """Refuse a LoD that does not describe ``rows`` rows; None leaves their number open.

    Raises:
        LoDError: Names the level, the rule and what broke it.
    """
    for number, level in enumerate(lod):
        lowest = number + 1 == len(lod)
        below = rows if lowest else len(lod[number + 1]) - 1
        things = "rows" if lowest else f"entries of level {number + 1}"
        check_offsets(level, below, things, f"{owner} level {number}")


def check_offsets(offsets: Offsets, covered: int | None, things: str, owner: str) -> None:
    """Refuse offsets that do not start at 0, fall, or do not end at ``covered``.

    Args:
        offsets: ``(entries + 1,)``.
        covered: How many things they have to cover; None leaves that open.
        things: How the error message calls those.
        owner: How it calls the offsets.

    Raises:
        LoDError: Names the rule and what broke it.
    """
    if not offsets.size or offsets[0] != 0:
        raise LoDError(f"{owner} must start with 0, got {reprlib.repr(offsets[:9].tolist())}")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0])
        raise LoDError(
            f"{owner} must never fall, got {offsets[at]} then {offsets[at + 1]} at entry {at}"
        )
    if covered is not None and offsets[-1] != covered:
        raise LoDError(f"{owner} must cover {covered} {things}, got {offsets[-1]}")


def num_entries(lod: LoD, rows: int) -> int:
    """Return the entries of the top level (the samples); without a LoD, the rows."""
    return len(lod[0]) - 1 if lod else rows


def absolute(lod: LoD, level: int = 0) -> Offsets:
    """Return one level's offsets counted in rows instead of entries of the level below.

    >>> absolute(from_offsets([[0, 2], [0, 1, 3], [0, 2, 4, 5]])).tolist()
    [0, 5]
    """
    offsets = lod[-1]
    for upper in reversed(lod[level % len(lod) : -1]):
        offsets = offsets[upper]
    return offsets


def slice_level(lod: LoD, begin: int, end: int, level: int = 0) -> tuple[LoD, int, int]:
    """Return the LoD of entries ``begin:end`` of a level, and the rows that they span.

    Levels above ``level`` are dropped, the others start at 0 again.

    >>> lod, first, last = slice_level(from_offsets([[0, 2, 4], [0, 1, 6, 8, 9]]), 1, 2)
    >>> [offsets.tolist() for offsets in lod], first, last
    ([[0, 2], [0, 2, 3]], 6, 9)
    """
    kept = []
    for offsets in lod[level:]:
        window = offsets[begin : end + 1]
        begin, end = int(window[0]), int(window[-1])
        kept.append(window - begin)
    return tuple(kept), begin, end


def take(lod: LoD, entries: Offsets) -> tuple[LoD, Offsets]:
    """Return the LoD of the given top-level entries, in that order, and their rows' numbers.

    >>> lod, rows = take(from_offsets([[0, 2, 2, 5]]), np.array([2, 0]))
    >>> lod[0].tolist(), rows.tolist()
    ([0, 3, 5], [2, 3, 4, 0, 1])
    """
    taken = []
    for offsets in lod:
        first = offsets[entries]
        lengths = offsets[entries + 1] - first
        new = offsets_of(lengths)
        taken.append(new)
        entries = np.repeat(first - new[:-1], lengths) + np.arange(new[-1])
    return tuple(taken), entries


def concatenate(lods: Sequence[LoD]) -> LoD:
    """Return the LoD of batches laid end to end; all have the same number of levels.

    >>> a, b = from_lengths([[2], [1, 2]]), from_lengths([[0, 1], [3]])
    >>> [level.tolist() for level in to_lengths(concatenate([a, b]))]
    [[2, 0, 1], [1, 2, 3]]
    """
    return tuple(np.concatenate([[0], *_shifted(levels)]) for levels in zip(*lods, strict=True))


def segment_ids(offsets: Offsets) -> Offsets:
    """Return, for every row, the entry that it belongs to.

    >>> segment_ids(np.array([0, 3, 3, 5])).tolist()
    [0, 0, 0, 2, 2]
    """
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _shifted(levels: Iterable[Offsets]) -> Iterable[Offsets]:
    covered = 0
    for level in levels:
        yield level[1:] + covered
        covered += int(level[-1])


def _as_arrays(levels: object, owner: str) -> LoD:
    if not isinstance(levels, Sequence) or isinstance(levels, (str, bytes)):
        raise LoDError(f"{owner} must be a list with one list a level, got {levels!r:.80}")
    return tuple(_as_array(level, number, owner) for number, level in enumerate(levels))


def _as_array(level: object, number: int, owner: str) -> Offsets:
    rule = f"{owner} level {number} must be a flat list of whole numbers"
    try:
        array = np.asarray(level)
    except ValueError as error:  # nested lists of different lengths
        raise LoDError(f"{rule}, got {level!r:.80}") from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise LoDError(f"{rule}, got {level!r:.80}")
    return array.astype(np.int64)
