"""Mini-batches: so many samples each, so many tokens each, sorted, in buckets or packed.

A batch of a fixed number of samples is found again without reading those before it. What depends
on lengths is not: such a reader resumes by running again from the beginning of the pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice, pairwise, repeat
from typing import Any, TypeVar

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.reader.base import Reader
from gpufeed.reader.blocks import blocks
from gpufeed.reader.counters import Counter
from gpufeed.reader.kinds import reading_samples
from gpufeed.reader.opening import count_of, drain
from gpufeed.reader.packing import Packer
from gpufeed.reader.padding import BatchStats
from gpufeed.reader.stage import AnyReader
from gpufeed.reader.tokens import Length, Measured, TokenCutter, cut, measured, sorted_by_length

__all__ = ["Batch", "BatchSize", "batch", "batch_stats"]

T = TypeVar("T")

BatchSize = int | Callable[[int, int], int]


def batch(
    reader: AnyReader[T],
    batch_size: BatchSize | None = None,
    drop_last: bool = False,
    *,
    max_tokens: int | None = None,
    sort_window: int | None = None,
    length: Callable[[Any], Any] | None = None,
    pack: bool = False,
    buckets: Iterable[int] | None = None,
    padded: bool = False,
) -> Batch[T]:
    """Group samples into mini-batches: lists of ``batch_size``, or of ``max_tokens``, or both.

    >>> reader = batch(lambda: range(5), batch_size=2)
    >>> list(reader())
    [[0, 1], [2, 3], [4]]

    Every batch is a new list; samples are passed on as they are.

    With ``max_tokens`` a batch takes samples while the sum of their lengths stays within it. That
    is what a feed holds, since nothing in it is padded. Give ``padded=True`` if your model pads.

    >>> words = lambda: [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [11, 12]]
    >>> list(batch(words, max_tokens=4))
    [[[1, 2, 3], [4]], [[5, 6]], [[7, 8, 9, 10]], [[11, 12]]]
    >>> list(batch(words, max_tokens=4, pack=True))
    [[[1, 2, 3], [4]], [[7, 8, 9, 10]], [[5, 6], [11, 12]]]

    Batches of a sorted or bucketed reader come in order of length within a window: shuffle them,
    ``shuffle(batch(...), 64, seed=1)``. `Batch.stats` tells what padding and packing cost.

    Ranks that must have equally many batches all make the same ones, and take their own:
    ``shard(batch(...), num_shards, index, equal=True)``.

    A reader of `ColumnarBatch` is cut into `ColumnarBatch`, by rows: views of its own where that
    is possible.

    Args:
        reader: Of samples, or of `ColumnarBatch`.
        batch_size: Most samples a batch; without ``max_tokens`` all batches but the last have so
            many. Or a function of (epoch, number of the batch in its pass), for batches that grow.
        drop_last: Whether what is left at the end, and does not fill a batch, is left out: the
            last batch, the last one of each bucket, or the emptiest bin. That includes the samples
            in front of an error of ``reader``: without ``drop_last`` they come before it, as
            shorter batches.
        max_tokens: Most tokens a batch. A sample that is longer is an error.
        sort_window: Sort every so many samples by length before they are cut; windows alternate
            between shortest first and longest first, so that none ends in a short batch. With
            ``pack``, samples that are packed together, longest first (best-fit decreasing).
        length: Tokens of a sample, called once for each; None counts the entries of a sample that
            is one sequence, and else of its first field that is a sequence (text is none), which
            has to be the same field in all samples. Of a `ColumnarBatch`, an array with the
            tokens of each row.
        pack: Fill bins of ``max_tokens`` best fit first, instead of cutting samples in the order
            they come. A batch is one bin: fed, its LoD is the packing. For several bins a step,
            ``batch(batch(..., pack=True), n)``.
        buckets: Ascending lengths: samples up to the first, from there up to the second, and so
            on, and those that are longer than the last, fill batches of their own. At the end
            come those that are not full, of the shortest samples first.
        padded: Count as a batch's tokens its number of samples times the longest one.

    Raises:
        FieldError: (a ValueError) A number is not a whole number >= 1, ``buckets`` do not ascend,
            or arguments contradict each other. On iteration: a sample has no length or one above
            ``max_tokens``.
        TypeError: Neither ``batch_size`` nor ``max_tokens`` is given, or ``reader`` or ``length``
            is not callable.

    Source: ``paddle.batch``, whose check of ``batch_size`` also comes with the call; there
    ``drop_last`` had to be False itself to keep the last batch, here any false value does. All
    after ``drop_last`` is ours.
    """
    return Batch(
        reader,
        batch_size,
        drop_last,
        max_tokens=max_tokens,
        sort_window=sort_window,
        length=length,
        pack=pack,
        buckets=buckets,
        padded=padded,
    )


class Batch(Reader[list[T]]):
    """A reader of mini-batches; made by `batch`.

    Attributes:
        batch_size: Most samples a batch: a number, a function, or None.
        drop_last: Whether a last batch that is not full is left out.
        max_tokens: Most tokens a batch; None if they are not counted.
    """

    def __init__(
        self,
        reader: AnyReader[T],
        batch_size: BatchSize | None,
        drop_last: bool = False,
        *,
        max_tokens: int | None = None,
        sort_window: int | None = None,
        length: Length | None = None,
        pack: bool = False,
        buckets: Iterable[int] | None = None,
        padded: bool = False,
    ) -> None:
        if batch_size is None and max_tokens is None:
            raise TypeError("batch.batch_size must be given, got None")
        if length is not None and not callable(length):
            raise TypeError(f"batch.length must be callable, got {length!r}")
        self.batch_size = batch_size if callable(batch_size) else _count("batch_size", batch_size)
        self.drop_last = bool(drop_last)
        self.max_tokens = _count("max_tokens", max_tokens)
        self._window = _count("sort_window", sort_window)
        self._length = length
        self._pack = bool(pack)
        self._buckets = None if buckets is None else _ascending(buckets)
        self._padded = bool(padded)
        self._check()
        super().__init__(
            "batch",
            reader,
            functions=tuple(filter(callable, (batch_size, length))),
            **self._named(),
        )
        self._reader = reader
        self._stats = BatchStats(max_tokens=self.max_tokens)

    def _check(self) -> None:
        """Refuse arguments that contradict each other."""
        for name, given in (("pack", self._pack), ("padded", self._padded)):
            if given and self.max_tokens is None:
                raise FieldError(f"batch.max_tokens must be given with {name}=True, got None")
        if self._pack and self._padded:
            raise FieldError("batch.padded must be False with pack=True: bins are not padded")
        if self._pack and self._buckets is not None:
            raise FieldError("batch.buckets must be None with pack=True, which mixes lengths")
        if callable(self.batch_size) and (self._pack or self._buckets is not None):
            raise FieldError(
                "batch.batch_size must be a number with pack or buckets, whose batches are filled "
                "side by side, got a function"
            )

    def _named(self) -> dict[str, object]:
        """Return what decides which samples a batch holds; functions are not compared."""
        named: dict[str, object] = {}
        if not callable(self.batch_size) and self.batch_size is not None:
            named["batch_size"] = self.batch_size
        named["drop_last"] = self.drop_last
        others = {
            "max_tokens": self.max_tokens,
            "sort_window": self._window,
            "pack": self._pack,
            "buckets": self._buckets,
            "padded": self._padded,
        }
        return named | {name: value for name, value in others.items() if value not in (None, False)}

    def open(self, epoch: int, skip: int) -> Iterator[list[T]]:
        """Skip whole batches as samples, if lengths have no part in what a batch holds."""
        sizes = self._sizes(epoch)
        num_samples, num_batches = 0, skip
        if self.max_tokens is None and self._buckets is None:
            num_samples, num_batches = _sum_of_first(sizes, skip, self.batch_size), 0
        first_window, rest = divmod(num_samples, self._window or 1)
        first = num_samples - rest
        with reading_samples(self._reader, epoch, first) as (source, is_columnar):
            if not self._is_measured:
                yield from self._by_number(source, is_columnar, sizes)
                return
            samples, make = self._measured(source, is_columnar, first)
            if self._window is not None and not self._pack:
                samples = sorted_by_length(samples, self._window, first_window)
            drain(samples, rest, self)
            done = cut(self._cutter(sizes), samples, drop_last=self.drop_last)
            drain(done, num_batches, self)
            for filling in done:
                self._stats.count(filling)
                yield make(filling.give())

    def count(self) -> int | None:
        """Return the number of batches, where samples are counted and nothing but their number."""
        num_samples = count_of(self._reader)
        if num_samples is None or self._num_a_batch is None:
            return None
        return (num_samples + (0 if self.drop_last else self._num_a_batch - 1)) // self._num_a_batch

    def num_taken(self, num: int) -> int | None:
        """Return how many samples ``num`` full batches hold, where each holds equally many."""
        return None if self._num_a_batch is None else num * self._num_a_batch

    @property
    def _num_a_batch(self) -> int | None:
        """How many samples of the source each batch holds, in its order; None if they differ."""
        if callable(self.batch_size) or self._is_measured or self.is_columnar:
            return None
        return self.batch_size

    def _sizes(self, epoch: int) -> Iterator[int]:
        """Return how many samples each batch of a pass may hold."""
        if self.batch_size is None:
            return repeat(sys.maxsize)
        if not callable(self.batch_size):
            return repeat(self.batch_size)
        size = self.batch_size
        return (
            whole_number(f"batch.batch_size({epoch}, {number})", size(epoch, number), minimum=1)
            for number in count()
        )

    @property
    def _is_measured(self) -> bool:
        options = (self.max_tokens, self._window, self._length, self._buckets)
        return any(option is not None for option in options)

    def _cutter(self, sizes: Iterator[int]) -> TokenCutter | Packer:
        if self._pack and self.max_tokens is not None:
            return Packer(sizes, self.max_tokens, self._window)
        return TokenCutter(sizes, self.max_tokens, padded=self._padded, buckets=self._buckets or ())

    def _by_number(
        self, source: Iterator[Any], is_columnar: bool, sizes: Iterator[int]
    ) -> Iterator[Any]:
        """Yield batches of so many samples, whatever their lengths."""
        make: Any = blocks
        if is_columnar:
            from gpufeed.reader.rows import row_blocks as make
        stats = self._stats
        for samples in make(source, sizes, drop_last=self.drop_last):
            stats.num_batches += 1
            stats.num_samples += len(samples)
            yield samples
            del samples  # while the next ones are read, these must not be in memory too

    def _measured(
        self, source: Iterator[Any], is_columnar: bool, first: int
    ) -> tuple[Iterator[Measured], Callable[[list[Any]], Any]]:
        """Return samples with their lengths, and the function that makes a batch of some."""
        if not is_columnar:
            return measured(source, self._length, self.max_tokens, first), _as_they_are
        from gpufeed.reader.rows import gather_rows, measured_rows

        return measured_rows(source, self._length, self.max_tokens, first), gather_rows

    def counters(self) -> tuple[Counter, ...]:
        """Count batches, too."""
        return (*super().counters(), self._stats)

    def stats(self) -> BatchStats:
        """Return a copy of what this reader's batches held so far, over all passes.

        >>> reader = batch(lambda: ["a", "bcd", "ef"], max_tokens=4)
        >>> len(list(reader)), reader.stats().padding_waste, reader.stats().fill
        (2, 0.25, 0.75)
        """
        return self._stats.copy()


def batch_stats(reader: Reader[Any]) -> BatchStats | None:
    """Return the stats of the last stage of a pipeline that makes batches; None if none does."""
    for stage in reader.stages():
        if isinstance(stage, Batch):
            return stage.stats()
    return None


def _as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else whole_number(f"batch.{name}", value, minimum=1)


def _ascending(buckets: Iterable[int]) -> tuple[int, ...]:
    rule = f"batch.buckets must be ascending lengths, at least one, got {buckets!r}"
    if not isinstance(buckets, Iterable):
        raise FieldError(rule)
    lengths = tuple(whole_number("each of batch.buckets", each, minimum=0) for each in buckets)
    if not lengths or any(later <= earlier for earlier, later in pairwise(lengths)):
        raise FieldError(rule)
    return lengths


def _sum_of_first(sizes: Iterator[int], num: int, size: BatchSize | None) -> int:
    """Return how many samples the next ``num`` batches hold, and go on to the one after them."""
    return sum(islice(sizes, num)) if callable(size) or size is None else num * size
