"""Readers taken in turns: evenly, or by weight.

Both follow an endless list of choices, each naming the reader of the next sample, and pass over
those that name a reader that has ended. So nothing is lost when one ends before the others, and
what the first ``skip`` choices took of each reader is arithmetic as long as none has.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from fractions import Fraction
from itertools import chain, cycle, islice
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpufeed.checks import require_readers, whole_number
from gpufeed.errors import FieldError
from gpufeed.reader.base import Reader
from gpufeed.reader.blocks import emptied
from gpufeed.reader.opening import count_of, counted_by_now, counters_of, counts_of, drain, reading
from gpufeed.reader.stage import AnyReader

__all__ = ["interleave", "mix"]

T = TypeVar("T")

_DRAWS_A_STEP = 4  # 64-bit outputs of Philox for one step of its counter
_BLOCK = 1 << 12  # choices drawn at once; whole steps
_PURPOSE = 2  # keeps the key apart from those that shuffles and mappers make of a seed


def interleave(*readers: AnyReader[T]) -> Reader[T]:
    """Yield one sample of each reader in turn; when one ends, the others go on without it.

    >>> list(interleave(lambda: "abc", lambda: "12345"))
    ['a', '1', 'b', '2', 'c', '3', '4', '5']

    To end with the shortest instead, join samples with `compose`.

    Raises:
        TypeError: There is no reader, or one is not callable.
    """
    require_readers("interleave", readers)
    return _Interleave("interleave", *readers)


def mix(
    readers: Sequence[AnyReader[T]], weights: Sequence[float] | None = None, *, seed: int = 0
) -> Reader[T]:
    """Yield samples of readers chosen at random; when one ends, the others go on without it.

    >>> from gpufeed.reader import firstn, repeat
    >>> common, rare = repeat(lambda: "a"), repeat(lambda: "b")
    >>> samples = list(firstn(mix([common, rare], [0.9, 0.1], seed=1), 1000))
    >>> 80 < samples.count("b") < 120
    True

    Samples of one reader keep their order. For a mixture that stays what it is to the end, give
    readers without an end, as `repeat` makes them, and cut with `firstn`.

    Args:
        readers: At least one.
        weights: Of each reader, in any unit; None is equal weights.
        seed: The choices are a function of (seed, epoch).

    Raises:
        TypeError: There is no reader, or one is not callable.
        FieldError: ``weights`` is not one finite number > 0 for each reader, or ``seed`` is not a
            whole number >= 0.
    """
    if callable(readers) or not isinstance(readers, Iterable):
        raise TypeError(f"mix.readers must be a list of readers, got {readers!r:.80}")
    readers = list(readers)
    require_readers("mix", readers)
    given = [1.0] * len(readers)
    if weights is not None:
        given = list(weights) if isinstance(weights, Iterable) else []
    if len(given) != len(readers) or not all(map(_is_weight, given)):
        raise FieldError(
            f"mix.weights must be one finite number > 0 for each of {len(readers)} readers, "
            f"got {weights!r}"
        )
    return _Mix(readers, [float(weight) for weight in given], seed)


class _Merge(Reader[T]):
    """Samples of several readers, in the order of some list of choices."""

    @abstractmethod
    def _choices(self, epoch: int, skip: int) -> Iterator[int]:
        """Return the index of the reader of each sample, after the first ``skip``; without end."""

    @abstractmethod
    def _shares(self, epoch: int, num: int) -> list[int]:
        """Return how many of the first ``num`` choices name each reader."""

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Skip the share of each reader, if all readers are long enough for that."""
        forget_skipped = counted_by_now(counters_of(self))
        with ExitStack() as stack:
            sources = self._open_beyond(stack, epoch, self._shares(epoch, skip)) if skip else None
            if sources is not None:
                yield from _merge(sources, self._choices(epoch, skip))
                return
            stack.close()  # before anything is forgotten, which threads still may count
            forget_skipped()
            sources = [stack.enter_context(reading(each, epoch, 0)) for each in self.sources]
            merged = _merge(sources, self._choices(epoch, 0))
            drain(merged, skip, self)
            yield from merged

    def _open_beyond(
        self, stack: ExitStack, epoch: int, shares: list[int]
    ) -> list[Iterator[T]] | None:
        """Open each reader without its share; None if one of them may end within it."""
        sources = []
        for reader, share in zip(self.sources, shares, strict=True):
            count = count_of(reader)
            if count is not None and count < share:
                return None
            source = stack.enter_context(reading(reader, epoch, share))
            if count is None and share:
                # That there is one more sample is the only sign that there were so many.
                try:
                    first = list(islice(source, 1))
                except Exception as error:  # noqa: BLE001 - raised when it is this reader's turn
                    source = map(_raise, [error])
                else:
                    if not first:
                        return None
                    source = chain(emptied(first), source)
            sources.append(source)
        return sources

    def count(self) -> int | None:
        counts = counts_of(self.sources)
        return None if counts is None else sum(counts)


class _Interleave(_Merge[T]):
    def _choices(self, epoch: int, skip: int) -> Iterator[int]:
        num = len(self.sources)
        return islice(cycle(range(num)), skip % num, None)

    def _shares(self, epoch: int, num: int) -> list[int]:
        share, rest = divmod(num, len(self.sources))
        return [share + (index < rest) for index in range(len(self.sources))]


class _Mix(_Merge[T]):
    def __init__(self, readers: Sequence[AnyReader[T]], weights: list[float], seed: int) -> None:
        self._seed = whole_number("mix.seed", seed, minimum=0)
        super().__init__("mix", *readers, weights=weights, seed=self._seed)
        shares = [Fraction(weight) for weight in weights]
        total = sum(shares)
        # A draw of 64 bits chooses the first reader whose bound is above it. Exact, so that the
        # choices are the same on every machine.
        bounds = [sum(shares[: index + 1]) / total for index in range(len(shares) - 1)]
        self._bounds = np.array([int(bound * 2**64) for bound in bounds], np.uint64)

    def _choices(self, epoch: int, skip: int) -> Iterator[int]:
        within = skip % _DRAWS_A_STEP
        for block in self._blocks(epoch, skip - within):
            yield from block[within:].tolist()
            within = 0

    def _shares(self, epoch: int, num: int) -> list[int]:
        counts = np.zeros(len(self.sources), np.int64)
        for block in self._blocks(epoch, 0):
            counts += np.bincount(block[:num], minlength=len(counts))
            num -= len(block)
            if num <= 0:
                break
        return [int(count) for count in counts]

    def _blocks(self, epoch: int, begin: int) -> Iterator[npt.NDArray[np.intp]]:
        """Yield the choices of a pass from number ``begin`` on, which begins a step."""
        bits = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=(epoch, _PURPOSE)))
        bits.advance(begin // _DRAWS_A_STEP)
        while True:
            yield np.searchsorted(self._bounds, bits.random_raw(_BLOCK), side="right")


def _merge(sources: list[Iterator[T]], choices: Iterable[int]) -> Iterator[T]:
    live = dict(enumerate(sources))
    if len(live) > 1:
        for choice in choices:
            if choice in live:
                # No variable here may keep the sample.
                try:
                    yield next(live[choice])
                except StopIteration:
                    del live[choice]
                    if len(live) == 1:
                        break
    for source in live.values():
        yield from source


def _is_weight(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and 0 < float(value) < math.inf


def _raise(error: Exception) -> Any:
    raise error
