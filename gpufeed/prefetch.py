"""Double buffering: a thread reads, collates and starts transfers while the consumer computes.

    reader ──> group ──> stage (collate, copy) ──> channel, `prefetch` deep ──> deliver ──> loop
    └────────────── producer's thread ────────────┘                             └ consumer's ──┘

Lifetime: the thread works on a `_Producer`, which knows nothing of the iterator that the user
holds, so dropping the iterator ends the thread. A feed that is handed out is the consumer's alone:
nothing here keeps it, or its slab could not be used again.

Whoever of the two threads is done last gives the slabs back: a producer that waits for a device, or
in the reader's own code, may end after its pass.

Backpressure: the channel holds ``prefetch`` steps, and ``max_bytes_ahead`` bounds their bytes too.
Feeds that the consumer keeps are never waited for (`gpufeed.device.slabs`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpufeed.collate import BatchPlan
from gpufeed.device.channel import Channel, EndOfChannel
from gpufeed.device.pool import StagingPool
from gpufeed.device.staging import Staged, Staging
from gpufeed.device.threads import ThreadGroup, close_iterator
from gpufeed.errors import FieldError, ReaderError, ReaderTimeout
from gpufeed.feed import Feed
from gpufeed.feed_options import FeedOptions
from gpufeed.grouping import Batch, group_batches
from gpufeed.observe.record import Recorder
from gpufeed.observe.stats import FeedStats
from gpufeed.places import Place
from gpufeed.reader.base import Reader
from gpufeed.reader.batch import batch_stats
from gpufeed.reader.opening import open_reader
from gpufeed.static import StaticSlot

__all__ = ["FeedReader"]

Feeds = Feed | list[Feed]
Group = Callable[[Iterable[Batch]], Iterator[list[Batch]]]
Planner = Callable[[Batch, Place], BatchPlan]
log = logging.getLogger("gpufeed")


class FeedReader(Reader[Feeds]):
    """A reader of feeds, made by `DataFeeder.decorate_reader` and `double_buffer`.

    Call it, or iterate it, for one pass. It is a context manager whose end closes what still runs.

    Args:
        reader: Yields mini-batches.
        plan: Sizes a mini-batch for a place.
        places: Where feeds go.
        grouping: The arguments of `group_batches`; None yields one feed a step, not a list.
        pool: The feeder's stagings.
        options: The rest.
        static: What every feed is copied into, one a place; none hands out each feed as it is.
    """

    def __init__(
        self,
        reader: Callable[[], Iterable[Batch]],
        plan: Planner,
        places: Sequence[Place],
        grouping: Mapping[str, Any] | None,
        pool: StagingPool,
        options: FeedOptions,
        static: Sequence[StaticSlot] = (),
    ) -> None:
        super().__init__(options.stage, reader, **(grouping or {}))
        self._reader = reader
        self._plan = plan
        self._places = places
        self._group = partial(group_batches, **grouping) if grouping else _one_by_one
        self._has_many_places = grouping is not None
        self._pool = pool
        self._options = options
        self._static = static
        self._is_static_taken = False
        self._stats = FeedStats()

    def open(self, epoch: int, skip: int) -> Generator[Feeds, None, None]:
        """Return an iterator over pass ``epoch`` without its first ``skip`` steps."""
        return self._static_steps(epoch, skip) if self._static else self._steps(epoch, skip)

    def _steps(self, epoch: int, skip: int) -> Generator[Feeds, None, None]:
        depth = self._options.prefetch or None
        record = Recorder(self._stats, self._options.trace)
        stagings = self._pool.borrow(self._places, depth, skip)
        part = _Parting(partial(self._pool.give_back, stagings, depth))
        producer = _Producer(
            open_batches=partial(open_reader, self._reader, epoch, skip * len(self._places)),
            group=self._group,
            plan=self._plan,
            stagings=stagings,
            budget=_Budget(self._options.max_bytes_ahead),
            record=record,
            number=skip,
            part=part,
        )
        steps = producer.steps() if depth is None else _run_ahead(producer, self._options)
        try:
            with closing(steps), self._progress_bar() as bar:
                now = time.perf_counter()
                ends = list(zip(stagings, self._options.streams, strict=True))
                while True:
                    for staging, stream in ends:
                        staging.require_no_capture(stream)
                        staging.recycle()
                    # A list that is emptied as it is handed out: this frame must not keep the feed.
                    feeds = self._hand_out(next(steps, None), producer, bar)
                    now = record.add("wait", now)
                    if not feeds:
                        for staging in stagings:
                            staging.finish()
                        return
                    yield feeds.pop()
                    now = record.add("compute", now)
        finally:
            for staging in stagings:
                self._log_untold(staging)
                staging.recycle()
            part()
            record.write()

    def _log_untold(self, staging: Staging) -> None:
        error = staging.untold()
        if error is not None:
            what = self._options.stage, error, *error.__notes__
            log.error("%s: the pass was left before this was raised: %s (%s)", *what)

    def _static_steps(self, epoch: int, skip: int) -> Generator[Feeds, None, None]:
        """Keep other passes from the static feeds, which are what this one hands out."""
        if self._is_static_taken:
            raise ReaderError(
                f"{self._options.stage}: static feeds serve one pass at a time; close the other one"
            )
        self._is_static_taken = True
        try:
            yield from self._steps(epoch, skip)
        finally:
            self._is_static_taken = False

    def num_taken(self, num: int) -> int | None:
        """Return how many mini-batches ``num`` steps are made of."""
        return num * len(self._places)

    def _hand_out(self, step: _Step | None, producer: _Producer, bar: Any) -> list[Feeds]:
        if step is None:
            return []
        producer.budget.release(step.nbytes)
        ways = zip(producer.stagings, step.staged, self._options.streams, strict=False)
        try:
            feeds = [staging.deliver(staged, stream) for staging, staged, stream in ways]
        finally:
            step.staged.clear()  # or the traceback of a fault would keep what was not delivered
        if self._static:
            feeds = [
                slot.update(feed, staging.consumers(stream))
                for slot, feed, staging, stream in zip(
                    self._static, feeds, producer.stagings, self._options.streams, strict=False
                )
            ]
        self._stats.num_steps += 1
        self._stats.num_samples += step.num_samples
        self._stats.nbytes += step.nbytes
        if bar is not None:
            bar.update(step.num_samples)
        return [feeds if self._has_many_places else feeds[0]]

    def _progress_bar(self) -> Any:
        if not self._options.progress:
            return nullcontext()
        from tqdm import tqdm

        class Bar(tqdm):  # type: ignore[misc]
            monitor_interval = 0  # no thread of tqdm's own, which would outlive the pass
            _lock = threading.RLock()  # not tqdm's, which leaves a semaphore in shared memory

        return Bar(unit=" samples", unit_scale=True, dynamic_ncols=True)

    def stats(self) -> FeedStats:
        """Return a copy of what was measured so far, over all passes."""
        return replace(
            self._stats,
            num_held=self._pool.num_held,
            num_slabs=self._pool.num_slabs,
            slab_nbytes=self._pool.nbytes,
            pinned_nbytes=self._pool.pinned_nbytes,
            leased_nbytes=self._pool.leased_nbytes,
            num_skipped=self.skipped()["count"],
            batches=batch_stats(self),
        )


def _one_by_one(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    for batch in batches:
        yield [batch]


@dataclass(frozen=True)
class _Step:
    """One step's feeds, on their way."""

    staged: list[Staged[Feed]]
    num_samples: int
    nbytes: int


