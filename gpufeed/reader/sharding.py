"""Which samples of a pass are whose: arithmetic, so that ranks agree without talking to each other.

Of all samples of a pass, numbered from 0, shard ``index`` of ``num_shards`` takes

    index, index + num_shards, index + 2 * num_shards, ...

so that any ``k`` samples a rank are together the first ``k * num_shards`` of the pass: a prefix,
which any other number of ranks can go on from. What earlier numbers of ranks took of a pass is its
`Worlds`, and the next begin where that prefix ends.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Literal, TypeVar

from gpufeed.checks import whole_number
from gpufeed.device.threads import close_iterator
from gpufeed.errors import FieldError

__all__ = ["Shard", "ShardLike", "Worlds", "add_world", "as_shard", "num_taken_by"]

T = TypeVar("T")

# (number of ranks, samples that each of them took), oldest first; at most two entries.
Worlds = tuple[tuple[int, int], ...]

# Rank and number of ranks, as launchers tell their processes: torchrun and most others, OpenMPI,
# MPICH and its kin, Slurm. Those that may run inside another's allocation come first.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True)
class Shard:
    """One of ``num_shards`` parts of a pass.

    >>> list(Shard(3, 1).take(iter("bcdefgh")))  # from its first sample on
    ['b', 'e', 'h']

    Args:
        num_shards: Parts in all, usually ranks.
        index: Which one, from 0.
        equal: Whether all parts get equally many samples, and the last few of a pass that do not
            go round are left out.

    Raises:
        FieldError: ``num_shards`` is not a whole number >= 1, or ``index`` not one below it.
    """

    num_shards: int
    index: int
    equal: bool = False

    def __post_init__(self) -> None:
        num_shards = whole_number("shard.num_shards", self.num_shards, minimum=1)
        index = whole_number("shard.index", self.index, minimum=0)
        if index >= num_shards:
            raise FieldError(f"shard.index must be below num_shards={num_shards}, got {index}")
        object.__setattr__(self, "num_shards", num_shards)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "equal", bool(self.equal))

    def begin(self, worlds: Worlds, skip: int) -> int:
        """Return the number of the first sample to read: what `take` is given begins there."""
        row = num_taken_by(worlds) + skip * self.num_shards
        return row if self.equal else row + self.index

    def take(self, samples: Iterator[T]) -> Generator[T, None, None]:
        """Yield the shard's own of ``samples``, which begin at `begin`; close them at the end."""
        try:
            if self.equal:
                # A row of one sample for every shard, and no row that is short.
                rows = zip(*[samples] * self.num_shards, strict=False)
                yield from map(itemgetter(self.index), rows)
            else:
                yield from islice(samples, 0, None, self.num_shards)
        finally:
            close_iterator(samples)

    def count(self, num_samples: int) -> int:
        """Return how many of a pass's ``num_samples`` are the shard's."""
        missing = 0 if self.equal else self.num_shards - 1 - self.index
        return (num_samples + missing) // self.num_shards


ShardLike = Shard | tuple[int, int] | Literal["auto"]


def as_shard(name: str, shard: ShardLike | None) -> Shard | None:
    """Return what an argument ``shard`` means.

    >>> as_shard("csv.shard", (4, 1))
    Shard(num_shards=4, index=1, equal=False)

    Args:
        name: ``owner.argument``, for the message.
        shard: A `Shard`, ``(num_shards, index)``, ``"auto"`` for what the launcher says in the
            environment (one of one, if there is none), or None for everything.

    Raises:
        FieldError: It is something else, or the environment contradicts itself.
    """
    if shard is None or isinstance(shard, Shard):
        return shard
    if isinstance(shard, str) and shard == "auto":
        return _from_environment(name)
    if isinstance(shard, tuple | list) and len(shard) == 2:
        return Shard(*shard)
    raise FieldError(f"{name} must be (num_shards, index), 'auto' or None, got {shard!r}")


def _from_environment(name: str) -> Shard:
    for variables in _LAUNCHERS:
        rank, world_size = (os.environ.get(variable, "") for variable in variables)
        if rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size):
            return Shard(int(world_size), int(rank))
        if rank or world_size:
            raise FieldError(
                f"{name}='auto': {variables[0]} must be a whole number below {variables[1]}, got "
                f"{rank!r} and {world_size!r}; pass shard=(num_shards, index) to read no variable"
            )
    return Shard(1, 0)


def num_taken_by(worlds: Worlds) -> int:
    """Return how many samples of a pass were taken, by all ranks together.

    >>> num_taken_by(((4, 10), (3, 2)))
    46
    """
    return sum(num_shards * num_samples for num_shards, num_samples in worlds)


def add_world(worlds: Worlds, num_shards: int, num_samples: int) -> Worlds:
    """Return ``worlds`` and one more, as few entries as mean the same.

    The first stays as it is, since files may have been dealt out to its ranks.

    >>> add_world(((4, 10), (3, 2)), 5, 1)
    ((4, 10), (1, 11))
    """
    if num_samples == 0:
        return worlds
    if not worlds:
        return ((num_shards, num_samples),)
    return (worlds[0], (1, num_taken_by(worlds[1:]) + num_shards * num_samples))
