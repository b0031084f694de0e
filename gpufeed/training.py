"""`train`: the loop over passes and steps that the design of Python readers ends in.

    reader ──> batch ──> DataFeeder.decorate_reader ──> step(feed), pass after pass
                                                         └──> events, for whoever listens

Everything but the loop lives elsewhere: the feeder reads and sends ahead, its reader knows the
position that a state saves, and what is learned is the user's ``step``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.device import cuda_places, num_cuda_devices, num_virtual_devices
from gpufeed.device.threads import close_iterator
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.grouping import Remainder
from gpufeed.observe.stats import FeedStats
from gpufeed.places import CPUPlace, Place, PlaceLike
from gpufeed.prefetch import FeedReader
from gpufeed.reader.base import Reader
from gpufeed.reader.batch import Batch, BatchSize
from gpufeed.reader.stage import AnyReader
from gpufeed.variables import Program, Variable

__all__ = [
    "BeginIteration",
    "BeginPass",
    "EndIteration",
    "EndPass",
    "Event",
    "present_places",
    "train",
]

# Stages whose items are those of the reader below them: a batch stays a batch.
_PASSING_ON = {
    *("buffered", "cache", "filter", "firstn", "isolate", "repeat"),
    *("replay", "shard", "shuffle", "skip", "take_while"),
}


@dataclass(frozen=True)
class BeginPass:
    """A pass begins.

    >>> BeginPass(0)
    BeginPass(pass_id=0)

    Attributes:
        pass_id: Its number, from 0.
    """

    pass_id: int


@dataclass(frozen=True)
class BeginIteration:
    """A feed is there; ``step`` is called next.

    >>> BeginIteration(0, batch_id=3)
    BeginIteration(pass_id=0, batch_id=3)

    Attributes:
        pass_id: Number of the pass.
        batch_id: Number of the step in its pass, from 0.
    """

    pass_id: int
    batch_id: int


@dataclass(frozen=True)
class EndIteration:
    """``step`` has returned.

    >>> event = EndIteration(0, 3, {"cost": 0.5, "error": 0.1}, state_dict=dict)
    >>> event.cost, event.metrics["error"]
    (0.5, 0.1)

    Attributes:
        pass_id: Number of the pass.
        batch_id: Number of the step in its pass, from 0.
        result: What ``step`` returned.
        state_dict: Call it, in the handler, for where training stands: a small JSON object that
            ``train(..., state=...)`` goes on from. It raises a `ReaderError` if a stage of the
            reader does not repeat its order, and names it.
    """

    pass_id: int
    batch_id: int
    result: Any
    state_dict: Callable[[], dict[str, Any]] = field(repr=False, compare=False)

    @property
    def cost(self) -> Any:
        """What ``step`` returned; of a mapping, its entry ``"cost"``, None where there is none."""
        return self.result.get("cost") if isinstance(self.result, Mapping) else self.result

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The mapping that ``step`` returned; an empty one if it returned something else."""
        return self.result if isinstance(self.result, Mapping) else {}


@dataclass(frozen=True)
class EndPass:
    """A pass has ended.

    >>> EndPass(0, state_dict=dict)
    EndPass(pass_id=0)

    Attributes:
        pass_id: Its number, from 0.
        state_dict: As that of `EndIteration`; it stands at the beginning of the next pass.
    """

    pass_id: int
    state_dict: Callable[[], dict[str, Any]] = field(repr=False, compare=False)


Event = BeginPass | BeginIteration | EndIteration | EndPass


