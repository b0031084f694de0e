"""Packing: samples into bins of a token budget, best fit first.

A sample goes where it leaves the least room, into a new bin only if it fits nowhere. Open bins are
kept in order of their room, so that one is found by bisection, O(log bins), however many are open.
A bin is a batch: fed, its LoD is the packing (``cu_seqlens``, ``max_seqlen``, segment ids and
positions are read off it).

Of any two open bins one is more than half full, or the later one would not have been begun. So one
at most is nearly empty: that one waits for more, or is what ``drop_last`` leaves out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import itemgetter

from gpufeed.reader.padding import Filling
from gpufeed.reader.tokens import Measured

__all__ = ["NUM_OPEN", "Packer", "SortedNumbers"]

# Bins that wait for a sample to fill them. More bins fill better (16: 98.7 to 99.4% of realistic
# lengths; 64: 99.1 to 99.6%; 256: 99.3 to 99.7%), and hold samples back for longer.
NUM_OPEN = 64

# An open bin is one number: its room, and in the low bits which bin it is. So numbers ascend with
# the room, and of bins with the same room with the age.
_BITS = 48
_WHICH = (1 << _BITS) - 1


class Packer:
    """Makes batches of ``max_tokens``, or slightly less, out of samples in any order.

    >>> from itertools import repeat
    >>> packer = Packer(repeat(9), max_tokens=4)
    >>> full = packer.done(iter([(3, "abc"), (2, "de"), (1, "f"), (2, "gh")]))
    >>> [done.samples for done in full]
    [['abc', 'f'], ['de', 'gh']]

    Args:
        sizes: Most samples of each bin.
        max_tokens: Most tokens of each; no sample has more.
        window: Samples that are collected and then packed longest first. None packs each sample
            as it comes, and gives the oldest of `NUM_OPEN` bins away where one more is needed.
    """

    def __init__(self, sizes: Iterator[int], max_tokens: int, window: int | None = None) -> None:
        self._sizes = sizes
        self._max_tokens = max_tokens
        self._window = window
        self._waiting: list[Measured] = []
        self._open: dict[int, Filling] = {}  # the oldest first
        self._rooms = SortedNumbers()
        self._num_begun = 0

    def done(self, samples: Iterator[Measured]) -> Iterator[Filling]:
        """Yield bins as they are done."""
        if self._window is None:
            for length, sample in samples:
                if (full := self._put(length, sample)) is not None:
                    yield full
                elif len(self._open) > NUM_OPEN:
                    yield self._close(next(iter(self._open)))
            return
        for measured in samples:
            self._waiting.append(measured)
            if len(self._waiting) == self._window:
                yield from self._pack_waiting()
                yield from self._close_all_but(self._emptiest())

    def leftovers(self, *, drop_last: bool) -> Iterator[Filling]:
        """Yield the bins that are not full, the oldest first."""
        yield from self._pack_waiting()
        yield from self._close_all_but(self._emptiest() if drop_last else None)

    def _pack_waiting(self) -> Iterator[Filling]:
        waiting, self._waiting = self._waiting, []
        waiting.sort(key=itemgetter(0), reverse=True)
        for length, sample in waiting:
            if (full := self._put(length, sample)) is not None:
                yield full

    def _put(self, length: int, sample: object) -> Filling | None:
        """Put a sample where it fits best; return the bin if that fills it."""
        found = self._rooms.pop_from(length << _BITS)
        if found is None:
            found = self._max_tokens << _BITS | self._num_begun
            self._open[self._num_begun] = Filling(next(self._sizes))
            self._num_begun += 1
        which = found & _WHICH
        bin_ = self._open[which]
        bin_.add(length, sample)
        if bin_.num_tokens == self._max_tokens or bin_.is_full:
            return self._open.pop(which)
        self._rooms.add(found - (length << _BITS))
        return None

    def _close(self, which: int) -> Filling:
        bin_ = self._open.pop(which)
        self._rooms.pop_from((self._max_tokens - bin_.num_tokens) << _BITS | which)
        return bin_

    def _close_all_but(self, kept: int | None) -> Iterator[Filling]:
        for which in list(self._open):
            if which != kept:
                yield self._close(which)

    def _emptiest(self) -> int | None:
        largest = self._rooms.largest()
        return None if largest is None else largest & _WHICH


class SortedNumbers:
    """Whole numbers in order, of which the smallest one from a given number on can be taken.

    >>> numbers = SortedNumbers()
    >>> numbers.add(80)
    >>> numbers.add(7)
    >>> [numbers.pop_from(8), numbers.pop_from(8), numbers.largest()]
    [80, None, 7]

    Kept in blocks: one list is found by bisection as fast, but a number that is put into the
    middle of a long one moves all that follow it.
    """

    LONGEST = 512  # numbers a block

    def __init__(self) -> None:
        self._blocks: list[list[int]] = []
        self._lasts: list[int] = []  # of each block

    def add(self, number: int) -> None:
        """Put a number in."""
        if not self._blocks:
            self._blocks.append([])
            self._lasts.append(number)
        at = bisect_left(self._lasts, number)
        if at == len(self._lasts):
            at -= 1
        block = self._blocks[at]
        insort(block, number)
        if len(block) > self.LONGEST:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._lasts.insert(at, block[half - 1])
            at += 1
        self._lasts[at] = block[-1]

    def pop_from(self, number: int) -> int | None:
        """Take out the smallest number that is ``number`` or larger; None if none is."""
        at = bisect_left(self._lasts, number)
        if at == len(self._lasts):
            return None
        block = self._blocks[at]
        found = block.pop(bisect_left(block, number))
        if not block:
            del self._blocks[at], self._lasts[at]
        else:
            self._lasts[at] = block[-1]
        return found

    def largest(self) -> int | None:
        """Return the largest number; None if there is none."""
        return self._lasts[-1] if self._lasts else None
