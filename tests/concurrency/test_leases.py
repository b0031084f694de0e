"""Feeds never change while somebody may still read them, however late; and checks that notice.

The consumers here read raw memory on a virtual stream, long after they have dropped the feed: what
a CUDA kernel does. Every stream is delayed at random, recycled slabs are poisoned, and the broken
variants at the end show that a missing wait is found within a few dozen steps.
"""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack
from itertools import islice

import numpy as np
import pytest
from support.feeding import (
    LateReader,
    assert_holds,
    batch,
    held,
    make_all_slabs,
    make_feeder,
    make_reader,
    num_device_slabs,
    raw,
)

import gpufeed.prefetch as prefetching
from gpufeed.device import channel, pool, slabs, threads
from gpufeed.device.slabs import Slab, SlabRing, size_class
from gpufeed.device.staging import DeviceStaging
from gpufeed.device.virtual import VirtualStream, virtual_devices, virtual_stream
from gpufeed.feeder import DataFeeder
from gpufeed.reader import base
from gpufeed.variables import Program, data, program_guard

STEPS = 24


@pytest.fixture(autouse=True)
def jitter():
    with virtual_devices(3, seed=7, jitter=True):
        yield


def read_late(prefetch: int = 2, steps: int = STEPS) -> int:
    """Train without looking back: enqueue the reads of each feed, drop it, ask for the next."""
    reader = make_feeder("cuda:0").decorate_reader(make_reader(steps), prefetch=prefetch)
    with virtual_stream("cuda:0") as stream:
        late = LateReader(stream)
        for number, feed in enumerate(reader):
            late.read(feed, batch(number), number)
        return late.check()


def read_very_late(prefetch: int = 1, times: int = 5) -> int:
    """The same, but hold the stream for as many steps as can be taken without waiting for it.

    ``prefetch + 2`` feeds have device slabs of their own. The copies of as many more are enqueued
    from page-locked slabs behind the readers of the first; then the producer stops.
    """
    steps = 2 * (prefetch + 2)
    with virtual_stream("cuda:0") as stream:
        late = LateReader(stream)
        for _ in range(times):
            feeds = make_feeder("cuda:0").decorate_reader(make_reader(99), prefetch=prefetch)()
            with held(stream):
                for number, feed in enumerate(islice(feeds, steps)):
                    late.read(feed, batch(number), number)
                    del feed
            feeds.close()
        return late.check()


