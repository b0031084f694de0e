"""Failures and early ends of a feed reader: what was read before arrives, and nothing is left."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from support.feeding import LateReader, assert_holds, batch, held, make_feeder, make_reader
from support.readers import BrokenError, Gate, Watched, function_names, taken_until

from gpufeed.device.slabs import Slab
from gpufeed.device.virtual import VirtualBackend, virtual_devices, virtual_stream
from gpufeed.errors import FieldError, PlaceError

DEPTHS = [0, 1, 3]


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request):
    with virtual_devices(2, seed=11, jitter=True):
        yield request.param


def watched_batches(reader):
    """Read batches from a `Watched` reader, closing it with the pass."""

    def read_watched():
        numbers = reader()
        try:
            yield from map(batch, numbers)
        finally:
            numbers.close()

    return read_watched


def failing_at(number, error):
    def read_until_broken():
        yield from map(batch, range(number))
        raise error

    return read_until_broken


def taken_before(feeds, error):
    """Check the feeds that come before ``error``, and return how many, and the error."""
    taken, got = taken_until(feeds)
    assert isinstance(got, error), got
    for number, feed in enumerate(taken):
        assert_holds(feed, batch(number))
    return len(taken), got


class TestReaderFails:
    @pytest.mark.parametrize("prefetch", DEPTHS)
    @pytest.mark.parametrize("number", [0, 1, 2, 7])
    def test_the_steps_before_it_arrive_and_then_its_own_error(self, place, prefetch, number):
        error = BrokenError("mine")
        reader = make_feeder(place).decorate_reader(failing_at(number, error), prefetch=prefetch)
        feeds = reader()
        taken, got = taken_before(feeds, BrokenError)
        assert taken == number
        assert got is error
        assert "read_until_broken" in function_names(got)
        assert list(feeds) == []  # the pass is over, and the error was said once

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopIteration])
    def test_an_error_of_any_kind_ends_the_pass(self, place, error):
        feeds = make_feeder(place).decorate_reader(failing_at(2, error()))()
        assert_holds(next(feeds), batch(0))
        assert_holds(next(feeds), batch(1))
        # Python itself turns a StopIteration inside a generator into a RuntimeError.
        with pytest.raises((error, RuntimeError)):
            next(feeds)

    def test_the_next_pass_works(self, place):
        fails = [True]

        def read():
            yield from map(batch, range(3))
            if fails.pop():
                raise BrokenError

        reader = make_feeder(place).decorate_reader(read)
        assert taken_before(reader(), BrokenError)[0] == 3
        fails.append(False)
        for number, feed in enumerate(reader):
            assert_holds(feed, batch(number))
        assert number == 2

    def test_a_reader_that_cannot_be_opened(self, place):
        def read():
            raise BrokenError

        with pytest.raises(BrokenError):
            next(make_feeder(place).decorate_reader(read)())

    def test_a_reader_that_cannot_be_closed(self, place):
        class Unclosable:
            def __iter__(self):
                return self

            def __next__(self):
                return batch(0)

            def close(self):
                raise BrokenError

        feeds = make_feeder(place).decorate_reader(Unclosable, prefetch=0)()
        next(feeds)
        with pytest.raises(BrokenError):
            feeds.close()

    def test_errors_that_are_kept_do_not_stop_later_passes(self, place):
        kept = []
        reader = make_feeder(place).decorate_reader(lambda: [batch(0), [([1.5], 0)]], prefetch=1)
        for _ in range(8):
            taken, error = taken_before(reader(), FieldError)
            kept.append(error)
            assert taken == 1


class TestBatchDoesNotFit:
    @pytest.mark.parametrize("prefetch", DEPTHS)
    def test_the_error_names_the_step(self, place, prefetch):
        def make(number):
            return batch(number) if number != 4 else [(batch(4)[0][0], "label")]

        reader = make_feeder(place).decorate_reader(make_reader(9, make), prefetch=prefetch)
        taken, error = taken_before(reader(), FieldError)
        assert taken == 4
        assert "label" in str(error)
        assert error.__notes__ == ["in step 4 of this pass"]

    def test_the_step_is_counted_from_the_beginning_of_the_pass(self, place):
        def make(number):
            return batch(number) if number != 6 else [(1, 2, 3)]

        reader = make_feeder(place).decorate_reader(make_reader(9, make))
        with pytest.raises(FieldError) as caught:
            list(reader.open(0, skip=5))
        assert caught.value.__notes__ == ["in step 6 of this pass"]

    @pytest.mark.parametrize("changed", [[(1, 2, 3)], [([1],)], [{"ids": [1]}], [7], 7, None])
    def test_a_reader_that_changes_its_fields(self, place, changed):
        reader = make_feeder(place).decorate_reader(lambda: [batch(0), batch(1), changed])
        assert taken_before(reader(), FieldError)[0] == 2

    @pytest.mark.parametrize("ids", [np.array([0.5]), np.array(["7"]), [b"7"], np.array([2**63])])
    def test_a_reader_that_changes_its_dtype(self, place, ids):
        reader = make_feeder(place).decorate_reader(lambda: [batch(0), batch(1), [(ids, 0)]])
        taken, error = taken_before(reader(), FieldError)
        assert taken == 2
        assert "field 'ids', sample 0" in str(error)

    def test_on_one_of_many_devices(self):
        with virtual_devices(2):
            reader = make_feeder(["cuda:0", "cuda:1"]).decorate_reader(
                lambda: [batch(0), batch(1), batch(2), [(1, 2, 3)]], multi_devices=True
            )
            feeds = reader()
            assert_holds(next(feeds)[1], batch(1))
            with pytest.raises(FieldError) as caught:
                next(feeds)
            assert caught.value.__notes__ == ["in step 1 of this pass"]


class TestConsumerLeaves:
    @pytest.mark.parametrize("prefetch", DEPTHS)
    def test_by_an_error_of_its_own(self, place, prefetch):
        watched = Watched(100)
        reader = make_feeder(place).decorate_reader(watched_batches(watched), prefetch=prefetch)

        def train():
            for number, feed in enumerate(reader):
                assert_holds(feed, batch(number))
                if number == 3:
                    raise BrokenError

        for _ in range(3):
            with pytest.raises(BrokenError):
                train()
            gc.collect()  # the traceback held the iterator
            assert watched.num_open == 0

    @pytest.mark.parametrize("prefetch", DEPTHS)
    def test_by_break(self, place, prefetch):
        watched = Watched(100)
        reader = make_feeder(place).decorate_reader(watched_batches(watched), prefetch=prefetch)
        for _ in range(3):
            for number, feed in enumerate(reader):
                assert_holds(feed, batch(number))
                if number == 3:
                    break
            assert watched.num_open == 0

    @pytest.mark.parametrize("num", [0, 1, 2, 9])
    def test_by_close_after_any_number_of_feeds(self, place, num):
        watched = Watched(9)
        feeds = make_feeder(place).decorate_reader(watched_batches(watched), prefetch=2)()
        for _ in range(num):
            next(feeds)
        feeds.close()
        feeds.close()
        assert watched.num_open == 0
        assert list(feeds) == []

    def test_by_closing_the_reader(self, place):
        watched = Watched(100)
        with make_feeder(place).decorate_reader(watched_batches(watched)) as reader:
            one, other = reader(), reader()
            next(one), next(other)
            assert watched.num_open == 2
        assert watched.num_open == 0
        assert_holds(next(iter(reader)), batch(0))
        reader.close()

    def test_by_dropping_a_cycle_that_holds_the_iterator(self, place):
        watched = Watched(100)
        feeds = make_feeder(place).decorate_reader(watched_batches(watched))()
        cycle = [feeds, next(feeds)]
        cycle.append(cycle)
        del feeds, cycle
        gc.collect()
        assert watched.num_open == 0

    def test_on_another_thread_than_it_came(self, place):
        watched = Watched(100)
        feeds = make_feeder(place).decorate_reader(watched_batches(watched))()
        assert_holds(next(feeds), batch(0))
        thread = threading.Thread(target=feeds.close)
        thread.start()
        thread.join()
        assert watched.num_open == 0
        assert list(feeds) == []

    def test_while_its_stream_is_held(self):
        with virtual_devices(1), virtual_stream("cuda:0") as stream:
            reader = make_feeder("cuda:0").decorate_reader(make_reader(100), prefetch=2)
            late, feeds = LateReader(stream), reader()
            with held(stream):
                late.read(next(feeds), batch(0))
                feeds.close()
            late.check()
            for number, feed in enumerate(reader):
                late.read(feed, batch(number), number)
            late.check()

    @pytest.mark.parametrize(
        "leave", [lambda feeds: feeds[0].close(), list.clear], ids=["close", "finalizer"]
    )
    def test_while_the_producer_waits_for_the_device(self, leave, monkeypatch):
        """The thread is named for what it is, ends later, and its slabs serve the next pass."""
        monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 0.01)
        is_waiting, wait, read = threading.Event(), Slab.wait, []

        def make(number):
            read.append(number)
            return batch(number)

        def watched_wait(self):
            if read[-1] == 6:  # copies 3, 4 and 5 have all page-locked slabs, behind the stream
                is_waiting.set()
            wait(self)

        monkeypatch.setattr(Slab, "wait", watched_wait)
        with virtual_devices(1), virtual_stream("cuda:0") as stream:
            reader = make_feeder("cuda:0").decorate_reader(make_reader(100, make), prefetch=1)
            late, feeds = LateReader(stream), [reader()]
            with held(stream):
                for number in range(5):
                    late.read(next(feeds[0]), batch(number), number)
                assert is_waiting.wait(30)
                (producer,) = [t for t in threading.enumerate() if t.name == "gpufeed-feed"]
                with pytest.warns(RuntimeWarning, match="gpufeed-feed still waits for a device"):
                    leave(feeds)
            producer.join()
            late.check()
            made = reader.stats().num_slabs
            for number, feed in enumerate(reader):
                late.read(feed, batch(number), number)
            late.check()
            assert reader.stats().num_slabs == made
            assert reader.stats().blocked_s > 0

    def test_a_reader_that_is_slow_to_end_is_named_and_ends_later(self, monkeypatch):
        monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 0.01)
        gate, watched = Gate(), Watched(9)

        def read():
            numbers = watched()
            yield batch(next(numbers))
            gate.wait()
            numbers.close()

        reader = make_feeder("cpu").decorate_reader(read)
        feeds = reader()
        next(feeds)
        gate.wait_for_arrival()
        with pytest.warns(RuntimeWarning, match="decorate_reader: gpufeed-feed still runs"):
            feeds.close()
        again = reader()  # the thread that still runs is in nobody's way
        gate.open()
        assert_holds(next(again), batch(0))
        again.close()


class TestInterrupt:
    @pytest.fixture(autouse=True)
    def sigint(self):
        """Ctrl-C opens the gate too: a reader must not hang for longer than the test."""
        self.gate = Gate()

        def interrupt(*_):
            self.gate.open()
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, interrupt)
        yield
        signal.signal(signal.SIGINT, before)

    def test_while_the_consumer_waits_for_a_feed(self, place):
        """The reader itself presses Ctrl-C, while the consumer waits for its second batch."""

        def read():
            yield batch(0)
            if not interrupted:
                interrupted.append(True)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                self.gate.wait()
            yield batch(1)

        interrupted = []
        reader = make_feeder(place).decorate_reader(read)
        with pytest.raises(KeyboardInterrupt):
            for _ in reader:
                pass
        gc.collect()
        assert [int(feed["label"].data[0, 0]) for feed in reader] == [0, 1]

    def test_while_the_producer_waits_for_the_consumer(self, place):
        watched = Watched(100)
        reader = make_feeder(place).decorate_reader(watched_batches(watched), prefetch=1)

        def train():
            for _ in reader:
                watched.wait_until_read(3)
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            train()
        gc.collect()
        assert watched.num_open == 0
        assert_holds(next(iter(reader)), batch(0))
        reader.close()


class TestDeviceFails:
    @pytest.mark.parametrize("prefetch", DEPTHS)
    @pytest.mark.parametrize("memory", ["host_memory", "device_memory"])
    @pytest.mark.parametrize("isolate", [False, True])
    def test_a_batch_that_it_has_no_room_for(self, memory, isolate, prefetch, monkeypatch):
        """The error is its own, what came before arrives, and no later slab is as large."""
        allocate, limit = getattr(VirtualBackend, memory), 1 << 16

        def allocate_within_limit(backend, nbytes):
            if nbytes > limit:
                raise PlaceError(f"{backend.place}: no room for a slab of {nbytes:,} bytes")
            return allocate(backend, nbytes)

        def make(number):
            return batch(number) if number != 3 else [(np.zeros(limit // 4, np.int64), number)]

        monkeypatch.setattr(VirtualBackend, memory, allocate_within_limit)
        # Memory that an isolated reader has written is copied from there, where it is page-locked.
        monkeypatch.setattr(VirtualBackend, "page_lock", lambda *_: False)
        with virtual_devices(1, seed=3, jitter=True):
            feeder = make_feeder("cuda:0")
            reader = feeder.decorate_reader(
                make_reader(9, make), isolate=isolate, prefetch=prefetch
            )
            taken, error = taken_before(reader(), PlaceError)
            assert taken == 3
            assert re.search(r"cuda:0: no room for a slab of 1[\d,]+ bytes", str(error))
            fits = feeder.decorate_reader(make_reader(9), prefetch=prefetch)
            for number, feed in enumerate(fits):
                assert_holds(feed, batch(number))

    def test_work_that_fails_on_the_consumers_stream_reaches_the_host(self):
        def fail():
            raise BrokenError

        def train(feeds):
            with virtual_stream("cuda:0") as stream:
                assert next(feeds)["label"].shape == (4, 1)
                stream.call(fail)

        with virtual_devices(1):
            feeds = make_feeder("cuda:0").decorate_reader(make_reader(30))()
            with pytest.raises(BrokenError):
                train(feeds)
            feeds.close()


EXIT = """
    import threading
    from gpufeed.device.virtual import virtual_devices, virtual_stream
    from gpufeed.feeder import DataFeeder
    from gpufeed.variables import data

    virtual_devices(1)
    feeder = DataFeeder([data("x", [1])], {place!r})

    def endless():
        while True:
            yield [1.0, 2.0]

    def stuck():
        yield [1.0, 2.0]
        threading.Event().wait()

    feeds = feeder.decorate_reader({reader})()
    first = next(feeds)
    print(first["x"].data.ravel().tolist())
"""


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
@pytest.mark.parametrize("reader", ["endless", "stuck"])
def test_the_interpreter_ends_with_a_pass_that_still_runs(place, reader, tmp_path):
    script = textwrap.dedent(EXIT).format(place=place, reader=reader)
    begin = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "[1.0, 2.0]\n")
    if reader == "stuck":
        assert "gpufeed-feed still runs" in ended.stderr
    else:
        assert ended.stderr == ""
    assert time.monotonic() - begin < 20  # a second and a half on a machine that is idle


def test_a_script_that_fails_says_only_why(tmp_path):
    script = textwrap.dedent(EXIT).format(place="cuda:0", reader="endless") + "\n1 / 0\n"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")
