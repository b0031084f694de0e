"""Where a pass stands, as a number: the state that a pipeline saves and resumes from.

A pipeline is deterministic given its seeds, so a position is (epoch, samples delivered) and holds
no samples. A state is a small JSON object. Its ``fingerprint`` covers every stage and argument that
decides which samples come in which order, and nothing that only decides how fast they come.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import compress
from operator import length_hint
from typing import Any, TypeVar

from gpufeed.errors import ReaderError

__all__ = ["Position", "fingerprint", "restore_position", "save_position"]

T = TypeVar("T")

VERSION = 1
_TRUTHS = range(1, sys.maxsize)


class Position:
    """The pass that is running, or the next one to run, and how far it has come.

    >>> position = Position(epoch=1, delivered=10)
    >>> next(position.count(iter("abc"))), position.delivered
    ('a', 11)

    Args:
        epoch: Number of the pass, from 0.
        delivered: How many samples of it its consumer has received.
    """

    __slots__ = ("_before", "_passed", "epoch")

    def __init__(self, epoch: int = 0, delivered: int = 0) -> None:
        self.epoch = epoch
        self._before = delivered
        self._passed = iter(_TRUTHS)

    @property
    def delivered(self) -> int:
        """Samples that the consumer has received."""
        return self._before + len(_TRUTHS) - length_hint(self._passed)

    def count(self, samples: Iterator[T]) -> Iterator[T]:
        """Pass samples on and count them: inside the loop's body a sample is delivered.

        A range gives up one number for each sample that `compress` lets through, and knows how
        many it has left. So counting runs at the speed of C, and keeps no sample alive.
        """
        return compress(samples, self._passed)


def fingerprint(identity: str) -> str:
    """Return 16 hexadecimal digits that stand for ``identity``.

    >>> fingerprint("reader") == fingerprint("reader"), len(fingerprint("reader"))
    (True, 16)
    """
    return blake2b(identity.encode(), digest_size=8).hexdigest()


def save_position(
    position: Position, seeds: Sequence[int], identity: str, skipped: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``position`` as a state: a dict of JSON values, under 1 KB.

    >>> state = save_position(Position(epoch=2, delivered=640), [7], "reader", {"count": 0})
    >>> state["delivered"]
    640

    Args:
        position: What to save.
        seeds: Of the pipeline's stages, outermost first.
        identity: Text that is equal for pipelines that yield the same samples in the same order.
        skipped: What was left out on the way, as `Reader.skipped` tells it.
    """
    return {
        "version": VERSION,
        "epoch": position.epoch,
        "delivered": position.delivered,
        "seed": _as_json(seeds),
        "world_size": 1,
        "skipped": dict(skipped),
        "fingerprint": fingerprint(identity),
    }


def restore_position(
    state: Mapping[str, Any], seeds: Sequence[int], identity: str, owner: str
) -> Position:
    """Return the position that ``state`` holds, if it was saved by a pipeline like this one.

    Args:
        state: What `save_position` returned, perhaps by way of a JSON file.
        seeds: As for `save_position`.
        identity: As for `save_position`.
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
    for key in ("epoch", "delivered"):
        number = state.get(key)
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise refuse(f"[{key!r}] must be a whole number >= 0", number)
    if state.get("fingerprint") != fingerprint(identity):
        raise refuse(
            f"['fingerprint'] must be {fingerprint(identity)!r} (it was saved by a pipeline of "
            "other stages, or with other arguments)",
            state.get("fingerprint"),
        )
    if state.get("seed") != _as_json(seeds):
        raise refuse(f"['seed'] must be {_as_json(seeds)!r}", state.get("seed"))
    return Position(state["epoch"], state["delivered"])


def _as_json(seeds: Sequence[int]) -> int | list[int] | None:
    if not seeds:
        return None
    return seeds[0] if len(seeds) == 1 else list(seeds)