class TestLateReaders:
    @pytest.mark.parametrize("prefetch", [0, 1, 2, 4])
    def test_see_the_bytes_of_their_feed(self, prefetch):
        assert read_late(prefetch) == 3 * STEPS

    @pytest.mark.parametrize("prefetch", [1, 2, 4])
    def test_however_late_they_are(self, prefetch):
        assert read_very_late(prefetch) == 5 * 3 * 2 * (prefetch + 2)

    @pytest.mark.parametrize("places", [["cuda:0", "cuda:1", "cuda:2"], ["cuda:1"] * 3])
    def test_on_many_places(self, places):
        reader = make_feeder(places).decorate_reader(make_reader(STEPS), multi_devices=True)
        with ExitStack() as stack:
            streams = {
                place: LateReader(stack.enter_context(virtual_stream(place)))
                for place in sorted(set(places))
            }
            numbers = iter(range(STEPS))
            for feeds in reader:
                for place, feed in zip(places, feeds, strict=True):
                    number = next(numbers)
                    streams[place].read(feed, batch(number), number)
            assert sum(late.check() for late in streams.values()) == 3 * (STEPS - STEPS % 3)

    def test_of_feeds_taken_directly(self):
        feeder = make_feeder("cuda:0")
        with virtual_stream("cuda:0") as stream:
            late = LateReader(stream)
            for number in range(STEPS):
                late.read(feeder.feed(batch(number)), batch(number), number)
            late.check()

    def test_of_feeds_taken_in_parallel(self):
        feeder = make_feeder(["cuda:0", "cuda:0"])
        with virtual_stream("cuda:0") as stream:
            late = LateReader(stream)
            for number in range(STEPS):
                batches = [batch(2 * number), batch(2 * number + 1)]
                for samples, feed in zip(batches, feeder.feed_parallel(batches), strict=True):
                    late.read(feed, samples, number)
            late.check()

    def test_of_what_kernels_unpacked(self):
        with program_guard(Program()):
            image = data("image", [64], wire_dtype="uint8", scale=2.0)
            word = data("word", [16], layout="sparse_binary", densify=True)
            feeder = DataFeeder([image, word], "cuda:0")
        rows = [
            [(np.full(64, number % 250, np.uint8), [number % 16])] * 3 for number in range(STEPS)
        ]
        seen = []
        with virtual_stream("cuda:0") as stream:
            for feed in feeder.decorate_reader(lambda: rows):
                image, word = raw(feed["image"].data), raw(feed["word"].data)
                stream.call(lambda i=image, w=word: seen.append((i.copy(), w.copy())))
        for number, (image, word) in enumerate(seen):
            assert (image == 2.0 * (number % 250)).all()
            assert (word == np.eye(16)[number % 16]).all()
        assert len(seen) == STEPS

    def test_on_a_stream_that_was_recorded(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(STEPS))
        side = VirtualStream()
        late = LateReader(side)
        with virtual_stream("cuda:0") as stream:
            for number, feed in enumerate(reader):
                side.wait(stream.record())
                feed["ids"].record_stream(side)
                late.read(feed, batch(number), number)
            late.check()
        side.close()

    def test_on_another_stream_for_each_feed(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(STEPS))
        feeds = reader()
        lates = []
        for number in range(STEPS):
            with virtual_stream("cuda:0") as stream:
                late = LateReader(stream)
                late.read(next(feeds), batch(number), number)
                late.check()
                lates.append(late)
        assert len(lates) == STEPS
        feeds.close()

    def test_of_a_pass_that_was_left(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(STEPS))
        with virtual_stream("cuda:0") as stream:
            late = LateReader(stream)
            for _ in range(6):
                for number, feed in enumerate(reader):
                    late.read(feed, batch(number), number)
                    if number == 4:
                        break
            late.check()

    def test_after_the_stream_of_the_last_pass_has_ended(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(6))
        for _ in range(3):
            with virtual_stream("cuda:0") as stream:
                late = LateReader(stream)
                for number, feed in enumerate(reader):
                    late.read(feed, batch(number), number)
                late.check()
        for number, feed in enumerate(reader):
            assert_holds(feed, batch(number))


DERIVED = {
    "the feed": lambda feed: feed,
    "a tensor": lambda feed: {"ids": feed["ids"]},
    "its data": lambda feed: feed["ids"].data,
    "a slice of it": lambda feed: feed["ids"].data[1:],
    "its bytes": lambda feed: feed["ids"].data.view(np.uint8),
    "a sequence": lambda feed: feed["ids"][1],
    "a slice of sequences": lambda feed: feed["ids"][1:].data,
    "a part of a split": lambda feed: feed["ids"].split(2)[1].data,
    "its offsets": lambda feed: feed["ids"].cu_seqlens(),
    "a DLPack import": lambda feed: np.from_dlpack(feed["ids"]),
    "a memoryview": lambda feed: np.asarray(memoryview(feed["ids"].data)),
}


