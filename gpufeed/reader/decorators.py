"""Readers made from readers, in the consumer's thread: map, combine, select, repeat.

Each stage skips without doing the work where one sample in is one sample out. `chain` and `repeat`
must read what they skip to learn where a source ends, `filter` and `take_while` to decide.
"""

from __future__ import annotations

# `filter`, `skip` and `repeat` are public names here, so the tools of those names go by module.
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from gpufeed.checks import whole_number
from gpufeed.errors import ComposeNotAligned
from gpufeed.reader.base import AnyReader, Reader, drain, identity_of, open_reader, reading
from gpufeed.reader.rng import pass_rng, rng_seed
from gpufeed.reader.skipping import OnError, Skip, SkipLog, skip_policy

__all__ = [
    "chain",
    "combine",
    "compose",
    "filter",
    "firstn",
    "map_identity",
    "map_readers",
    "repeat",
    "skip",
    "take_while",
]

T = TypeVar("T")
R = TypeVar("R")


def map_readers(
    func: Callable[..., R],
    *readers: AnyReader[Any],
    on_error: OnError = "raise",
    rng: bool | int = False,
) -> Reader[R]:
    """Yield ``func(a, b, ...)`` with one sample of each reader, until the shortest ends.

    >>> list(map_readers(lambda a, b: a + b, lambda: [1, 2], lambda: [10, 20]))
    [11, 22]

    Skipping does not call ``func``, unless ``on_error`` lets it leave samples out.

    Args:
        func: Takes one argument a reader; a tuple sample is one argument.
        readers: At least one.
        on_error: What to do when ``func`` raises: ``"raise"``, ``"skip"`` the sample, or `Skip`
            with limits.
        rng: Whether ``func`` takes a `numpy.random.Generator` as its last argument, True or a
            seed. What it draws depends on the seed, the epoch and the number of the sample only;
            it is reseated for each sample, so ``func`` must not keep it.

    Raises:
        TypeError: There is no reader, or something is not callable.
        FieldError: ``on_error`` or ``rng`` is something else.
    """
    if not readers:
        raise TypeError("map_readers.readers must be at least one reader, got none")
    policy = skip_policy("map_readers.on_error", on_error)
    return _Map(func, readers, policy, rng_seed("map_readers.rng", rng))


class _Map(Reader[R]):
    def __init__(
        self,
        func: Callable[..., R],
        readers: Sequence[AnyReader[Any]],
        policy: Skip | None,
        seed: int | None,
    ) -> None:
        options = {"on_error": policy, "rng": seed}
        chosen = {key: value for key, value in options.items() if value is not None}
        super().__init__("map_readers", *readers, functions=(func,), **chosen)
        self._func, self._policy, self._seed = func, policy, seed

    def open(self, epoch: int, skip: int) -> Iterator[R]:
        begin = skip if self._policy is None else 0
        with ExitStack() as stack:
            rows: Iterator[tuple[Any, ...]]
            rows = zip(*_open_all(stack, self.sources, epoch, begin), strict=False)
            if self._seed is not None:
                at = pass_rng(self, self._seed, epoch).generators()
                rows = ((*row, at(number)) for number, row in enumerate(rows, begin))
            if self._policy is None:
                yield from _map_all(self._func, rows)
            else:
                mapped = _map_or_skip(self._func, rows, self.start_skipping(self._policy))
                drain(mapped, skip)
                yield from mapped

    def identity(self) -> str:
        return map_identity(self.sources, self._policy)


def map_identity(sources: Iterable[AnyReader[Any]], policy: Skip | None) -> str:
    """Return the identity of every stage that maps, however it is done."""
    parts = [identity_of(source) for source in sources]
    # Limits decide whether a pass fails, not what it yields.
    parts += [] if policy is None else ["on_error='skip'"]
    return f"map_readers({', '.join(parts)})"


def _map_all(func: Callable[..., R], rows: Iterator[tuple[Any, ...]]) -> Iterator[R]:
    # Not `starmap`: a StopIteration out of `func` would end it as if the data had ended.
    for row in rows:
        yield func(*row)


def _map_or_skip(
    func: Callable[..., R], rows: Iterator[tuple[Any, ...]], log: SkipLog
) -> Iterator[R]:
    for ordinal, row in enumerate(rows):
        try:
            mapped = func(*row)
        except Exception as error:  # noqa: BLE001 - recorded, or raised again
            log.skip(ordinal, error)
        else:
            yield mapped
            del mapped  # while the next one is made, this one is the consumer's alone


def compose(*readers: AnyReader[Any], check_alignment: bool = True) -> Reader[tuple[Any, ...]]:
    """Join one sample of each reader into a tuple; samples that are tuples are spliced in.

    >>> list(compose(lambda: [(1, 2), (3, 4)], lambda: "ab"))
    [(1, 2, 'a'), (3, 4, 'b')]

    Args:
        readers: Read side by side.
        check_alignment: False stops at the shortest reader without complaint.

    Raises:
        ComposeNotAligned: On iteration, after all full rows: one reader has ended before another.

    Source: ``paddle.reader.compose``; here None is data and unknown keywords are errors.
    """
    return _Compose(*readers, check_alignment=check_alignment)