class _Budget:
    """Bounds the bytes that are produced and not yet delivered; one step may always pass.

    Attributes:
        blocked_s: Seconds `reserve` has waited.
    """

    def __init__(self, max_nbytes: int | None) -> None:
        self.blocked_s = 0.0
        self._max_nbytes = max_nbytes
        self._nbytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def reserve(self, nbytes: int) -> None:
        """Wait until ``nbytes`` more may be produced, or until `close`."""
        if self._max_nbytes is None:
            return
        with self._changed:
            most = max(0, self._max_nbytes - nbytes)
            since_s = time.perf_counter()
            self._changed.wait_for(lambda: self._is_closed or self._nbytes <= most)
            self.blocked_s += time.perf_counter() - since_s
            self._nbytes += nbytes

    def release(self, nbytes: int) -> None:
        """Say that ``nbytes`` were delivered."""
        if self._max_nbytes is None:
            return
        with self._changed:
            self._nbytes -= nbytes
            self._changed.notify_all()

    def close(self) -> None:
        """Wake the producer, which goes on to find its channel closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class _Parting:
    """Does something once both the producer and the consumer have called it."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._num_left = 2
        self._lock = threading.RLock()  # a finalizer that ends a pass may run inside it

    def __call__(self) -> None:
        with self._lock:
            self._num_left -= 1
            is_last = self._num_left == 0
        if is_last:
            self._then()