class TestHeldFeeds:
    @pytest.mark.parametrize("place", ["cpu", "cuda:0"])
    @pytest.mark.parametrize("prefetch", [0, 1, 3])
    def test_keep_their_values_and_never_block(self, place, prefetch):
        reader = make_feeder(place).decorate_reader(make_reader(STEPS), prefetch=prefetch)
        feeds = list(reader)
        for number, feed in enumerate(feeds):
            assert_holds(feed, batch(number))
        assert reader.stats().num_held == STEPS

    @pytest.mark.parametrize("place", ["cpu", "cuda:0"])
    @pytest.mark.parametrize("what", DERIVED)
    def test_any_view_of_one_keeps_its_values(self, place, what):
        reader = make_feeder(place).decorate_reader(make_reader(30, lambda n: batch(n + 1)))
        kept = []
        for feed in reader:
            view = DERIVED[what](feed)
            copy = view.copy() if isinstance(view, np.ndarray) else feed["ids"].numpy().copy()
            kept.append((view, copy))
            del feed
        for view, copy in kept:
            array = view if isinstance(view, np.ndarray) else view["ids"].data
            np.testing.assert_array_equal(array, copy)

    def test_a_torch_tensor_of_one_keeps_its_values(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        kept = []
        for number, feed in enumerate(make_feeder("cpu").decorate_reader(make_reader(30))):
            kept.append((feed.to_torch()["label"][1:], number))
        for tensor, number in kept:
            assert torch.equal(tensor, torch.full((3, 1), number))

    def test_that_are_dropped_out_of_order_come_back(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(STEPS), prefetch=1)
        kept = {}
        for number, feed in enumerate(reader):
            kept[number] = feed
            for old in [old for old in kept if (old * 7 + number) % 3 == 0]:
                assert_holds(kept.pop(old), batch(old))
        assert reader.stats().num_slabs < 2 * STEPS

    def test_writes_into_one_do_not_reach_another(self):
        feeds = list(make_feeder("cpu").decorate_reader(make_reader(10)))
        for feed in feeds:
            feed["label"].data[...] = -1
        for number, feed in enumerate(make_feeder("cpu").decorate_reader(make_reader(10))):
            assert_holds(feed, batch(number))


class TestRings:
    @pytest.mark.parametrize("prefetch", [1, 2, 4])
    def test_stop_at_depth_and_two_slabs_while_the_consumers_stream_is_held(self, prefetch):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(STEPS), prefetch=prefetch)
        with virtual_stream("cuda:0") as stream:
            late, feeds = LateReader(stream), reader()
            with held(stream):
                # The host runs on: it takes every feed that there can be before the release.
                for number in range(prefetch + 2):
                    late.read(next(feeds), batch(number), number)
                assert num_device_slabs(reader) == [prefetch + 2]
            for number, feed in enumerate(feeds, prefetch + 2):
                late.read(feed, batch(number), number)
            assert late.check() == 3 * STEPS
        assert num_device_slabs(reader) == [prefetch + 2]
        assert reader.stats().num_slabs <= 2 * (prefetch + 2)

    @pytest.mark.parametrize("place", ["cpu", "cuda:0"])
    @pytest.mark.parametrize("are_there", [True, False], ids=["warm", "cold"])
    def test_make_no_slab_in_steady_state(self, place, are_there):
        """Ten thousand ragged batches of a dozen size classes, at first with and without slabs."""
        num_steps, prefetch = 10_000 if are_there else 1000, 2
        lengths = np.random.default_rng(3).integers(1, 4000, num_steps)
        classes = {size_class(8 * int(length) + 1024) for length in lengths}
        assert 8 < len(classes) < 16
        ids = np.zeros(4000, int)
        with virtual_devices(1):
            reader = make_feeder(place).decorate_reader(
                lambda: ([(ids[:length], 0), (ids[:1], 1)] for length in lengths),
                prefetch=prefetch,
            )
            if are_there:
                make_all_slabs(reader, prefetch, max(classes))
            before = reader.stats().num_slabs
            num = sum(1 for _ in reader)
            made = [ring.num_made for each in reader._pool._all for ring in each.rings]
        assert num == num_steps
        if are_there:
            assert sum(made) == before == (prefetch + 2) * len(made)
        else:  # at most one round of slabs for each class
            assert max(made) <= (prefetch + 2) * len(classes)

    def test_make_one_round_a_size_class_where_sizes_grow(self):
        with virtual_devices(1):
            sizes = [int(2 ** (number / 100)) for number in range(1700)]
            reader = make_feeder("cpu").decorate_reader(
                lambda: ([(np.zeros(size, int), 0)] for size in sizes), prefetch=2
            )
            for _ in reader:
                pass
            assert reader.stats().num_slabs <= 4 * 4 * 9  # nine octaves above the smallest slab

    def test_are_used_again_by_the_next_pass_and_shared_by_no_other(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(8))
        made = []
        for _ in range(4):
            for number, feed in enumerate(reader):
                assert_holds(feed, batch(number))
            made.append(reader.stats().num_slabs)
        assert made[0] == made[-1]

    def test_a_pass_left_early_loses_no_slab(self):
        reader = make_feeder("cuda:0").decorate_reader(make_reader(STEPS))
        for _ in range(10):
            for number, feed in enumerate(reader):
                assert_holds(feed, batch(number))
                if number == 2:
                    break
        assert reader.stats().num_slabs <= 8

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            *((module, "threading") for module in (channel, pool, slabs, prefetching)),
            (threads, "_live_lock"),
            (base, "_passes_lock"),
        ],
        ids=lambda value: getattr(value, "__name__", value),
    )
    def test_garbage_may_be_collected_inside_every_lock(self, module, name, monkeypatch):
        """The garbage is a cycle of a feed and of a pass that still runs: the most there can be."""
        locks = []

        def collecting(lock):
            locks.append(CollectInside(lock))
            return locks[-1]

        original = getattr(module, name)
        is_lock = hasattr(original, "acquire")
        replaced = collecting(original) if is_lock else CollectingThreading(collecting)
        monkeypatch.setattr(module, name, replaced)
        reader = make_feeder("cuda:0").decorate_reader(
            make_reader(8), prefetch=1, max_bytes_ahead=1
        )
        gc.disable()
        gc.freeze()  # the modules of other tests, which would make each collection slow
        try:
            for _ in range(2):
                for number, feed in enumerate(reader):
                    leave_garbage(reader)
                    assert_holds(feed, batch(number))
        finally:
            gc.unfreeze()
            gc.enable()
        assert sum(lock.num_found for lock in locks) > 100


