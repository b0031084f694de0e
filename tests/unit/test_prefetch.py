import json
import logging
import threading

import numpy as np
import pytest
from support.feeding import assert_holds, batch, make_feeder, make_reader
from support.readers import BrokenError, Gate, Watched

from gpufeed.device.virtual import VirtualStream, virtual_devices, virtual_stream
from gpufeed.errors import FieldError, PlaceError, ReaderError, ReaderTimeout
from gpufeed.prefetch import _Budget
from gpufeed.reader import batch as batched
from gpufeed.reader import firstn, shuffle

DEPTHS = [0, 1, 2, 4]


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request):
    with virtual_devices(3):
        yield request.param


class TestOnePlace:
    @pytest.mark.parametrize("prefetch", DEPTHS)
    def test_yields_every_batch_in_order(self, place, prefetch):
        reader = make_feeder(place).decorate_reader(make_reader(20), prefetch=prefetch)
        for number, feed in enumerate(reader()):
            assert_holds(feed, batch(number))
        assert number == 19

    def test_can_be_called_and_iterated_again(self, place):
        reader = make_feeder(place).decorate_reader(make_reader(3))
        for _ in range(3):
            assert [int(feed["label"].data[0, 0]) for feed in reader] == [0, 1, 2]

    def test_no_batch_is_no_feed(self, place):
        assert list(make_feeder(place).decorate_reader(make_reader(0))) == []

    def test_an_empty_batch_is_a_feed(self, place):
        (feed,) = make_feeder(place).decorate_reader(lambda: [[]])
        assert feed["ids"].shape == (0, 1)
        assert feed["ids"].lod() == [[0]]

    def test_a_short_last_batch_passes_unchanged(self, place):
        reader = make_feeder(place).decorate_reader(lambda: [batch(0, 4), batch(1, 1)])
        assert [len(feed["label"]) for feed in reader] == [4, 1]

    def test_two_passes_may_run_at_once(self, place):
        reader = make_feeder(place).decorate_reader(make_reader(10))
        for number, (one, other) in enumerate(zip(reader(), reader(), strict=True)):
            assert_holds(one, batch(number))
            assert_holds(other, batch(number))

    def test_a_feed_taken_directly_goes_beside_it(self, place):
        feeder = make_feeder(place)
        for number, feed in enumerate(feeder.decorate_reader(make_reader(5))):
            direct = feeder.feed(batch(100 + number))
            assert_holds(feed, batch(number))
            assert_holds(direct, batch(100 + number))

    def test_reads_ahead_no_further_than_asked(self):
        reader = Watched(100)
        feeds = make_feeder("cpu").decorate_reader(
            lambda: map(batch, reader()), prefetch=2, stall_warning_s=None
        )()
        next(feeds)
        reader.wait_until_read(4)  # one is out, two are ready, one waits for room
        feeds.close()
        assert (reader.num_read, reader.num_open) == (4, 0)

    def test_reads_nothing_ahead_without_prefetch(self):
        reader = Watched(100)
        feeds = make_feeder("cpu").decorate_reader(lambda: map(batch, reader()), prefetch=0)()
        next(feeds)
        assert reader.num_read == 1
        feeds.close()

    def test_nothing_is_read_before_the_first_feed_is_asked_for(self):
        reader = Watched(3)
        feeds = make_feeder("cpu").decorate_reader(lambda: map(batch, reader()))()
        assert reader.num_open == reader.num_read == 0
        feeds.close()