def train(
    reader: AnyReader[Any],
    mapping: Mapping[str, int] | None,
    batch_size: BatchSize | None,
    total_pass: int,
    *,
    step: Callable[[Any], Any],
    feed_list: Sequence[Variable | str] | None = None,
    places: PlaceLike | Sequence[PlaceLike] | None = None,
    event_handler: Callable[[Event], object] | None = None,
    progress: bool = True,
    state: Mapping[str, Any] | None = None,
    program: Program | None = None,
    strict: bool = True,
    remainder: Remainder | None = "split",
    **options: Any,
) -> FeedStats:
    """Call ``step`` with the feed of every mini-batch of ``total_pass`` passes.

    >>> from gpufeed.variables import data, program_guard
    >>> samples = lambda: [([0.5], 1, "unused"), ([1.5], 0, "unused"), ([2.5], 1, "unused")]
    >>> with program_guard(Program()):
    ...     fields = [data("x", [1]), data("label", [1], "int64"), data("target", [1], "int64")]
    ...     stats = train(
    ...         samples, {"x": 0, "label": 1, "target": 1}, batch_size=2, total_pass=1,
    ...         step=lambda feed: print(feed["x"].to_list(), feed["target"].to_list()),
    ...         feed_list=fields, places="cpu",
    ...     )
    [[0.5], [1.5]] [[1], [0]]
    [[2.5]] [[1]]
    >>> stats.num_samples
    3

    An exception of ``reader``, ``step`` or ``event_handler`` ends the training and is raised here;
    so does Ctrl-C, and threads end with it. A reader that never ends, for learning online, is one
    pass: limit it with `gpufeed.reader.firstn`, or save ``event.state_dict()`` as you go.

    Args:
        reader: Of samples, which are cut into batches here, or of batches.
        mapping: From the name of a variable to the item of a sample that fills it. Items may be
            left out, and serve several variables. None takes all of them by position.
        batch_size: Samples a batch, which each of several places gets one of; or a function as for
            `gpufeed.batch`. What `gpufeed.batch` returned is recognised, also below `buffered`,
            `shuffle` and the like: then this is its size, or None. Of any other reader None says
            that it yields batches of its own.
        total_pass: Passes, those before ``state`` included.
        step: Called as ``step(feed)``; where ``places`` is a list, as ``step(feeds)``, a feed each.
        feed_list: Variables, or names of variables of ``program``; None is those of ``mapping``.
        places: Where feeds go: one place, or a list of them. None is the first CUDA (or virtual)
            device, or the host where there is none.
        event_handler: Called with `BeginPass`, `BeginIteration`, `EndIteration` and `EndPass`.
        progress: Show a bar, a new one each pass, if standard error is a terminal.
        state: Of an `EndIteration` or `EndPass`: training goes on with the very next batch. What
            ``step`` has learned is the user's to save and restore.
        program: That the variables belong to; None is the default main program.
        strict: As for `DataFeeder`.
        remainder: What becomes of the last batches of a pass that are fewer than the places: as
            for `DataFeeder.decorate_reader`, but nothing is left out unless it is asked for. None
            leaves it to ``drop_last``.
        options: The others of `DataFeeder.decorate_reader`: ``prefetch``, ``trace``, ...

    Returns:
        What was measured: ``stats.bottleneck`` says it in one sentence.

    Raises:
        FieldError: An argument breaks its rule, ``batch_size`` is not that of ``reader``, or a
            sample does not fit.
        PlaceError: A place is not there.
        ReaderError: ``state`` is that of another pipeline, or of one that cannot be repeated.

    Source: ``paddle.train`` of PaddlePaddle's design of readers, which also passed a batch reader
    and its batch size; the events are those of ``paddle.v2.event``.
    """
    for name, function in (("step", step), ("event_handler", event_handler)):
        if not callable(function) and (function is not None or name == "step"):
            raise TypeError(f"train.{name} must be callable, got {function!r}")
    if "drop_last" in options and remainder is not None:
        raise FieldError(
            f"train.remainder must be None for drop_last to have a meaning, got {remainder!r}"
        )
    total_pass = whole_number("train.total_pass", total_pass, minimum=1)
    where = present_places()[0] if places is None else places
    feeder = DataFeeder(
        _variables_of(mapping) if feed_list is None else feed_list,
        where,
        program,
        feeding=mapping,
        strict=strict,
    )
    feeds = feeder.decorate_reader(
        _batches_of(reader, batch_size),
        multi_devices=not isinstance(where, (Place, str)),
        num_places=None,
        remainder=remainder,
        progress=progress and sys.stderr is not None and sys.stderr.isatty(),
        **options,
    )
    with feeds:
        _run(feeds, state, total_pass, step, event_handler)
    return feeds.stats()


