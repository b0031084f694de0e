"""Where a pass stands, as a number: the state that a pipeline saves and resumes from.

A pipeline is deterministic given its seeds, so a position is (epoch, samples delivered) and holds
no samples. A state is a small JSON object. Its ``fingerprint`` covers every stage and argument that
decides which samples come in which order, and nothing that only decides how fast they come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import compress, repeat
from operator import length_hint
from typing import Any, TypeGuard, TypeVar

from gpufeed.errors import ReaderError
from gpufeed.reader.sharding import Worlds

__all__ = ["Position", "Recipe", "fingerprint", "restore_position", "save_position"]

T = TypeVar("T")

VERSION = 1
_NUM_SEEDS = 8  # written out in a state
_NUM_SHOWN = 80  # characters of an identity, of each end


class Position:
    """The pass that is running, or the next one to run, and how far it has come.

    >>> position = Position(epoch=1, delivered=10)
    >>> next(position.count(iter("abc"))), position.delivered
    ('a', 11)

    Args:
        epoch: Number of the pass, from 0.
        delivered: How many samples of it its consumer has received.
        is_over: Whether its consumer has come to the end.
        worlds: What other numbers of ranks took of the pass before this one went on with it.
    """

    __slots__ = ("_before", "_left", "epoch", "is_over", "worlds")

    def __init__(
        self, epoch: int = 0, delivered: int = 0, worlds: Worlds = (), *, is_over: bool = False
    ) -> None:
        self.epoch = epoch
        self.is_over = is_over
        self.worlds = worlds
        self._before = delivered
        self._left = repeat(True, sys.maxsize)

    @property
    def delivered(self) -> int:
        """Samples that the consumer has received."""
        return self._before + sys.maxsize - length_hint(self._left)

    def count(self, samples: Iterator[T]) -> Iterator[T]:
        """Pass samples on and count them: inside the loop's body a sample is delivered.

        `compress` takes one truth for each sample that it lets through, and `repeat` knows how
        many it has left. So counting runs at the speed of C, and keeps no sample alive.
        """
        return compress(samples, self._left)

    def __reduce__(self) -> tuple[Callable[..., Position], tuple[int, int, Worlds]]:
        make = partial(Position, is_over=self.is_over)
        return make, (self.epoch, self.delivered, self.worlds)


def fingerprint(identity: str) -> str:
    """Return what stands for ``identity`` in a state: 16 digits, and as much of it as fits.

    The digits tell identities apart, the text tells whoever reads an error what differs.

    >>> fingerprint("firstn(reader, n=3)")
    'f85e1d11918f969b firstn(reader, n=3)'
    """
    digest = blake2b(identity.encode(), digest_size=8).hexdigest()
    text = identity.encode("ascii", "replace").decode()
    if len(text) > 2 * _NUM_SHOWN:
        text = f"{text[:_NUM_SHOWN]}...{text[-_NUM_SHOWN:]}"
    return f"{digest} {text}"


@dataclass(frozen=True)
class Recipe:
    """What decides which samples a pipeline yields in which order, and so which states fit it.

    Attributes:
        identity: Text that is equal for pipelines of the same stages and arguments.
        seeds: Of the pipeline's stages, outermost first.
        world_size: How many ranks share a pass.
    """

    identity: str
    seeds: Sequence[int]
    world_size: int

    @property
    def seed(self) -> int | str | list[int] | None:
        """The seeds as a small JSON value; of many or long ones, a fingerprint."""
        if len(self.seeds) > _NUM_SEEDS or any(seed.bit_length() > 64 for seed in self.seeds):
            return fingerprint(repr(list(self.seeds)))
        return list(self.seeds) if len(self.seeds) > 1 else next(iter(self.seeds), None)


def save_position(position: Position, recipe: Recipe, skipped: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``position`` as a state: a dict of JSON values, under 1 KB.

    >>> recipe = Recipe("reader", seeds=[7], world_size=1)
    >>> state = save_position(Position(epoch=2, delivered=640), recipe, {"count": 0})
    >>> state["delivered"], state["seed"]
    (640, 7)

    Args:
        position: What to save.
        recipe: Of the pipeline.
        skipped: What was left out on the way, as `Reader.skipped` tells it.
    """
    return {
        "version": VERSION,
        "epoch": position.epoch,
        "delivered": position.delivered,
        "over": position.is_over,
        "seed": recipe.seed,
        "world_size": recipe.world_size,
        "earlier_worlds": [list(world) for world in position.worlds],
        "skipped": dict(skipped),
        "fingerprint": fingerprint(recipe.identity),
    }


def restore_position(state: Mapping[str, Any], recipe: Recipe, owner: str) -> tuple[Position, int]:
    """Return the position that ``state`` holds, and of how many ranks it is the position of one.

    Args:
        state: What `save_position` returned, perhaps by way of a JSON file.
        recipe: Of the pipeline that goes on, on any number of ranks.
        owner: The pipeline, for messages.

    Raises:
        ReaderError: It is no such state, or one of another pipeline, seed or version.
    """

    def refuse(rule: str, got: object) -> ReaderError:
        return ReaderError(f"load_state_dict of {owner}: state{rule}, got {got!r}")

    if not isinstance(state, Mapping):
        raise refuse(" must be what state_dict() returned", state)
    if state.get("version") != VERSION:
        raise refuse(f"['version'] must be {VERSION}", state.get("version"))
    for key, minimum in (("epoch", 0), ("delivered", 0), ("world_size", 1)):
        if not _is_count(state.get(key), minimum):
            raise refuse(f"[{key!r}] must be a whole number >= {minimum}", state.get(key))
    worlds = state.get("earlier_worlds")
    if not _are_worlds(worlds):
        raise refuse("['earlier_worlds'] must be pairs of whole numbers, two at most", worlds)
    skipped = state.get("skipped")
    if not isinstance(skipped, Mapping) or not _is_count(skipped.get("count"), 0):
        raise refuse("['skipped'] must be what skipped() returned", skipped)
    if not isinstance(state.get("over"), bool):
        raise refuse("['over'] must be True or False", state.get("over"))
    if state.get("fingerprint") != fingerprint(recipe.identity):
        raise refuse(
            f"['fingerprint'] must be {fingerprint(recipe.identity)!r} (it was saved by a pipeline "
            "of other stages, or with other arguments)",
            state.get("fingerprint"),
        )
    if state.get("seed") != recipe.seed:
        raise refuse(f"['seed'] must be {recipe.seed!r}", state.get("seed"))
    earlier = tuple((num_shards, num_samples) for num_shards, num_samples in worlds)
    position = Position(state["epoch"], state["delivered"], earlier, is_over=state["over"])
    return position, state["world_size"]


def _is_count(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _are_worlds(worlds: object) -> TypeGuard[list[list[int]]]:
    return (
        isinstance(worlds, list)
        and len(worlds) <= 2
        and all(isinstance(world, list) and len(world) == 2 for world in worlds)
        and all(_is_count(number, 1) for world in worlds for number in world)
    )