class TestManyPlaces:
    @pytest.mark.parametrize("prefetch", DEPTHS)
    @pytest.mark.parametrize(
        "places", [["cuda:0"], ["cuda:0", "cuda:1", "cuda:2"], ["cuda:1", "cuda:1"], ["cpu"] * 2]
    )
    def test_each_gets_a_batch_of_its_own(self, places, prefetch):
        with virtual_devices(3, seed=3, jitter=True):
            feeder = make_feeder(places)
            reader = feeder.decorate_reader(make_reader(12), multi_devices=True, prefetch=prefetch)
            numbers = iter(range(12))
            for feeds in reader:
                assert [feed.place for feed in feeds] == feeder.places
                for feed in feeds:
                    assert_holds(feed, batch(next(numbers)))
            assert list(numbers) == []

    def test_the_copies_of_one_step_do_not_wait_for_each_other(self):
        with virtual_devices(2), virtual_stream("cuda:0") as slow, virtual_stream("cuda:1") as fast:
            latch = threading.Event()
            feeds = make_feeder(["cuda:0", "cuda:1"]).decorate_reader(
                make_reader(4), multi_devices=True
            )()
            slow.call(latch.wait)
            first = next(feeds)
            fast.synchronize()
            assert_holds(first[1], batch(1))
            latch.set()
            slow.synchronize()
            assert_holds(first[0], batch(0))
            feeds.close()

    def test_leftover_batches(self):
        def groups(**options):
            feeder = make_feeder(["cpu"] * 3)
            reader = feeder.decorate_reader(make_reader(4), multi_devices=True, **options)
            return [[len(feed["label"]) for feed in feeds] for feeds in reader]

        assert groups() == [[4, 4, 4]]
        assert groups(remainder="partial") == [[4, 4, 4], [4]]
        assert groups(remainder="split") == [[4, 4, 4], [2, 1, 1]]
        with pytest.raises(ValueError, match="left over"):
            groups(drop_last=False)

    def test_one_device_yields_lists_too(self):
        (feeds,) = make_feeder("cpu").decorate_reader(make_reader(1), multi_devices=True)
        assert isinstance(feeds, list)
        assert len(feeds) == 1


class TestArguments:
    @pytest.mark.parametrize("prefetch", [-1, 1.5, True, None])
    def test_prefetch_is_a_whole_number(self, prefetch):
        with pytest.raises(FieldError, match="prefetch"):
            make_feeder("cpu").decorate_reader(make_reader(1), prefetch=prefetch)

    def test_numbers_may_be_of_any_numeric_type(self):
        numbers = {"prefetch": np.int64(2), "max_bytes_ahead": 1e6, "timeout_s": np.float32(30)}
        assert len(list(make_feeder("cpu").decorate_reader(make_reader(3), **numbers))) == 3

    @pytest.mark.parametrize("name", ["max_bytes_ahead", "timeout_s", "stall_warning_s"])
    @pytest.mark.parametrize("limit", [0, -1, "a", True, float("inf")])
    def test_limits_are_positive_numbers(self, name, limit):
        with pytest.raises(FieldError, match=f"decorate_reader.{name} must be a .* got"):
            make_feeder("cpu").decorate_reader(make_reader(1), **{name: limit})

    def test_a_stream_is_one_of_the_device(self):
        with virtual_devices(1):
            reader = make_feeder("cuda:0").decorate_reader(make_reader(1), stream=7)
            with pytest.raises(PlaceError, match="got 7"):
                next(reader())

    def test_feeds_are_ordered_behind_the_stream_that_is_named(self):
        with virtual_devices(1, seed=4, jitter=True):
            stream, seen = VirtualStream(), []
            reader = make_feeder("cuda:0").decorate_reader(make_reader(10), stream=stream)
            for feed in reader:
                stream.call(lambda feed=feed: seen.append(feed["label"].data[0, 0]))
            stream.close()
            assert seen == list(range(10))

    def test_many_devices_take_a_stream_each(self):
        with virtual_devices(2, seed=4, jitter=True):
            streams, seen = [VirtualStream(), VirtualStream()], ([], [])
            feeder = make_feeder(["cuda:0", "cuda:1"])
            options = {"multi_devices": True, "stream": streams}
            for feeds in feeder.decorate_reader(make_reader(10), **options):
                for stream, feed, found in zip(streams, feeds, seen, strict=True):
                    stream.call(lambda f=feed, to=found: to.append(f["label"].data[0, 0]))
            for stream in streams:
                stream.close()
            assert seen == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
            with pytest.raises(FieldError, match="one stream for each of 2 places, got 1"):
                feeder.decorate_reader(make_reader(1), multi_devices=True, stream=streams[0])

    def test_many_places_need_many_devices(self):
        with pytest.raises(PlaceError, match="multi_devices"):
            make_feeder(["cpu", "cpu"]).decorate_reader(make_reader(1))

    def test_a_timeout_needs_a_thread_beside_the_loops(self):
        with pytest.raises(FieldError, match=r"timeout_s must be None with prefetch=0.* got 5;"):
            make_feeder("cpu").decorate_reader(make_reader(1), prefetch=0, timeout_s=5)

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_no_feed_is_taken_inside_a_graph_capture(self, prefetch):
        with virtual_devices(1), virtual_stream("cuda:0") as stream:
            reader = make_feeder("cuda:0").decorate_reader(make_reader(9), prefetch=prefetch)
            feeds = reader()
            next(feeds)
            with stream.capture(), pytest.raises(PlaceError, match="outside of graph capture"):
                next(feeds)
            seen = []
            for feed in reader:
                stream.call(lambda label=feed["label"].data: seen.append(int(label[0, 0])))
            stream.synchronize()
            assert seen == list(range(9))

    def test_nor_one_taken_directly(self):
        with virtual_devices(1), virtual_stream("cuda:0") as stream:
            feeder = make_feeder("cuda:0")
            with stream.capture(), pytest.raises(PlaceError, match="outside of graph capture"):
                feeder.feed(batch(0))
            assert feeder.feed(batch(0))["label"].shape == (4, 1)

    def test_the_reader_is_callable(self):
        with pytest.raises(TypeError, match="reader must be callable"):
            make_feeder("cpu").decorate_reader([batch(0)])


