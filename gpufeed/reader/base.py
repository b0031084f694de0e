"""What every reader decorator returns: a reader that knows its position.

A *reader* is a zero-argument callable that returns a fresh iterable of samples; any function will
do. A `Reader` is one that can also start at any epoch and sample. Stages are stateless: the one
reader that the user calls counts what it delivers, and tells its sources where to begin.

Lifetime: whoever opens an iterator closes it, in a ``finally``. So leaving a loop ends every stage
below at once, threads included, and nothing waits for the garbage collector.
"""

from __future__ import annotations

import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress, islice, repeat
from operator import length_hint
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from gpufeed.checks import samples_of, whole_number
from gpufeed.device.threads import ClosedEarly, close_iterator, close_within
from gpufeed.errors import ReaderError
from gpufeed.reader.counters import Counter
from gpufeed.reader.position import Position, Recipe, restore_position, save_position
from gpufeed.reader.sharding import Shard, Worlds, add_world, num_taken_by
from gpufeed.reader.skipping import NUM_ORDINALS, Skip, SkipLog, Skipped

__all__ = [
    "AnyReader",
    "Reader",
    "count_of",
    "counters_of",
    "counts_of",
    "drain",
    "identity_of",
    "open_every",
    "open_reader",
    "reading",
    "require_callable",
    "require_readers",
    "skipped_by_now",
]

T = TypeVar("T")

AnyReader = Callable[[], Iterable[T]]
_Passes = WeakKeyDictionary[Generator[Any, None, None], Position]

_SEEDS = ("seed", "rng")  # the parameters that hold one
_NO_PART_OF_IDENTITY = {*_SEEDS, "shard"}

# For the passes of every reader: one in each would have to stay behind when a reader is pickled.
# Reentrant: the garbage collector may run a finalizer that starts a pass while it is held.
_passes_lock = threading.RLock()