def leave_garbage(reader):
    feeds = reader()
    cycle = [next(feeds), feeds]
    cycle.append(cycle)


class CollectInside:
    """A lock inside which garbage is collected as soon as it is taken."""

    def __init__(self, lock):
        self._lock = lock
        self.num_found = 0

    def __enter__(self):
        self._lock.__enter__()
        self.num_found += gc.collect()

    def __exit__(self, *error):
        self._lock.__exit__(*error)

    def __getattr__(self, name):
        return getattr(self._lock, name)


class CollectingThreading:
    """The module `threading`, but for its locks."""

    def __init__(self, collecting):
        self.Lock = lambda: collecting(threading.Lock())
        self.RLock = lambda: collecting(threading.RLock())
        self.Condition = lambda lock=None: threading.Condition(lock or self.RLock())

    def __getattr__(self, name):
        return getattr(threading, name)


class TestBrokenVariants:
    """Each leaves out one wait, and is found out."""

    def test_a_whole_one_passes(self):
        read_late(prefetch=1)
        read_very_late()

    def test_without_the_wait_for_the_ready_event(self, monkeypatch):
        def deliver(self, staged, stream=None):
            self.device_ring.deliver(staged.lease, *self.consumers(stream))
            return staged.feed

        monkeypatch.setattr(DeviceStaging, "deliver", deliver)
        with pytest.raises(AssertionError, match="feed"):
            read_late(prefetch=1)

    def test_recycling_without_the_consumers_events(self, monkeypatch):
        deliver = SlabRing.deliver
        monkeypatch.setattr(SlabRing, "deliver", lambda self, lease, *_: deliver(self, lease))
        with pytest.raises(AssertionError, match="feed"):
            read_very_late()

    def test_writing_into_a_host_slab_before_its_copy_is_done(self, monkeypatch):
        monkeypatch.setattr(Slab, "wait", lambda self: None)
        with pytest.raises(AssertionError, match="feed"):
            read_late(prefetch=1)

    def test_dropping_the_lease_of_a_view(self, monkeypatch):
        monkeypatch.setattr(
            "gpufeed.device.host_staging.root_view", lambda lease: lease._slab.memory
        )
        with pytest.raises(AssertionError):
            TestHeldFeeds().test_any_view_of_one_keeps_its_values("cpu", "its data")
