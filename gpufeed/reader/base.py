"""What every reader decorator returns: a reader that knows its position.

A `Reader` is a stage that the user calls: each call is a pass, of which it counts what is
delivered. Any other pass is begun by a stage above, with `open`, and leaves no trace here.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from gpufeed.checks import whole_number
from gpufeed.device.threads import ClosedEarly, close_within
from gpufeed.errors import ReaderError
from gpufeed.reader.opening import reading
from gpufeed.reader.position import Position, restore_position, save_position
from gpufeed.reader.sharding import add_world
from gpufeed.reader.skipping import NUM_ORDINALS, Skipped
from gpufeed.reader.stage import AnyReader, Stage

__all__ = ["Reader"]

T = TypeVar("T")


# For the passes of every reader: one in each would have to stay behind when a reader is pickled.
# Reentrant: the garbage collector may run a finalizer that starts a pass while it is held.
_passes_lock = threading.RLock()


class _Pass:
    """A pass that was started, as `Reader.close` sees it from any thread."""

    __slots__ = ("ended", "is_closed", "position")

    def __init__(self, position: Position) -> None:
        self.position = position
        self.is_closed = False  # from outside, while its consumer waits for a sample
        self.ended = threading.Event()


_Passes = WeakKeyDictionary[Generator[Any, None, None], _Pass]


class Reader(Stage[T]):
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

    def __init__(
        self,
        name: str,
        *sources: AnyReader[Any],
        functions: tuple[Callable[..., Any], ...] = (),
        **parameters: object,
    ) -> None:
        super().__init__(name, *sources, functions=functions, **parameters)
        self._position = Position()
        self._is_started = False
        self._skipped_before: Mapping[str, Any] | None = None  # as the loaded state has it
        self._passes: _Passes = WeakKeyDictionary()

    def __call__(self) -> Iterator[T]:
        """Start a pass: the one that was set or loaded, else the one after the last."""
        if self._is_started:
            self._position = Position(self._position.epoch + 1)
        self._is_started = True
        begun = _Pass(self._position)
        samples = self._deliver(begun)
        with _passes_lock:
            self._passes[samples] = begun
        return samples

    def __iter__(self) -> Iterator[T]:
        return self()

    def _deliver(self, begun: _Pass) -> Generator[T, None, None]:
        position = begun.position
        if position.is_over:
            return
        self._skipped_before = None
        for stage in self.stages():
            stage.left_out = Skipped()
            stage.worlds = ()
        for stage in self.dividing():
            stage.worlds = position.worlds
        try:
            with reading(self, position.epoch, position.delivered) as source:
                # No variable here: it would keep a sample that the consumer has dropped.
                yield from position.count(source)
        except ClosedEarly:
            if not begun.is_closed:
                raise
        else:
            position.is_over = True
        finally:
            begun.ended.set()

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last pass that was started, as a small JSON object.

        At the end of a pass it stands at that end: loaded, it gives an empty remainder of that
        epoch, without reading anything, and then the next epoch.

        Raises:
            ReaderError: A stage does not repeat its order, and which one.
        """
        self._require_repeatable("state_dict")
        return save_position(self._position, self.recipe(), self.skipped())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass begin where ``state`` was taken.

        On another number of ranks than it was taken on, these divide what is left, if every rank
        had received as many samples as the one that took it.

        Raises:
            ReaderError: ``state`` belongs to another pipeline, or none, or a stage of this one
                does not repeat its order, or cannot go on with another number of ranks.
        """
        self._require_repeatable("load_state_dict")
        recipe = self.recipe()
        position, world_size = restore_position(state, recipe, repr(self))
        if world_size != recipe.world_size:
            taken = self.num_divided(position.delivered, world_size)
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
        logs = [stage.left_out for stage in self.stages()]
        # Copies, since threads that read ahead may be adding to them.
        ordinals = [ordinal for log in reversed(logs) for ordinal in log.ordinals.copy()]
        return {"count": sum(log.count for log in logs), "ordinals": ordinals[-NUM_ORDINALS:]}

    def close(self) -> None:
        """End every pass that still runs, with its threads, and processes that wait for the next.

        The reader can be called again. Where another thread waits for a sample of a pass, the pass
        ends there, without one.

        Raises:
            ReaderError: Another thread is inside ``next`` of a pass that runs on no other thread
                and in no process, so that there is nothing to wake it from, and did not come out
                of it within a second.
        """
        with _passes_lock:
            passes = list(self._passes.items())
        is_busy = False
        for samples, begun in passes:
            if _close(samples):
                with _passes_lock:
                    self._passes.pop(samples, None)
                continue
            begun.is_closed = True
            begun.is_closed = close_within(samples, begun.ended) or _close(samples)
            is_busy |= not begun.is_closed
        if is_busy:
            raise ReaderError(
                f"close of {self!r}: another thread is taking a sample from it; close it there"
            )
        for stage in self.stages():
            stage.let_go()

    def __getstate__(self) -> dict[str, Any]:
        # Passes stay with this object; a copy in another process begins its own.
        return {key: value for key, value in self.__dict__.items() if key != "_passes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _passes=WeakKeyDictionary())

    def __enter__(self) -> Reader[T]:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

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
