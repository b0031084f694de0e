"""Readers that yield some of another's samples, in its order: firstn, skip, filter, take_while.

`firstn` and `skip` pass skipping on to their source; `filter` and `take_while` must run to decide.
"""

from __future__ import annotations

# `filter` and `skip` are public names here, so tools of such names go by module.
import itertools
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from gpufeed.checks import require_callable, whole_number
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import count_of, drain, open_every, open_reader, pass_by, reading
from gpufeed.reader.skipping import OnError, Skip, SkipLog, skip_policy
from gpufeed.reader.stage import AnyReader

__all__ = ["filter", "firstn", "skip", "take_while"]

T = TypeVar("T")


def firstn(reader: AnyReader[T], n: int | None) -> Reader[T]:
    """Yield the first ``n`` samples, and read no more than these.

    >>> list(firstn(lambda: "abc", 2))
    ['a', 'b']

    Args:
        reader: Of samples.
        n: None or a negative number is all of them.

    Raises:
        FieldError: ``n`` is not a whole number.
    """
    return _FirstN(reader, n)


class _FirstN(Reader[T]):
    def __init__(self, reader: AnyReader[T], n: int | None) -> None:
        number = -1 if n is None else whole_number("firstn.n", n)
        self._n = None if number < 0 else number
        super().__init__("firstn", reader, n=self._n)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        num_left = None if self._n is None else min(self._n - skip, sys.maxsize)
        if num_left is not None and num_left <= 0:
            pass_by(self._reader, epoch, skip + num_left)
            return
        with reading(self._reader, epoch, skip) as source:
            yield from itertools.islice(source, num_left)

    def count(self) -> int | None:
        count = count_of(self._reader)
        return count if count is None or self._n is None else min(count, self._n)


def skip(reader: AnyReader[T], n: int) -> Reader[T]:
    """Yield all samples but the first ``n``.

    >>> list(skip(lambda: "abc", 2))
    ['c']

    Raises:
        FieldError: ``n`` is not a whole number >= 0.
    """
    return _Skip(reader, n)


class _Skip(Reader[T]):
    def __init__(self, reader: AnyReader[T], n: int) -> None:
        self._n = whole_number("skip.n", n, minimum=0)
        super().__init__("skip", reader, n=self._n)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        return open_reader(self._reader, epoch, self._n + skip)

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        return open_every(self._reader, epoch, self._n + skip, step)

    def count(self) -> int | None:
        count = count_of(self._reader)
        return count if count is None else max(0, count - self._n)


def filter(  # noqa: A001
    predicate: Callable[[T], object], reader: AnyReader[T], *, on_error: OnError = "raise"
) -> Reader[T]:
    """Yield the samples for which ``predicate`` holds.

    >>> list(filter(str.isupper, lambda: "aBcD"))
    ['B', 'D']

    Args:
        predicate: Takes a sample.
        reader: Of samples.
        on_error: What to do when ``predicate`` raises: ``"raise"``, ``"skip"`` the sample, or
            `Skip` with limits.

    Raises:
        TypeError: ``predicate`` or ``reader`` is not callable.
        FieldError: ``on_error`` is something else.
    """
    require_callable("filter.predicate", predicate)
    return _Filter(predicate, reader, skip_policy("filter.on_error", on_error))


class _Filter(Reader[T]):
    def __init__(
        self, predicate: Callable[[T], object], reader: AnyReader[T], policy: Skip | None
    ) -> None:
        options = {} if policy is None else {"on_error": policy}
        super().__init__("filter", reader, functions=(predicate,), **options)
        self._predicate, self._reader, self._policy = predicate, reader, policy

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        with reading(self._reader, epoch, 0) as source:
            if self._policy is None:
                kept = (sample for sample in source if self._predicate(sample))
            else:
                kept = _keep_or_skip(self._predicate, source, self.start_skipping(self._policy))
            drain(kept, skip, self)
            yield from kept


def _keep_or_skip(
    predicate: Callable[[T], object], source: Iterator[T], log: SkipLog
) -> Generator[T, None, None]:
    for ordinal, sample in enumerate(source):
        try:
            is_kept = predicate(sample)
        except Exception as error:  # noqa: BLE001 - recorded, or raised again
            log.skip(ordinal, error)
        else:
            if is_kept:
                yield sample
        del sample


def take_while(predicate: Callable[[T], object], reader: AnyReader[T]) -> Reader[T]:
    """Yield samples until ``predicate`` first fails.

    >>> list(take_while(str.islower, lambda: "abCd"))
    ['a', 'b']
    """
    require_callable("take_while.predicate", predicate)
    return _TakeWhile("take_while", reader, functions=(predicate,))


class _TakeWhile(Reader[T]):
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        (reader,), (predicate,) = self.sources, self.functions
        with reading(reader, epoch, 0) as source:
            taken = _while(predicate, source)
            drain(taken, skip, self)
            yield from taken


def _while(predicate: Callable[[T], object], source: Iterator[T]) -> Iterator[T]:
    # Not `itertools.takewhile`: a StopIteration would end it as if the data had ended.
    for sample in source:
        if not predicate(sample):
            return
        yield sample
