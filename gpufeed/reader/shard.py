"""`shard`: the part of a reader's samples that one rank reads.

All ranks run the same pipeline and each keeps its own samples; `gpufeed.reader.sharding` says
which these are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from gpufeed.errors import FieldError, ReaderError
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import count_of, open_every, open_reader, stages_of
from gpufeed.reader.sharding import Shard, as_shard
from gpufeed.reader.stage import AnyReader, identity_of

__all__ = ["ShardedReader", "shard"]

T = TypeVar("T")


def shard(
    reader: AnyReader[T],
    num_shards: int | Literal["auto"],
    index: int | None = None,
    *,
    equal: bool = False,
) -> Reader[T]:
    """Yield samples ``index``, ``index + num_shards``, ``index + 2 * num_shards``, ...

    >>> list(shard(lambda: "abcdefg", num_shards=3, index=1))
    ['b', 'e']

    Every rank must read the same samples in the same order: shuffle below it takes a seed. Stages
    above it, such as another shuffle, batches, maps, are the rank's own. What is skipped is read,
    but not mapped where `map_readers` stands right below.

    Args:
        reader: Of all samples.
        num_shards: How many ranks there are; or ``"auto"``: as the launcher tells them in RANK and
            WORLD_SIZE, or their equivalents of OpenMPI, MPICH and Slurm; one rank if none does.
        index: Which one this is, from 0; not given with ``"auto"``.
        equal: Give every rank equally many samples, and so equally many batches, without asking
            the others: a last few that do not go round are left out by all.

    Raises:
        FieldError: ``index`` or ``num_shards`` is out of range, or the environment contradicts
            itself.
        ReaderError: A stage below does not repeat its order, so ranks would disagree about it.
    """
    if num_shards == "auto":
        if index is not None:
            raise FieldError(f"shard.index must not be given with 'auto', got {index!r}")
        found = as_shard("shard.num_shards", "auto") or Shard(1, 0)
        return _Shard(reader, Shard(found.num_shards, found.index, equal))
    if index is None:
        raise TypeError("shard.index must be given, got None")
    return _Shard(reader, Shard(num_shards, index, equal))


class ShardedReader(Reader[T]):
    """A reader that divides each pass over ranks, sample by sample.

    A subclass implements `open_whole`.

    Args:
        name: As for `Reader`.
        sources: As for `Reader`.
        division: The part to take; None is everything.
        parameters: As for `Reader`.
    """

    division: Shard

    def __init__(
        self,
        name: str,
        *sources: AnyReader[Any],
        division: Shard | None,
        **parameters: object,
    ) -> None:
        super().__init__(name, *sources, functions=(), **parameters)
        # A single reader is one shard of one: it can go on with what several have left.
        self.division = division or Shard(1, 0)

    @abstractmethod
    def open_whole(self, epoch: int, skip: int) -> Iterator[T]:
        """Return an iterator over all ranks' samples of a pass without the first ``skip``."""

    def open_whole_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        """Return an iterator over every ``step``-th of all ranks' samples."""
        return Shard(step, 0).take(self.open_whole(epoch, skip))

    def count_whole(self) -> int | None:
        """Return how many samples all ranks have together; None where that is not known."""
        return None

    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Skip other ranks' samples, too, as samples of the source."""
        division = self.division
        begin = division.begin(self.worlds, skip)
        if division.num_shards == 1:
            return self.open_whole(epoch, begin)
        if division.equal:
            return division.take(self.open_whole(epoch, begin))
        return self.open_whole_every(epoch, begin, division.num_shards)

    def count(self) -> int | None:
        """Return the number of this shard's samples, where that of all is known."""
        whole = self.count_whole()
        return None if whole is None else self.division.count(whole)


class _Shard(ShardedReader[T]):
    def __init__(self, reader: AnyReader[T], division: Shard) -> None:
        super().__init__(
            "shard",
            reader,
            division=division,
            num_shards=division.num_shards,
            index=division.index,
            equal=division.equal,
        )
        self._reader = reader
        for stage in stages_of(reader) if division.num_shards > 1 else ():
            reason = stage.unrepeatable()
            if reason is not None:
                raise ReaderError(
                    f"shard: ranks must agree on the order of samples, but {stage.name} {reason}"
                )

    def open_whole(self, epoch: int, skip: int) -> Iterator[T]:
        return open_reader(self._reader, epoch, skip)

    def open_whole_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        return open_every(self._reader, epoch, skip, step)

    def count_whole(self) -> int | None:
        return count_of(self._reader)

    def identity(self) -> str:
        # Neither how many ranks there are nor which this is: each can load the state of another.
        return f"shard({identity_of(self._reader)}, equal={self.division.equal})"