class TestBytesAhead:
    def test_one_step_may_always_pass(self):
        reader = make_feeder("cpu").decorate_reader(make_reader(20), max_bytes_ahead=1)
        for number, feed in enumerate(reader):
            assert_holds(feed, batch(number))
        assert number == 19

    def test_bounds_what_is_ready_and_not_taken(self):
        reader, nbytes = Watched(100), 4 * 1024 * 8
        feeds = make_feeder("cpu").decorate_reader(
            lambda: ([(np.zeros(1022, np.int64), 0)] * 4 for _ in reader()),
            prefetch=8,
            max_bytes_ahead=3 * nbytes,
        )()
        next(feeds)
        reader.wait_until_read(4)
        next(feeds)
        reader.wait_until_read(5)
        feeds.close()
        assert reader.num_read <= 6  # two are out, three may be ready, one waits

    def test_waits_until_there_is_room(self):
        budget = _Budget(100)
        budget.reserve(60)
        producer = threading.Thread(target=budget.reserve, args=(60,))
        producer.start()
        budget.release(60)
        producer.join()
        assert budget.blocked_s >= 0

    def test_close_wakes_who_waits(self):
        budget = _Budget(1)
        budget.reserve(60)
        producer = threading.Thread(target=budget.reserve, args=(60,))
        producer.start()
        budget.close()
        producer.join(30)
        assert not producer.is_alive()

    def test_works_without_prefetch(self):
        reader = make_feeder("cpu").decorate_reader(make_reader(5), prefetch=0, max_bytes_ahead=1)
        assert len([feed["label"].shape for feed in reader]) == 5


