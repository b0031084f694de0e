"""Batches by length: what a sample's length is, sorting by it, and cutting where a budget ends.

    samples ──> measured ──> sorted_by_length ──> TokenCutter ──> batches
                (length, sample) pairs            or Packer

Every stage passes on what came before an error, and then the error.
"""

from __future__ import annotations

import operator
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from gpufeed.errors import FieldError
from gpufeed.reader.blocks import blocks
from gpufeed.reader.padding import Filling

__all__ = ["Length", "Measured", "TokenCutter", "cut", "measured", "sorted_by_length"]

Length = Callable[[Any], int]
Measured = tuple[int, Any]  # a sample behind its length


def measured(
    source: Iterable[Any], length: Length | None, max_tokens: int | None, first: int = 0
) -> Iterator[Measured]:
    """Yield ``(length, sample)`` of every sample.

    >>> list(measured([([7, 8], 1), ([], 0)], length=None, max_tokens=None))
    [(2, ([7, 8], 1)), (0, ([], 0))]

    Args:
        source: Samples.
        length: Called once a sample. None takes the number of entries of the sample, or of its
            first field that is a sequence; the first sample decides which field that is.
        max_tokens: Largest legal length.
        first: Number of the first sample, for messages.

    Raises:
        FieldError: A sample has no length, one that is not a whole number >= 0, or one larger than
            ``max_tokens``.
    """
    measure = length
    limit = sys.maxsize if max_tokens is None else max_tokens
    for number, sample in enumerate(source, first):
        if measure is None:
            measure = _length_like(sample, number)
        try:
            num_tokens = measure(sample)
        except (TypeError, LookupError) as error:
            if measure is length:
                raise
            raise _no_length(sample, number) from error
        if type(num_tokens) is not int or not 0 <= num_tokens <= limit:
            num_tokens = check_length(num_tokens, number, max_tokens)
        yield num_tokens, sample


def check_length(length: object, number: int, max_tokens: int | None) -> int:
    """Return the length of sample ``number`` as an int, or say what is wrong with it."""
    try:
        num_tokens = operator.index(length)  # type: ignore[arg-type]
    except TypeError:
        num_tokens = -1
    if num_tokens < 0:
        raise FieldError(
            f"sample {number}: batch.length must return a whole number >= 0, got {length!r}"
        )
    if max_tokens is not None and num_tokens > max_tokens:
        raise FieldError(
            f"sample {number}: batch.max_tokens must be at least the length of every sample, "
            f"got {max_tokens} for a length of {num_tokens}; "
            "leave longer samples out with gpufeed.reader.filter, or cut them with map_readers"
        )
    return num_tokens


def _length_like(sample: Any, number: int) -> Length:
    """Return the function that measures samples which are built like this one."""
    fields: Iterable[tuple[Any, Any]] = ()
    if isinstance(sample, (tuple, list)):
        fields = enumerate(sample)
    elif isinstance(sample, Mapping):
        fields = sample.items()
    elif _is_sequence(sample) or isinstance(sample, (str, bytes)):
        return len
    for key, field in fields:
        if _is_sequence(field):
            return lambda sample: len(sample[key])
    if isinstance(sample, list):
        return len  # of numbers: no row of fields, but a sequence itself
    raise _no_length(sample, number)


def _is_sequence(value: Any) -> bool:
    # Text is no sequence of tokens, and a 0-d array claims to have a length.
    return (
        hasattr(value, "__len__")
        and not isinstance(value, (str, bytes, Mapping))
        and getattr(value, "ndim", 1) != 0
    )


def _no_length(sample: Any, number: int) -> FieldError:
    return FieldError(
        f"sample {number}: batch.length must be given for samples that have no sequence in the "
        f"same place each, got {sample!r:.80}"
    )


