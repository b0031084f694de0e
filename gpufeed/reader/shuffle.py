"""Block shuffle: random order within a buffer's length, and a function of (seed, epoch)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gpufeed.checks import whole_number
from gpufeed.reader.base import Reader
from gpufeed.reader.blocks import blocks
from gpufeed.reader.counters import Changes, Counter, Telling, count_changes
from gpufeed.reader.opening import count_of, counted_by_now, made_by, open_reader, reading
from gpufeed.reader.stage import AnyReader

__all__ = ["shuffle"]

T = TypeVar("T")

_DRAWS_A_STEP = 4  # 64-bit outputs of Philox for one step of its counter


def shuffle(reader: AnyReader[T], buf_size: int, *, seed: int | None = None) -> Reader[T]:
    """Read blocks of ``buf_size`` samples and yield each block in random order.

    Samples do not cross blocks: sorted data wants a buffer longer than its longest run.

    >>> reader = shuffle(lambda: range(6), buf_size=3, seed=1)
    >>> samples = list(reader())
    >>> sorted(samples[:3]), sorted(samples[3:])
    ([0, 1, 2], [3, 4, 5])

    Args:
        reader: Of samples.
        buf_size: Samples a block; 0, 1 or less keeps the order.
        seed: Makes the order a function of (seed, epoch), and so resumable. Without one each pass
            takes a seed from the global `random` module, so that ``random.seed`` fixes a run.

    Raises:
        FieldError: ``buf_size`` is not a whole number, or ``seed`` not one >= 0.

    Source: ``paddle.reader.shuffle``.
    """
    return _Shuffle(reader, buf_size, seed)


class _Shuffle(Reader[T]):
    def __init__(self, reader: AnyReader[T], buf_size: int, seed: int | None) -> None:
        self._buf_size = whole_number("shuffle.buf_size", buf_size)
        self._seed = None if seed is None else whole_number("shuffle.seed", seed, minimum=0)
        super().__init__("shuffle", reader, buf_size=self._buf_size, seed=self._seed)
        self._reader = reader

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Skip whole blocks as samples of the source, and the rest inside the first block."""
        if self._buf_size <= 1:
            return open_reader(self._reader, epoch, skip)
        return self._open_shuffled(epoch, skip)

    def _open_shuffled(self, epoch: int, skip: int) -> Iterator[T]:
        key = (random.getrandbits(64), 0) if self._seed is None else (self._seed, epoch)
        first, skip_in_block = divmod(skip, self._buf_size)
        orders = _BlockOrders(*key, self._buf_size, first)
        with reading(self._reader, epoch, first * self._buf_size) as source:
            begun = _BegunBlock(made_by(self)) if skip_in_block else None
            samples = source if begun is None else chain(begun.read(source, self._buf_size), source)
            for block in blocks(samples, self._buf_size):
                order = orders.draw(len(block))[skip_in_block:]
                if begun is not None:
                    begun.keep(order)
                    begun = None
                # An object array reorders pointers at a third of a list's cost.
                yield from np.fromiter(block, dtype=object, count=len(block))[order].tolist()
                skip_in_block = 0
                # While the next block is read, this one must not be in memory too.
                del block

    def count(self) -> int | None:
        return count_of(self._reader)

    def unrepeatable(self) -> str | None:
        if self._seed is None and self._buf_size > 1:
            return "has no seed, so its order cannot be repeated; pass shuffle(..., seed=...)"
        return None


class _BegunBlock:
    """What stages have made for each sample of the block that a resumed pass begins in.

    Args:
        counters: Of the stages.
    """

    def __init__(self, counters: Sequence[Counter]) -> None:
        self._counters = counters
        self._telling = Telling(counters)
        self._go_back = counted_by_now(counters)
        self._changes: list[Changes] = []

    def read(self, source: Iterator[T], num: int) -> Iterator[T]:
        """Yield the samples of the block."""
        for sample in islice(source, num):
            self._changes.append(self._telling())
            yield sample

    def keep(self, numbers: Iterable[np.uint64]) -> None:
        """Count no others: these are the ones that the pass had not yielded."""
        self._go_back()
        for number in numbers:
            count_changes(self._counters, self._changes[int(number)])


class _BlockOrders:
    """The permutations of a pass's blocks, from block ``first`` on.

    Block n owns the n-th equal share of the pass's random stream, so those before it cost nothing.
    Only raw output is used, which NumPy, unlike its permutations, promises never to change.
    """

    def __init__(self, seed: int, epoch: int, buf_size: int, first: int) -> None:
        self._bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch,)))
        self._bits.advance(first * _num_steps(buf_size))

    def draw(self, size: int) -> npt.NDArray[np.uint64]:
        """Return the next block's permutation; only the last block may be a shorter one."""
        # Sorting random keys that carry their index in the low bits is twice as fast as `argsort`,
        # and leaves no ties for which sorts might differ.
        keys = self._bits.random_raw(_num_steps(size) * _DRAWS_A_STEP)[:size]
        low = np.uint64((1 << size.bit_length()) - 1)
        keys &= ~low
        keys |= np.arange(size, dtype=np.uint64)
        keys.sort()
        keys &= low
        return keys


def _num_steps(num_draws: int) -> int:
    return -(-num_draws // _DRAWS_A_STEP)