@dataclass
class _Producer:
    """Reads, collates and starts transfers; runs on a thread of its own, or in the consumer's.

    Attributes:
        number: Of the next step in its pass.
        part: Called at its end.
    """

    open_batches: Callable[[], Iterator[Batch]]
    group: Group
    plan: Planner
    stagings: list[Staging]
    budget: _Budget
    record: Recorder
    number: int
    part: _Parting

    def open(self) -> Iterator[_Step]:
        """Return `steps`, for the calling thread, which does nothing else."""
        for staging in self.stagings:
            staging.attach_thread()
        return self.steps()

    def steps(self) -> Generator[_Step, None, None]:
        """Yield one step after the other, until the reader ends."""
        batches = groups = None
        now = time.perf_counter()
        try:
            batches = self.open_batches()
            groups = self.group(batches)
            for group in groups:
                now = self.record.add("read", now)
                blocked_s = self._blocked_s()
                try:
                    step = [self._stage(group)]
                except FieldError as error:
                    error.add_note(f"in step {self.number} of this pass")
                    raise
                blocked_s = self._blocked_s() - blocked_s
                self.record.stats.blocked_s += blocked_s
                now = self.record.add("stage", now, minus_s=blocked_s)
                self.number += 1
                yield step.pop()
                now = self.record.add("blocked", now)
        finally:
            with ExitStack() as ending:  # from the last one up, whichever of them fails
                ending.callback(self.part)
                for staging in self.stagings:
                    ending.callback(staging.drain)
                ending.callback(close_iterator, batches)
                ending.callback(close_iterator, groups)

    def _stage(self, group: list[Batch]) -> _Step:
        plans = [
            self.plan(batch, staging.place)
            for batch, staging in zip(group, self.stagings, strict=False)
        ]
        nbytes = sum(plan.nbytes for plan in plans)
        self.budget.reserve(nbytes)
        staged = [staging.stage(plan) for staging, plan in zip(self.stagings, plans, strict=False)]
        return _Step(staged, sum(plan.num_samples for plan in plans), nbytes)

    def _blocked_s(self) -> float:
        return self.budget.blocked_s + sum(staging.blocked_s for staging in self.stagings)

    def busy_with(self) -> str | None:
        """Return what `close` cannot wake the thread from; None if that is the user's own code."""
        if any(staging.is_waiting_for_stream for staging in self.stagings):
            return "waits for a device to be done with a slab"
        return None

    def close(self) -> None:
        """Wake the thread that runs this, wherever it waits for the consumer."""
        self.budget.close()
        for staging in self.stagings:
            staging.close()


def _run_ahead(producer: _Producer, options: FeedOptions) -> Generator[_Step, None, None]:
    """Yield the producer's steps, made by a thread that is up to ``prefetch`` steps ahead."""
    channel: Channel[_Step] = Channel(options.prefetch, name=options.stage)
    with ThreadGroup(options.stage, channel, producer) as group:
        group.start("feed", producer.open, channel)
        try:
            while True:
                if channel.is_empty():
                    _wait(channel, group, producer, options)
                yield channel.get()
        except EndOfChannel:
            pass
        group.require_open()


def _wait(
    channel: Channel[_Step], group: ThreadGroup, producer: _Producer, options: FeedOptions
) -> None:
    """Wait for the next step; say where the producer is if that takes long.

    Raises:
        ReaderTimeout: Nothing came within ``timeout_s``.
    """
    warn_s, timeout_s = options.stall_warning_s, options.timeout_s
    if warn_s is not None and (timeout_s is None or warn_s < timeout_s):
        if channel.wait(warn_s):
            return
        log.warning(
            "%s: no feed for %g s, waiting for step %d of this pass in process %d: %s",
            *(options.stage, warn_s, producer.number, os.getpid(), group.stacks()),
        )
        timeout_s = None if timeout_s is None else timeout_s - warn_s
    if not channel.wait(timeout_s):
        raise ReaderTimeout(
            f"{options.stage}: no feed for {options.timeout_s:g} s, waiting for step "
            f"{producer.number} of this pass: {group.stacks()}"
        )
