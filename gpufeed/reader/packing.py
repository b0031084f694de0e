"""Packing: samples into bins of a token budget, best fit first.

A sample goes where it leaves the least room, into a new bin only if it fits nowhere. Finding that
bin takes O(log max_tokens), however many bins are open. A bin is a batch: fed, its LoD is the
packing (``cu_seqlens``, ``max_seqlen``, segment ids and positions are read off it).

Of any two open bins one is more than half full, or the later one would not have been begun. So one
at most is nearly empty: that one waits for more, or is what ``drop_last`` leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from gpufeed.reader.padding import Filling
from gpufeed.reader.tokens import Measured

__all__ = ["NUM_OPEN", "NumberSet", "Packer"]

# Bins that wait for a sample to fill them. More bins fill better (16: 98.7 to 99.4% of realistic
# lengths; 64: 99.1 to 99.6%; 256: 99.3 to 99.7%), and hold samples back for longer.
NUM_OPEN = 64

_BITS = 6  # of a number that one level of the tree decides
_MASK = (1 << _BITS) - 1


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
        self._rooms = NumberSet(max_tokens)
        self._by_room: dict[int, dict[int, Filling]] = {}  # those of a room by their number
        self._open: dict[int, int] = {}  # number of a bin to its room, the oldest bin first
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
        room = self._rooms.at_least(length)
        if room is None:
            room, number, bin_ = self._max_tokens, self._num_begun, Filling(next(self._sizes))
            self._num_begun += 1
        else:
            same = self._by_room[room]
            number, bin_ = same.popitem()
            if not same:
                self._forget(room)
        bin_.add(length, sample)
        room -= length
        if not room or bin_.is_full:
            self._open.pop(number, None)
            return bin_
        if room not in self._by_room:
            self._by_room[room] = {}
            self._rooms.add(room)
        self._by_room[room][number] = bin_
        self._open[number] = room
        return None

    def _forget(self, room: int) -> None:
        del self._by_room[room]
        self._rooms.discard(room)

    def _close(self, number: int) -> Filling:
        room = self._open.pop(number)
        same = self._by_room[room]
        bin_ = same.pop(number)
        if not same:
            self._forget(room)
        return bin_

    def _close_all_but(self, kept: int | None) -> Iterator[Filling]:
        for number in list(self._open):
            if number != kept:
                yield self._close(number)

    def _emptiest(self) -> int | None:
        return max(self._open, key=self._open.__getitem__, default=None)


class NumberSet:
    """A set of whole numbers that finds the smallest one from a given number on.

    >>> numbers = NumberSet(maximum=100)
    >>> numbers.add(7)
    >>> numbers.add(80)
    >>> [numbers.at_least(7), numbers.at_least(8), numbers.at_least(81)]
    [7, 80, None]

    A tree of 64-bit words: bit ``b`` of word ``w`` says that word ``64 w + b`` of the level below
    is not 0, and on the lowest level that ``64 w + b`` is in the set. So every operation takes
    one step a level, O(log maximum), and memory grows with the set and not with ``maximum``.

    Args:
        maximum: The largest number that it may hold.
    """

    def __init__(self, maximum: int) -> None:
        num_levels = max(1, -(-maximum.bit_length() // _BITS))
        self._levels: list[dict[int, int]] = [{} for _ in range(num_levels)]

    def add(self, number: int) -> None:
        """Put a number in."""
        for words in self._levels:
            number, bit = number >> _BITS, 1 << (number & _MASK)
            word = words.get(number, 0)
            words[number] = word | bit
            if word:
                return

    def discard(self, number: int) -> None:
        """Take a number out that is in it."""
        for words in self._levels:
            number, bit = number >> _BITS, 1 << (number & _MASK)
            word = words[number] & ~bit
            if word:
                words[number] = word
                return
            del words[number]

    def at_least(self, number: int) -> int | None:
        """Return the smallest number in the set that is ``number`` or larger; None if none is."""
        for level, words in enumerate(self._levels):
            number, bit = number >> _BITS, number & _MASK
            word = words.get(number, 0) >> bit
            if word:
                number = (number << _BITS) + bit + _lowest_bit(word)
                for lower in reversed(self._levels[:level]):
                    number = (number << _BITS) + _lowest_bit(lower[number])
                return number
            number += 1  # on the level above, whatever comes after this word
        return None


def _lowest_bit(word: int) -> int:
    return (word & -word).bit_length() - 1