def _run(
    feeds: FeedReader,
    state: Mapping[str, Any] | None,
    total_pass: int,
    step: Callable[[Any], Any],
    tell: Callable[[Event], object] | None,
) -> None:
    first_pass = first_batch = 0
    if state is not None:
        feeds.load_state_dict(state)
        now = feeds.state_dict()  # not `state`: another number of ranks counts from 0 again
        first_pass, first_batch = now["epoch"], now["delivered"]
    for pass_id in range(first_pass, total_pass):
        if tell:
            tell(BeginPass(pass_id))
        _run_pass(feeds, pass_id, first_batch, step, tell)
        first_batch = 0
        feeds.set_epoch(pass_id + 1)  # where the state of this pass's end has to stand
        if tell:
            tell(EndPass(pass_id, feeds.state_dict))


def _run_pass(
    feeds: FeedReader,
    pass_id: int,
    first_batch: int,
    step: Callable[[Any], Any],
    tell: Callable[[Event], object] | None,
) -> None:
    for batch_id, feed in enumerate(feeds(), first_batch):
        if tell is None:
            step(feed)
            continue
        tell(BeginIteration(pass_id, batch_id))
        result = step(feed)
        tell(EndIteration(pass_id, batch_id, result, feeds.state_dict))


def present_places() -> list[Place]:
    """Return a place for every CUDA (or virtual) device, or the host where there is none.

    >>> from gpufeed.device import virtual_devices
    >>> with virtual_devices(2):
    ...     present_places()
    [CUDAPlace(device_id=0), CUDAPlace(device_id=1)]
    """
    return cuda_places() if num_virtual_devices() or num_cuda_devices() else [CPUPlace()]


def _variables_of(mapping: Mapping[str, int] | None) -> list[str]:
    if not isinstance(mapping, Mapping):
        raise FieldError(
            f"train.mapping must map names of variables to items, got {mapping!r}; "
            "to take all items by position, pass feed_list="
        )
    return list(mapping)


def _batches_of(
    reader: AnyReader[Any], batch_size: BatchSize | None
) -> Callable[[], Iterable[Any]]:
    """Return a reader of batches: ``reader`` itself, or its samples cut into batches."""
    made = _batch_below(reader)
    if made is None:
        return reader if batch_size is None else _BatchOfSamples(reader, batch_size)
    if batch_size is not None and batch_size != made.batch_size:
        raise FieldError(
            f"train.batch_size must be {made.batch_size!r}, as that of its reader, or None, "
            f"got {batch_size!r}"
        )
    return reader


def _batch_below(reader: AnyReader[Any]) -> Batch[Any] | None:
    """Return the `gpufeed.batch` that makes what ``reader`` yields; None if none does."""
    while isinstance(reader, Reader) and not isinstance(reader, Batch):
        if reader.name not in _PASSING_ON:
            return None
        reader = reader.sources[0]
    return reader if isinstance(reader, Batch) else None


class _BatchOfSamples(Batch[Any]):
    """What `gpufeed.batch` makes, unless it would make batches of batches.

    These would be fed without complaint: ``mapping`` takes items out of a batch as out of a sample,
    and so one sample of each batch. By convention samples are tuples, and batches lists of them.
    """

    def open(self, epoch: int, skip: int) -> Iterator[Any]:
        batches = super().open(epoch, skip)
        try:
            for samples in batches:
                first = samples[0] if isinstance(samples, list) else None
                if isinstance(first, list) and first and all(map(_is_tuple, first)):
                    raise FieldError(
                        "train.batch_size must be None for a reader of batches, which are lists "
                        "of tuples (samples are tuples)"
                    )
                yield samples
                del samples, first  # while the next ones are read, these are the consumer's alone
        finally:
            close_iterator(batches)


def _is_tuple(item: object) -> bool:
    return isinstance(item, tuple)