class TestSlow:
    @pytest.fixture
    def gate(self):
        gate = Gate()
        yield gate
        gate.open()

    def blocked_at(self, gate, number):
        def read():
            yield from map(batch, range(number))
            gate.wait()
            yield batch(number)

        return read

    def test_a_stall_is_logged_once_with_the_step_and_the_stack(self, gate, caplog):
        class OpensTheGate(logging.Handler):
            def emit(self, record):
                gate.open()

        handler = OpensTheGate()
        log = logging.getLogger("gpufeed")
        log.addHandler(handler)
        try:
            reader = make_feeder("cpu").decorate_reader(
                self.blocked_at(gate, 2), stall_warning_s=0.05
            )
            assert len([feed["label"].shape for feed in reader]) == 3
        finally:
            log.removeHandler(handler)
        (record,) = caplog.records
        message = record.getMessage()
        assert "no feed for 0.05 s" in message
        assert "step 2" in message
        assert "gate.wait()" in message  # the line that it hangs in

    def test_a_timeout_names_the_step_and_the_stack(self, gate, monkeypatch):
        monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 0.01)
        reader = make_feeder("cpu").decorate_reader(self.blocked_at(gate, 2), timeout_s=0.05)
        feeds = reader()
        assert_holds(next(feeds), batch(0))
        assert_holds(next(feeds), batch(1))
        with (
            pytest.warns(RuntimeWarning, match="decorate_reader: gpufeed-feed still runs"),
            pytest.raises(ReaderTimeout, match=r"no feed for 0.05 s.* step 2(.|\n)*gate\.wait"),
        ):
            next(feeds)
        gate.open()
        assert_holds(next(reader()), batch(0))

    def test_a_stall_goes_before_a_timeout(self, gate, caplog, monkeypatch):
        monkeypatch.setattr("gpufeed.device.threads.CLOSE_TIMEOUT_S", 0.01)
        reader = make_feeder("cpu").decorate_reader(
            self.blocked_at(gate, 0), stall_warning_s=0.02, timeout_s=0.05
        )
        with pytest.warns(RuntimeWarning), pytest.raises(ReaderTimeout, match=r"0\.05 s"):
            next(reader())
        assert len(caplog.records) == 1

    def test_neither_comes_of_a_reader_that_is_fast_enough(self, caplog):
        reader = make_feeder("cpu").decorate_reader(
            make_reader(50), stall_warning_s=20, timeout_s=20
        )
        assert len([feed["label"].shape for feed in reader]) == 50
        assert caplog.records == []


class TestState:
    def labels(self, reader):
        return [feed["label"].data.ravel().tolist() for feed in reader]

    def make(self, prefetch=2, num=12, **options):
        with virtual_devices(2):
            feeder = make_feeder(options.pop("place", "cpu"))
            return feeder.decorate_reader(make_reader(num), prefetch=prefetch, **options)

    @pytest.mark.parametrize("prefetch", DEPTHS)
    @pytest.mark.parametrize("delivered", [0, 1, 5, 12])
    def test_resumes_after_what_was_delivered_at_any_depth(self, delivered, prefetch):
        reader = self.make(prefetch=4)
        feeds = reader()
        for _ in range(delivered):
            next(feeds)
        state = json.loads(json.dumps(reader.state_dict()))
        assert state["delivered"] == delivered
        feeds.close()
        again = self.make(prefetch=prefetch)
        again.load_state_dict(state)
        assert self.labels(again) == self.labels(self.make())[delivered:]
        assert self.labels(again) == self.labels(self.make())

    def test_skip_is_the_same_as_draining(self):
        for skip in range(14):
            opened = self.make().open(epoch=0, skip=skip)
            assert self.labels(opened) == self.labels(self.make())[skip:]

    @pytest.mark.parametrize("remainder", [None, "partial", "split"])
    def test_skip_counts_steps_of_all_devices(self, remainder):
        def make():
            return self.make(num=7, place=["cpu"] * 3, multi_devices=True, remainder=remainder)

        def steps(reader):
            return [[feed["label"].data.ravel().tolist() for feed in feeds] for feeds in reader]

        for skip in range(4):
            assert steps(make().open(0, skip)) == steps(make())[skip:]

    def test_another_number_of_devices_is_another_pipeline(self):
        state = self.make(place=["cpu"] * 2, multi_devices=True).state_dict()
        with pytest.raises(ReaderError, match="fingerprint"):
            self.make(place=["cpu"] * 3, multi_devices=True).load_state_dict(state)

    def test_goes_down_to_the_samples_of_a_shuffled_reader(self):
        def make(prefetch):
            samples = shuffle(lambda: (batch(n, 1)[0] for n in range(40)), 16, seed=5)
            return make_feeder("cpu").decorate_reader(
                batched(firstn(samples, 37), 4), prefetch=prefetch
            )

        reader = make(prefetch=2)
        wanted = [*self.labels(reader), *self.labels(reader)]
        reader = make(prefetch=1)
        self.labels(reader)
        feeds = reader()
        for _ in range(3):
            next(feeds)
        state = reader.state_dict()
        feeds.close()
        again = make(prefetch=0)
        again.load_state_dict(state)
        assert state["epoch"] == 1
        assert self.labels(again) == wanted[13:]

    def test_set_epoch(self):
        reader = self.make()
        reader.set_epoch(3)
        feeds = reader()
        next(feeds)
        assert (reader.state_dict()["epoch"], reader.state_dict()["delivered"]) == (3, 1)
        feeds.close()


