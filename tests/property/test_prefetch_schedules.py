"""Any consumer on any schedule sees the bytes that were read, and leaves nothing behind."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from support.elsewhere import collating_here
from support.feeding import LateReader, assert_holds, batch, make_feeder, make_reader

from gpufeed.device.virtual import (
    VirtualBackend,
    VirtualStream,
    virtual_devices,
    virtual_stream,
)

NUM_DEVICES = 3


@dataclass(frozen=True)
class Step:
    """What the consumer does with one step's feeds.

    Attributes:
        late: Read them late on the current stream (now, on the host, where there is none).
        side: Read them on another stream too, which is recorded.
        keep: How many steps to keep them; 0 drops them at once.
        release: Which of the kept ones to drop now, before their time; None drops none.
        work: How much the current streams have to do first, in pieces of a millisecond on average.
    """

    work: int
    late: bool
    side: bool
    keep: int
    release: int | None


@dataclass(frozen=True)
class Schedule:
    places: tuple[str, ...]
    is_list: bool
    prefetch: int
    sizes: tuple[int, ...]
    steps: tuple[Step, ...]
    on_host: bool
    num_passes: int
    exit_at: int | None
    max_bytes_ahead: int | None
    isolate: bool
    seed: int


# Weighted: most steps drop their feeds and read them late, which is where a missing wait is seen.
@st.composite
def schedules(draw: DrawFn) -> Schedule:
    device = st.sampled_from([f"cuda:{n}" for n in range(NUM_DEVICES)])
    places = tuple(draw(st.lists(device, min_size=1, max_size=3)))
    num_steps = draw(st.sampled_from([12, 8, 5, 2, 1, 0]))
    num_batches = num_steps * len(places)
    step = st.builds(
        Step,
        work=st.sampled_from([0, 0, 5, 25]),
        late=st.sampled_from([True, True, True, False]),
        side=st.sampled_from([False, False, False, True]),
        keep=st.sampled_from([0, 0, 0, 0, 1, 3]),
        release=st.sampled_from([None, None, None, 0, 2]),
    )
    return Schedule(
        places=places,
        is_list=len(places) > 1 or draw(st.booleans()),
        prefetch=draw(st.integers(0, 4)),
        # From nothing to beyond the smallest slab, so that slabs are outgrown on the way.
        sizes=tuple(draw(st.sampled_from([0, 1, 3, 40, 200])) for _ in range(num_batches)),
        steps=tuple(draw(step) for _ in range(num_steps)),
        on_host=draw(st.sampled_from([False, False, False, True])),
        num_passes=draw(st.integers(1, 2)),
        exit_at=draw(st.sampled_from([None, None, 0, 3, 7])),
        max_bytes_ahead=draw(st.sampled_from([None, 1, 10_000])),
        isolate=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )


class Consumer:
    """Goes through the feeds of one pass as its schedule says, and checks all of them."""

    def __init__(self, schedule: Schedule, stack: ExitStack) -> None:
        self._schedule = schedule
        self._current = {
            place: LateReader(stack.enter_context(virtual_stream(place)))
            for place in sorted(set(schedule.places))
            if not schedule.on_host
        }
        self._side = LateReader(VirtualStream())
        stack.callback(self._side.stream.close)
        self._kept: list[tuple[int, list, list]] = []

    def take(self, number: int, feeds: list, samples: list) -> None:
        step = self._schedule.steps[number]
        for reader in self._current.values():
            for _ in range(step.work):
                reader.stream.call(lambda: None)
        for place, feed, rows in zip(self._schedule.places, feeds, samples, strict=True):
            reader = self._current.get(place)
            if reader is None:
                assert_holds(feed, rows)
            elif step.late:
                reader.read(feed, rows, number)
            if step.side:
                if reader is not None:
                    self._side.stream.wait(reader.stream.record())
                for tensor in feed.values():
                    tensor.record_stream(self._side.stream)
                self._side.read(feed, rows, number)
        if step.keep:
            self._kept.append((number + step.keep, feeds, samples))
        if step.release is not None and step.release < len(self._kept):
            self._check(*self._kept.pop(step.release)[1:])
        for due in [kept for kept in self._kept if kept[0] <= number]:
            self._kept.remove(due)
            self._check(*due[1:])

    def finish(self) -> None:
        for _, feeds, samples in self._kept:
            self._check(feeds, samples)
        self._side.check()
        for reader in self._current.values():
            reader.check()

    def _check(self, feeds: list, samples: list) -> None:
        for reader in self._current.values():
            reader.stream.synchronize()  # the host may look only once the stream may
        for feed, rows in zip(feeds, samples, strict=True):
            assert_holds(feed, rows)


def consume(schedule: Schedule, reader, make) -> None:
    width = len(schedule.places)
    with ExitStack() as stack:
        consumer = Consumer(schedule, stack)
        feeds, number = reader(), -1
        for number, feed in enumerate(feeds):
            listed = feed if schedule.is_list else [feed]
            samples = [make(number * width + slot) for slot in range(width)]
            consumer.take(number, list(listed), samples)
            del feed, listed
            if number == schedule.exit_at:
                feeds.close()
                break
        else:
            assert number == len(schedule.steps) - 1
        consumer.finish()


@settings(deadline=None, max_examples=40)
@given(schedules())
def test_every_feed_holds_what_was_read(schedule: Schedule) -> None:
    def make(number: int) -> list:
        return batch(number, schedule.sizes[number])

    with virtual_devices(NUM_DEVICES, seed=schedule.seed, jitter=True), collating_here():
        places = list(schedule.places) if schedule.is_list else schedule.places[0]
        reader = make_feeder(places).decorate_reader(
            make_reader(len(schedule.sizes), make),
            multi_devices=schedule.is_list,
            prefetch=schedule.prefetch,
            max_bytes_ahead=schedule.max_bytes_ahead,
            isolate=schedule.isolate,
        )
        for _ in range(schedule.num_passes):
            consume(schedule, reader, make)
            assert VirtualBackend.page_locks.locked == []