def sorted_by_length(
    samples: Iterator[Measured], window: int, number: int = 0
) -> Iterator[Measured]:
    """Sort every ``window`` samples, one window shortest first and the next one longest first.

    So where two windows meet, samples of like length do, and a batch may hold some of each.

    >>> [length for length, _ in sorted_by_length(iter(zip([3, 1, 2, 1, 3, 2], "abcdef")), 3)]
    [1, 2, 3, 3, 2, 1]

    Args:
        samples: With their lengths. Equal lengths stay in order.
        window: Samples that are sorted together.
        number: Of the first window; even ones begin with their shortest sample.
    """
    for block in blocks(samples, window):
        block.sort(key=itemgetter(0), reverse=number % 2 == 1)
        yield from block
        number += 1
        del block  # while the next one is read, this one must not be in memory too


class Cutter(Protocol):
    """Makes batches of measured samples."""

    def done(self, samples: Iterator[Measured]) -> Iterator[Filling]:
        """Yield the batches to which nothing can be added any more."""

    def leftovers(self, *, drop_last: bool) -> Iterator[Filling]:
        """Yield those that were begun and not done, after the last sample."""


def cut(cutter: Cutter, samples: Iterator[Measured], *, drop_last: bool) -> Iterator[Filling]:
    """Yield all batches: of an interrupted source, those of the samples before the error too."""
    try:
        yield from cutter.done(samples)
    except Exception:
        yield from cutter.leftovers(drop_last=drop_last)
        raise
    yield from cutter.leftovers(drop_last=drop_last)


class TokenCutter:
    """Fills one batch after the other, or one a bucket side by side.

    A batch is done when it is exactly full, or when the next sample of its bucket does not fit.

    >>> from itertools import repeat
    >>> cutter = TokenCutter(repeat(9), max_tokens=4)
    >>> samples = iter([(2, "ab"), (2, "cd"), (1, "e"), (4, "fghi")])
    >>> [done.samples for done in cut(cutter, samples, drop_last=False)]
    [['ab', 'cd'], ['e'], ['fghi']]

    Args:
        sizes: Most samples of each batch, in the order in which batches are begun.
        max_tokens: Most tokens of a batch; None is any number.
        padded: Count samples x longest as the tokens of a batch, instead of the sum.
        buckets: Ascending lengths, the largest of each bucket; one more takes what is longer.
    """

    def __init__(
        self,
        sizes: Iterator[int],
        max_tokens: int | None = None,
        *,
        padded: bool = False,
        buckets: Sequence[int] = (),
    ) -> None:
        self._sizes = sizes
        self._max_tokens = sys.maxsize if max_tokens is None else max_tokens
        self._padded = padded
        self._buckets = buckets
        self._open: list[Filling | None] = [None] * (len(buckets) + 1)

    def done(self, samples: Iterator[Measured]) -> Iterator[Filling]:
        """Yield batches as they are done."""
        buckets, fillings, max_tokens = self._buckets, self._open, self._max_tokens
        for length, sample in samples:
            bucket = bisect_left(buckets, length)
            filling = fillings[bucket]
            num_tokens = length
            if filling is not None:
                num_tokens = self._num_tokens_with(filling, length)
                if num_tokens > max_tokens:
                    fillings[bucket] = None
                    yield filling
                    filling, num_tokens = None, length
            if filling is None:
                filling = fillings[bucket] = Filling(next(self._sizes))
            filling.add(length, sample)
            if num_tokens == max_tokens or filling.is_full:
                fillings[bucket] = None
                yield filling

    def _num_tokens_with(self, filling: Filling, length: int) -> int:
        """Return what a batch counts once a sample of this length is added."""
        if self._padded:
            return (len(filling.samples) + 1) * max(length, filling.longest)
        return filling.num_tokens + length

    def leftovers(self, *, drop_last: bool) -> Iterator[Filling]:
        """Yield what the buckets hold, that of the shortest samples first."""
        for filling in self._open:
            if filling is not None and not drop_last:
                yield filling