combine = compose  # its name in the oldest documents


class _Compose(Reader[tuple[Any, ...]]):
    def __init__(self, *readers: AnyReader[Any], check_alignment: bool) -> None:
        self._check_alignment = bool(check_alignment)
        super().__init__("compose", *readers, check_alignment=self._check_alignment)

    def open(self, epoch: int, skip: int) -> Iterator[tuple[Any, ...]]:
        with ExitStack() as stack:
            sources = _open_all(stack, self.sources, epoch, skip)
            rows = _aligned(sources, skip) if self._check_alignment else zip(*sources, strict=False)
            for row in rows:
                fields: list[Any] = []
                for part in row:
                    if isinstance(part, tuple):
                        fields.extend(part)
                    else:
                        fields.append(part)
                yield tuple(fields)


def _aligned(sources: list[Iterator[Any]], skip: int) -> Iterator[tuple[Any, ...]]:
    ended = object()
    rows = itertools.zip_longest(*sources, fillvalue=ended)
    for number, row in enumerate(rows, skip):
        # By identity: samples may be arrays, whose == is not a truth value.
        if any(map(operator.is_, row, itertools.repeat(ended))):
            over = [index for index, part in enumerate(row) if part is ended]
            raise ComposeNotAligned(
                f"compose: readers must end together, got an end of reader "
                f"{', '.join(map(str, over))} after {number} samples while others go on"
            )
        yield row


def chain(*readers: AnyReader[T]) -> Reader[T]:
    """Yield the samples of the first reader, then those of the second, and so on.

    >>> list(chain(lambda: "ab", lambda: "c"))
    ['a', 'b', 'c']

    A reader is opened when the one before it has ended.
    """
    return _Chain("chain", *readers)


class _Chain(Reader[T]):
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        for reader in self.sources:
            with reading(reader, epoch, 0) as source:
                skip -= drain(source, skip)
                yield from source


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
        if num_left is None or num_left > 0:
            with reading(self._reader, epoch, skip) as source:
                yield from itertools.islice(source, num_left)


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


def filter(predicate: Callable[[T], object], reader: AnyReader[T]) -> Reader[T]:  # noqa: A001
    """Yield the samples for which ``predicate`` holds.

    >>> list(filter(str.isupper, lambda: "aBcD"))
    ['B', 'D']
    """
    return _Filter("filter", reader, functions=(predicate,))


class _Filter(Reader[T]):
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        (reader,), (predicate,) = self.sources, self.functions
        with reading(reader, epoch, 0) as source:
            kept = (sample for sample in source if predicate(sample))
            drain(kept, skip)
            yield from kept


def take_while(predicate: Callable[[T], object], reader: AnyReader[T]) -> Reader[T]:
    """Yield samples until ``predicate`` first fails.

    >>> list(take_while(str.islower, lambda: "abCd"))
    ['a', 'b']
    """
    return _TakeWhile("take_while", reader, functions=(predicate,))


class _TakeWhile(Reader[T]):
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        (reader,), (predicate,) = self.sources, self.functions
        with reading(reader, epoch, 0) as source:
            taken = _while(predicate, source)
            drain(taken, skip)
            yield from taken


def _while(predicate: Callable[[T], object], source: Iterator[T]) -> Iterator[T]:
    # Not `itertools.takewhile`: see `_map_all`.
    for sample in source:
        if not predicate(sample):
            return
        yield sample


def repeat(reader: AnyReader[T], num_passes: int | None = None) -> Reader[T]:
    """Yield ``num_passes`` passes of a reader as one.

    >>> list(repeat(lambda: "ab", 2))
    ['a', 'b', 'a', 'b']

    Pass ``p`` of what comes back is passes ``p * num_passes`` and following of the source, so that
    a shuffled source never repeats an order.

    Args:
        reader: Of samples.
        num_passes: None repeats without end, or until a pass is empty.

    Raises:
        FieldError: ``num_passes`` is not a whole number >= 0.
    """
    return _Repeat(reader, num_passes)


class _Repeat(Reader[T]):
    def __init__(self, reader: AnyReader[T], num_passes: int | None) -> None:
        self._num_passes = (
            None if num_passes is None else whole_number("repeat.num_passes", num_passes, minimum=0)
        )
        super().__init__("repeat", reader, num_passes=self._num_passes)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        for number in self._epochs(epoch):
            is_empty = True
            with reading(self._reader, number, 0) as source:
                num_skipped = drain(source, skip)
                skip -= num_skipped
                is_empty = num_skipped == 0
                for first in itertools.islice(source, 1):
                    is_empty = False
                    yield first
                yield from source
            if is_empty and self._num_passes is None:
                return

    def _epochs(self, epoch: int) -> Iterable[int]:
        if self._num_passes is None:
            return itertools.count(epoch)
        return range(epoch * self._num_passes, (epoch + 1) * self._num_passes)


def _open_all(
    stack: ExitStack, readers: Iterable[AnyReader[Any]], epoch: int, skip: int
) -> list[Iterator[Any]]:
    return [stack.enter_context(reading(reader, epoch, skip)) for reader in readers]
