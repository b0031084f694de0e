"""Readers side by side: a function of one sample of each, or a tuple of them.

One sample in is one sample out, so skipping neither maps nor joins anything.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from gpufeed.checks import require_callable, require_readers
from gpufeed.device.threads import close_iterator
from gpufeed.errors import ComposeNotAligned
from gpufeed.reader.base import Reader
from gpufeed.reader.blocks import emptied
from gpufeed.reader.opening import counts_of, drain, open_every, pass_by
from gpufeed.reader.rng import pass_rng, rng_seed
from gpufeed.reader.skipping import OnError, Skip, SkipLog, skip_policy
from gpufeed.reader.stage import AnyReader

__all__ = ["combine", "compose", "map_readers"]

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
    require_readers("map_readers", readers)
    require_callable("map_readers.func", func)
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
        if self._policy is None:
            yield from self.open_every(epoch, skip, 1)
            return
        with ExitStack() as stack:
            rows = self._rows(stack, epoch, 0, 1)
            mapped = _map_or_skip(self._func, rows, self.start_skipping(self._policy))
            drain(mapped, skip, self)
            yield from mapped

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[R]:
        """Leave what is between alone, so that a rank maps no other's samples."""
        if self._policy is not None:
            yield from super().open_every(epoch, skip, step)
            return
        with ExitStack() as stack:
            for row in self._rows(stack, epoch, skip, step):
                # Not `starmap`: a StopIteration would end it as if the data had ended.
                yield self._func(*row)

    def _rows(
        self, stack: ExitStack, epoch: int, skip: int, step: int
    ) -> Iterator[tuple[Any, ...]]:
        """Return the arguments of each call."""
        sources = _open_all(stack, self.sources, epoch, skip, step)
        if self._seed is not None:
            numbers = itertools.count(skip, step)
            sources.append(map(pass_rng(self, self._seed, epoch).generators(), numbers))
        return _until_one_ends(sources, self.sources, epoch, max(0, skip - step + 1))

    def count(self) -> int | None:
        counts = None if self._policy is not None else counts_of(self.sources)
        return None if counts is None else min(counts)

    def num_taken(self, num: int) -> int | None:
        return None if self._policy is not None else num


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
        TypeError: There is no reader, or one is not callable.
        ComposeNotAligned: On iteration, after all full rows: one reader has ended before another.

    Source: ``paddle.reader.compose``; here None is data and unknown keywords are errors.
    """
    require_readers("compose", readers)
    return _Compose(*readers, check_alignment=check_alignment)


combine = compose  # its name in the oldest documents


class _Compose(Reader[tuple[Any, ...]]):
    def __init__(self, *readers: AnyReader[Any], check_alignment: bool) -> None:
        self._check_alignment = bool(check_alignment)
        super().__init__("compose", *readers, check_alignment=self._check_alignment)

    def open(self, epoch: int, skip: int) -> Iterator[tuple[Any, ...]]:
        with ExitStack() as stack:
            sources = _open_all(stack, self.sources, epoch, skip)
            if self._check_alignment:
                rows = _aligned(sources, skip)
            else:
                rows = _until_one_ends(sources, self.sources, epoch, skip)
            for row in rows:
                fields: list[Any] = []
                for part in row:
                    if isinstance(part, tuple):
                        fields.extend(part)
                    else:
                        fields.append(part)
                yield tuple(fields)

    def count(self) -> int | None:
        counts = counts_of(self.sources)
        if counts is None or (self._check_alignment and len(set(counts)) > 1):
            return None
        return min(counts)

    def num_taken(self, num: int) -> int | None:
        return num


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


def _until_one_ends(
    sources: list[Iterator[Any]], readers: Sequence[AnyReader[Any]], epoch: int, skip: int
) -> Iterator[tuple[Any, ...]]:
    """Yield rows as `zip` does: of those behind the one that ends, no more samples are read.

    If it ends at once, the readers behind it have to come past ``skip`` samples all the same.
    """
    for number in range(len(readers) if skip else 0):
        first = list(itertools.islice(sources[number], 1))
        if not first:
            for behind in readers[number + 1 :]:
                pass_by(behind, epoch, skip)
            return
        sources[number] = itertools.chain(emptied(first), sources[number])
    yield from zip(*sources, strict=False)


def _open_all(
    stack: ExitStack, readers: Iterable[AnyReader[Any]], epoch: int, skip: int, step: int = 1
) -> list[Iterator[Any]]:
    sources = []
    for reader in readers:
        sources.append(open_every(reader, epoch, skip, step))
        stack.callback(close_iterator, sources[-1])
    return sources