class Reader(ABC, Generic[T]):
    """A reader that can be resumed; what the decorators of this package return.

    Calling it (or ``iter``) starts a pass: the first is epoch 0, each further one the next.

    >>> from gpufeed.reader import firstn
    >>> reader = firstn(lambda: range(10), 3)
    >>> for sample in reader:
    ...     if sample == 1:
    ...         state = reader.state_dict()
    >>> again = firstn(lambda: range(10), 3)
    >>> again.load_state_dict(state)
    >>> list(again), list(again)
    ([2], [0, 1, 2])

    A subclass implements `open`, and passes what it is made of to ``super().__init__``. The other
    methods that it may implement make more possible: `count` skipping over sources unread,
    `num_taken` going on with another number of ranks.

    Args:
        name: Of the stage, as the user spells it.
        sources: The readers that this one reads.
        functions: Of the user; shown, but no part of the fingerprint.
        parameters: The arguments that decide which samples come in which order.

    Raises:
        TypeError: A source or function is not callable.
    """

    # What part of each pass this stage itself takes; None leaves that to its sources.
    division: Shard | None = None
    # And what other numbers of ranks took of the pass before: set by the reader that is called.
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
        self._position = Position()
        self._is_started = False
        self._skipped = Skipped()
        self._skipped_before: Mapping[str, Any] | None = None  # as the loaded state has it
        self._passes: _Passes = WeakKeyDictionary()

    @property
    def is_columnar(self) -> bool:
        """Whether a source yields record batches, which count as one sample each until cut."""
        return any(source.is_columnar for source in self.sources if isinstance(source, Reader))

    @abstractmethod
    def open(self, epoch: int, skip: int) -> Iterator[T]:
        """Return a fresh iterator over pass ``epoch`` without its first ``skip`` samples.

        It depends on nothing else but ``worlds`` where a stage divides passes, and changes nothing
        in this object that a user could see but what `skipped` reports.
        """

    def open_every(self, epoch: int, skip: int, step: int) -> Iterator[T]:
        """Return an iterator over samples ``skip``, ``skip + step``, ``skip + 2 * step``, ..."""
        return _open_every(self, epoch, skip, step)

    def count(self) -> int | None:
        """Return how many samples every pass has; None where only reading them tells."""
        return None

    def num_taken(self, num: int) -> int | None:
        """Return how many samples of each source the first ``num`` of this one are made of.

        None where that is not a matter of arithmetic, or where others follow it in the source.
        """
        return None

    def __call__(self) -> Iterator[T]:
        """Start a pass: the one that was set or loaded, else the one after the last."""
        if self._is_started:
            self._position = Position(self._position.epoch + 1)
        self._is_started = True
        samples = self._deliver(self._position)
        with _passes_lock:
            self._passes[samples] = self._position
        return samples

    def __iter__(self) -> Iterator[T]:
        return self()

    def _deliver(self, position: Position) -> Generator[T, None, None]:
        if position.is_over:
            return
        self._skipped_before = None
        for stage in self.stages():
            stage._skipped = Skipped()
            stage.worlds = ()
        for stage in self._dividing():
            stage.worlds = position.worlds
        try:
            with reading(self, position.epoch, position.delivered) as source:
                # No variable here: it would keep a sample that the consumer has dropped.
                yield from position.count(source)
        except ClosedEarly:
            if not position.is_closed:
                raise
        else:
            position.is_over = True

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last pass that was started, as a small JSON object.

        At the end of a pass it stands at that end: loaded, it gives an empty remainder of that
        epoch, without reading anything, and then the next epoch.

        Raises:
            ReaderError: A stage does not repeat its order, and which one.
        """
        self._require_repeatable("state_dict")
        return save_position(self._position, self._recipe(), self.skipped())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass begin where ``state`` was taken.

        On another number of ranks than it was taken on, these divide what is left, if every rank
        had received as many samples as the one that took it.

        Raises:
            ReaderError: ``state`` belongs to another pipeline, or none, or a stage of this one
                does not repeat its order, or cannot go on with another number of ranks.
        """
        self._require_repeatable("load_state_dict")
        recipe = self._recipe()
        position, world_size = restore_position(state, recipe, repr(self))
        if world_size != recipe.world_size:
            taken = self._num_divided(position.delivered, world_size)
            worlds = add_world(position.worlds, world_size, taken)
            position = Position(position.epoch, 0, worlds, is_over=position.is_over)
        self._position = position
        self._is_started = False
        self._skipped_before = state.get("skipped")

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be number ``epoch``.

        A position that was loaded in this very epoch is kept, so that a training loop may set
        every epoch it enters, the resumed one too.

        Raises:
            FieldError: ``epoch`` is not a whole number >= 0.
        """
        epoch = whole_number(f"{self.name}.set_epoch.epoch", epoch, minimum=0)
        if self._is_started or epoch != self._position.epoch:
            self._position = Position(epoch)
            self._is_started = False
            self._skipped_before = None

    def skipped(self) -> dict[str, Any]:
        """Return how many samples the stages of this pipeline skipped in its last pass.

        Samples that threads have read ahead and that are not yet delivered are among them; what a
        process has read ahead is not.

        Returns:
            ``{"count": ..., "ordinals": [...]}``, the ordinals of the last 16. An ordinal is the
            number of a sample among those that the stage that skipped it has read.
        """
        if self._skipped_before is not None:
            return dict(self._skipped_before)
        logs = [stage._skipped for stage in self.stages()]
        # Copies, since threads that read ahead may be adding to them.
        ordinals = [ordinal for log in reversed(logs) for ordinal in log.ordinals.copy()]
        return {"count": sum(log.count for log in logs), "ordinals": ordinals[-NUM_ORDINALS:]}

    def close(self) -> None:
        """End every pass that still runs, with its threads; the reader can be called again.

        Where another thread waits for a sample of a pass, the pass ends there, without one.

        Raises:
            ReaderError: Another thread is inside ``next`` of a pass that runs on no other thread
                and in no process, so that there is nothing to wake it from.
        """
        with _passes_lock:
            passes = list(self._passes.items())
        for samples, position in passes:
            if _close(samples):
                continue
            position.is_closed = True
            if not close_within(samples):
                raise ReaderError(
                    f"close of {self!r}: another thread is taking a sample from it; close it there"
                )

    def __getstate__(self) -> dict[str, Any]:
        # Passes stay with this object; a copy in another process begins its own.
        return {key: value for key, value in self.__dict__.items() if key != "_passes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _passes=WeakKeyDictionary())

    def __enter__(self) -> Reader[T]:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

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

    def stages(self) -> Iterator[Reader[Any]]:
        """Yield this reader and every `Reader` below it, each once."""
        found: set[int] = set()
        waiting: list[Reader[Any]] = [self]
        while waiting:
            stage = waiting.pop()
            if id(stage) not in found:
                found.add(id(stage))
                yield stage
                waiting += (each for each in reversed(stage.sources) if isinstance(each, Reader))

    def ordinals(self) -> tuple[int, int]:
        """Return ``(first, step)``: sample ``k`` here is number ``first + k * step`` of all ranks'.

        That is ``(0, 1)`` for a pass that no `shard` divides.
        """
        readers = [source for source in self.sources if isinstance(source, Reader)]
        first, step = readers[0].ordinals() if readers else (0, 1)
        if self.division is None:
            return first, step
        first += (num_taken_by(self.worlds) + self.division.index) * step
        return first, step * self.division.num_shards

    def counters(self) -> tuple[Counter, ...]:
        """Return what this stage counts in a pass that `open` begins."""
        return (self._skipped,) if "on_error" in self.parameters else ()

    def start_skipping(self, policy: Skip) -> SkipLog:
        """Return the log of what this stage skips in a pass that `open` begins.

        Only for a stage that has ``on_error`` among its parameters.
        """
        return SkipLog(self.name, policy, self._skipped)

    def world_size(self) -> int:
        """Return how many ranks share a pass; 1 where nothing divides it."""
        own = 1 if self.division is None else self.division.num_shards
        return own * max(
            (source.world_size() for source in self.sources if isinstance(source, Reader)),
            default=1,
        )

    def _recipe(self) -> Recipe:
        seeds = (stage.parameters.get(key) for stage in self.stages() for key in _SEEDS)
        return Recipe(
            self.identity(), [seed for seed in seeds if isinstance(seed, int)], self.world_size()
        )

    def _dividing(self) -> Iterator[Reader[Any]]:
        """Yield the stages that divide passes, without what is below them."""
        if self.division is not None:
            yield self
            return
        for source in self.sources:
            if isinstance(source, Reader):
                yield from source._dividing()

    def _num_divided(self, delivered: int, world_size: int) -> int:
        """Return how many samples of the dividing stages ``delivered`` of this one are made of."""
        if not delivered:
            return 0
        if self.division is not None and all(
            source.world_size() == 1 for source in self.sources if isinstance(source, Reader)
        ):
            return delivered
        taken = None if self.division is not None else self.num_taken(delivered)
        sources = [source for source in self.sources if isinstance(source, Reader)]
        if taken is None or not sources or len(sources) < len(self.sources):
            raise ReaderError(
                f"load_state_dict of {self!r}: a state of {world_size} ranks needs {self.name} "
                "to tell how many samples each has taken, which it cannot; shard after it"
            )
        return max(source._num_divided(taken, world_size) for source in sources)

    def _require_repeatable(self, method: str) -> None:
        for stage in self.stages():
            reason = stage.unrepeatable()
            if reason is not None:
                raise ReaderError(f"{method} of {self!r}: {stage.name} {reason}")


def _close(samples: Generator[Any, None, None]) -> bool:
    """Close a pass; False if it is being advanced."""
    if inspect.getgeneratorstate(samples) != inspect.GEN_RUNNING:
        try:
            samples.close()
        except ValueError as error:
            if str(error) != "generator already executing":  # since a moment ago
                raise
        else:
            return True
    return False


def counters_of(reader: AnyReader[Any]) -> list[Counter]:
    """Return what the stages of any reader count, in an order that is the same for its copies."""
    stages = reader.stages() if isinstance(reader, Reader) else ()
    return [counter for stage in stages for counter in stage.counters()]


def skipped_by_now(reader: AnyReader[Any]) -> Callable[[], None]:
    """Return what takes the counts of skipped samples of any reader back to what they are now.

    For who opens it again in the same pass, once nothing reads what was opened before.
    """
    stages = reader.stages() if isinstance(reader, Reader) else ()
    counts = [(stage._skipped, stage._skipped.copy()) for stage in stages]

    def go_back() -> None:
        for skipped, before in counts:
            skipped.go_back_to(before)

    return go_back


def identity_of(reader: AnyReader[Any]) -> str:
    """Return `Reader.identity`, or for a plain function, of which nothing is known, a word."""
    return reader.identity() if isinstance(reader, Reader) else "reader"


def open_reader(reader: AnyReader[T], epoch: int, skip: int) -> Iterator[T]:
    """Return a fresh iterator over pass ``epoch`` of any reader, without ``skip`` samples.

    A `Reader` does it its own way; a plain function is called, and ``skip`` samples are drained.

    >>> list(open_reader(lambda: "abcd", epoch=0, skip=2))
    ['c', 'd']
    """
    if isinstance(reader, Reader):
        return reader.open(epoch, skip)
    iterator = samples_of(reader)
    try:
        # Not `drain`: nobody asks how many there were, and counting takes a tenth longer.
        deque(islice(iterator, min(skip, sys.maxsize)), maxlen=0)
    except BaseException:
        close_iterator(iterator)
        raise
    return iterator


def open_every(reader: AnyReader[T], epoch: int, skip: int, step: int) -> Iterator[T]:
    """Return an iterator over every ``step``-th sample of any reader, from number ``skip`` on.

    >>> list(open_every(lambda: "abcdefg", epoch=0, skip=1, step=3))
    ['b', 'e']
    """
    if step == 1:
        return open_reader(reader, epoch, skip)
    if isinstance(reader, Reader):
        return reader.open_every(epoch, skip, step)
    return _open_every(reader, epoch, skip, step)


def _open_every(reader: AnyReader[T], epoch: int, skip: int, step: int) -> Iterator[T]:
    with reading(reader, epoch, skip) as samples:
        yield from islice(samples, 0, None, step)


def count_of(reader: AnyReader[Any]) -> int | None:
    """Return `Reader.count` of any reader; of a plain function nothing is known."""
    return reader.count() if isinstance(reader, Reader) else None


def counts_of(readers: Iterable[AnyReader[Any]]) -> list[int] | None:
    """Return the count of each reader; None if that of any is not known."""
    counts = []
    for reader in readers:
        count = count_of(reader)
        if count is None:
            return None
        counts.append(count)
    return counts


@contextmanager
def reading(reader: AnyReader[T], epoch: int, skip: int) -> Iterator[Iterator[T]]:
    """Open ``reader`` for the length of a ``with``, and close its iterator after it."""
    iterator = open_reader(reader, epoch, skip)
    try:
        yield iterator
    finally:
        close_iterator(iterator)


def drain(iterator: Iterator[object], num: int) -> int:
    """Drop the next ``num`` samples; return how many there were.

    >>> drain(iter("abc"), 5)
    3
    """
    num = min(num, sys.maxsize)
    # `compress` takes one of these for each sample, so that counting costs hardly anything.
    left = repeat(True, num)
    deque(compress(islice(iterator, num), left), maxlen=0)
    return num - length_hint(left)


def require_callable(name: str, given: object, remedy: str = "") -> None:
    """Refuse what is not callable, as the argument that it was given for."""
    if not callable(given):
        raise TypeError(f"{name} must be callable, got {given!r}{remedy}")


def require_readers(owner: str, readers: Sequence[object]) -> None:
    """Refuse to join none."""
    if not readers:
        raise TypeError(f"{owner}.readers must be at least one reader, got none")


def _name_of(part: object) -> str:
    if isinstance(part, Reader):
        return repr(part)
    return str(getattr(part, "__name__", None) or type(part).__name__)
