"""Stages: what pipelines of readers are made of, and what each can be asked.

A *reader* is a zero-argument callable that returns a fresh iterable of samples; any function will
do. A `Stage` is one that can also start any pass at any sample, and that knows its sources. It has
no position of its own: the one `Reader` that the user calls counts what it delivers, and tells the
stages below it where to begin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from gpufeed.checks import require_callable
from gpufeed.device.threads import close_iterator
from gpufeed.errors import ReaderError
from gpufeed.reader.counters import Counter
from gpufeed.reader.position import Recipe
from gpufeed.reader.sharding import Shard, Worlds, num_taken_by
from gpufeed.reader.skipping import Skip, SkipLog, Skipped

__all__ = ["AnyReader", "Stage", "identity_of"]

T = TypeVar("T")

AnyReader = Callable[[], Iterable[T]]

_SEEDS = ("seed", "rng")  # the parameters that hold one
_NO_PART_OF_IDENTITY = {*_SEEDS, "shard"}


class Stage(ABC, Generic[T]):
    """What a `Reader` is to the stages above it.

    Attributes:
        name: As the user spells it.
        sources: The readers that this one reads.
        functions: Of the user; shown, but no part of the fingerprint.
        parameters: The arguments that decide which samples come in which order.
        division: What part of each pass this stage itself takes; None leaves that to its sources.
        worlds: What other numbers of ranks took of the pass before.
        left_out: What this stage has skipped in the pass that runs.

    The last two are set by the reader that the user calls, when it begins a pass.
    """

    division: Shard | None = None
    worlds: Worlds = ()

    def __init__(
        self,
        name: str,
        *sources: AnyReader[Any],
        functions: tuple[Callable[..., Any], ...] = (),
        **parameters: object,
    ) -> None:
        for function in functions:
            require_callable(f"{name}.function", function)
        for source in sources:
            require_callable(f"{name}.reader", source, "; for an iterable: lambda: iterable")
        self.name = name
        self.sources = sources
        self.functions = functions
        self.parameters: Mapping[str, object] = parameters
        self.left_out = Skipped()

    @abstractmethod
    def __call__(self) -> Iterator[T]:
        """Start a pass, as the user does."""

    @abstractmethod
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Return a fresh iterator over pass ``epoch`` without its first ``skip`` samples.

        It depends on nothing else but ``worlds`` where a stage divides passes, and changes nothing
        in this object that a user could see but what it counts.
        """

    def let_go(self) -> None:
        """End what this stage keeps from one pass for the next."""

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        """Return an iterator over samples ``skip``, ``skip + step``, ``skip + 2 * step``, ..."""
        samples = self.open(epoch, skip)
        try:
            yield from islice(samples, 0, None, step)
        finally:
            close_iterator(samples)

    def count(self) -> int | None:
        """Return how many samples every pass has; None where only reading them tells."""
        return None

    def num_taken(self, num: int) -> int | None:
        """Return how many samples of each source the first ``num`` of this one are made of.

        None where that is not a matter of arithmetic, or where others follow it in the source.
        """
        return None

    @property
    def is_columnar(self) -> bool:
        """Whether a source yields record batches, which count as one sample each until cut."""
        return any(source.is_columnar for source in self._below())

    def _below(self) -> list[Stage[Any]]:
        """Return the sources that are stages: of others nothing is known."""
        return [source for source in self.sources if isinstance(source, Stage)]

    def stages(self) -> Iterator[Stage[Any]]:
        """Yield this stage and all below it, each once."""
        found: set[int] = set()
        waiting: list[Stage[Any]] = [self]
        while waiting:
            stage = waiting.pop()
            if id(stage) not in found:
                found.add(id(stage))
                yield stage
                waiting += reversed(stage._below())

    def __repr__(self) -> str:
        parts = [_name_of(part) for part in (*self.functions, *self.sources)]
        parts += [f"{key}={value!r}" for key, value in self.parameters.items()]
        return f"{self.name}({', '.join(parts)})"

    def identity(self) -> str:
        """Return text that is equal for readers that yield the same samples in the same order.

        Stages that only change how fast samples come return the identity of their source. Seeds
        are left out: a state carries them, to be compared by value.
        """
        parts = [identity_of(source) for source in self.sources]
        for key, value in self.parameters.items():
            if key == "on_error":  # limits decide whether a pass fails, not what it yields
                parts.append("on_error='skip'")
            elif key not in _NO_PART_OF_IDENTITY:
                parts.append(f"{key}={value!r}")
        if self.division is not None and self.division.equal:
            parts.append("equal=True")
        return f"{self.name}({', '.join(parts)})"

    def unrepeatable(self) -> str | None:
        """Return why this stage cannot repeat its order, and the remedy; None if it can."""
        return None

    def recipe(self) -> Recipe:
        """Return what decides which samples come in which order, from here down."""
        seeds = (stage.parameters.get(key) for stage in self.stages() for key in _SEEDS)
        return Recipe(
            self.identity(), [seed for seed in seeds if isinstance(seed, int)], self.world_size()
        )

    def counters(self) -> tuple[Counter, ...]:
        """Return what this stage counts in a pass that `open` begins."""
        return (self.left_out,) if "on_error" in self.parameters else ()

    def start_skipping(self, policy: Skip) -> SkipLog:
        """Return the log of what this stage skips in a pass that `open` begins.

        Only for a stage that has ``on_error`` among its parameters.
        """
        return SkipLog(self.name, policy, self.left_out)

    def world_size(self) -> int:
        """Return how many ranks share a pass; 1 where nothing divides it."""
        own = 1 if self.division is None else self.division.num_shards
        return own * max((source.world_size() for source in self._below()), default=1)

    def ordinals(self) -> tuple[int, int]:
        """Return ``(first, step)``: sample ``k`` here is number ``first + k * step`` of all ranks'.

        That is ``(0, 1)`` for a pass that no `shard` divides.
        """
        below = self._below()
        first, step = below[0].ordinals() if below else (0, 1)
        if self.division is None:
            return first, step
        first += (num_taken_by(self.worlds) + self.division.index) * step
        return first, step * self.division.num_shards

    def dividing(self) -> Iterator[Stage[Any]]:
        """Yield the stages that divide passes, without what is below them."""
        if self.division is not None:
            yield self
            return
        for source in self._below():
            yield from source.dividing()

    def num_divided(self, delivered: int, world_size: int) -> int:
        """Return how many samples of the dividing stages ``delivered`` of this one are made of.

        Raises:
            ReaderError: A stage above them cannot tell how many it has taken.
        """
        if not delivered:
            return 0
        below = self._below()
        if self.division is not None and all(source.world_size() == 1 for source in below):
            return delivered
        taken = None if self.division is not None else self.num_taken(delivered)
        if taken is None or not below or len(below) < len(self.sources):
            raise ReaderError(
                f"load_state_dict of {self!r}: a state of {world_size} ranks needs {self.name} "
                "to tell how many samples each has taken, which it cannot; shard after it"
            )
        return max(source.num_divided(taken, world_size) for source in below)


def identity_of(reader: AnyReader[Any]) -> str:
    """Return `Stage.identity`, or for a plain function, of which nothing is known, a word."""
    return reader.identity() if isinstance(reader, Stage) else "reader"


def _name_of(part: object) -> str:
    if isinstance(part, Stage):
        return repr(part)
    return str(getattr(part, "__name__", None) or type(part).__name__)