class TestObserved:
    def test_stats_count_what_was_delivered(self, place):
        reader = make_feeder(place).decorate_reader(make_reader(10))
        before = reader.stats()
        for _ in reader:
            pass
        stats = reader.stats()
        assert (before.num_steps, stats.num_steps, stats.num_samples) == (0, 10, 40)
        assert stats.nbytes > 0
        assert 0 < stats.num_slabs <= 8
        assert stats.slab_nbytes == 4096 * stats.num_slabs
        assert (stats.pinned_nbytes > 0) == (place == "cuda:0")
        assert stats.pinned_nbytes < stats.slab_nbytes
        assert min(stats.read_s, stats.stage_s, stats.wait_s, stats.compute_s) > 0

    def test_held_feeds_are_counted(self, place):
        reader = make_feeder(place).decorate_reader(make_reader(10))
        feeds = list(reader)
        assert reader.stats().num_held == 10
        assert reader.stats().leased_nbytes == 10 * 4096
        feeds.clear()
        for _ in reader:
            pass
        assert reader.stats().num_held == 1  # the loop variable still has the last one

    def test_slabs_of_feeds_once_held_are_freed_by_the_next_pass(self, place):
        feeder = make_feeder(place)
        held = list(feeder.decorate_reader(make_reader(50), prefetch=1))
        del held
        reader = feeder.decorate_reader(make_reader(3), prefetch=2)
        for _ in reader:
            pass
        assert reader.stats().slab_nbytes <= 4096 * 30

    def test_a_step_of_many_devices_counts_all_samples(self):
        reader = make_feeder(["cpu"] * 2).decorate_reader(make_reader(4), multi_devices=True)
        for _ in reader:
            pass
        assert (reader.stats().num_steps, reader.stats().num_samples) == (2, 16)

    def test_progress_shows_samples(self, capsys):
        reader = make_feeder("cpu").decorate_reader(make_reader(10), progress=True)
        for _ in reader:
            pass
        assert "40.0 samples" in capsys.readouterr().err

    def test_no_progress_shows_nothing(self, capsys):
        for _ in make_feeder("cpu").decorate_reader(make_reader(10)):
            pass
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_a_trace_holds_every_span_of_both_threads(self, tmp_path, prefetch):
        trace = tmp_path / "trace.json"
        reader = make_feeder("cpu").decorate_reader(
            make_reader(10), prefetch=prefetch, trace=str(trace)
        )
        for _ in reader:
            pass
        events = json.loads(trace.read_text())["traceEvents"]
        names = [event["name"] for event in events]
        assert names.count("stage") == names.count("read") == names.count("compute") == 10
        assert names.count("wait") == 11  # the last one finds the end
        assert len({event["tid"] for event in events}) == (2 if prefetch else 1)

    def test_a_trace_is_written_when_the_pass_is_left_early_or_fails(self, tmp_path):
        def broken():
            yield batch(0)
            raise BrokenError

        trace = tmp_path / "trace.json"
        feeds = make_feeder("cpu").decorate_reader(make_reader(9), trace=str(trace))()
        next(feeds)
        feeds.close()
        assert json.loads(trace.read_text())["traceEvents"]
        trace.unlink()
        with pytest.raises(BrokenError):
            list(make_feeder("cpu").decorate_reader(broken, trace=str(trace)))
        assert json.loads(trace.read_text())["traceEvents"]

    def test_a_repr_shows_the_pipeline(self):
        reader = make_feeder(["cpu"] * 2).decorate_reader(
            batched(lambda: [1], 4), multi_devices=True
        )
        assert repr(reader).startswith("decorate_reader(batch(<lambda>")
        assert "num_places=2" in repr(reader)
