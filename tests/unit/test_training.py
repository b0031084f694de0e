"""`train`: which readers it takes, what it tells, and where a state goes on."""

from __future__ import annotations

import io
import json
import sys
import threading
import weakref
from itertools import count, islice

import numpy as np
import pytest
from support.readers import BrokenError, Watched, failing, function_names

import gpufeed as gf
from gpufeed.errors import FieldError, PlaceError, ReaderError

NUM_SAMPLES = 10


@pytest.fixture(autouse=True)
def program():
    """A program of its own for each test."""
    with gf.program_guard(gf.Program()):
        gf.data("x", [1], "int64")
        yield


def samples():
    """One field each: 0 to 9."""
    return ((number,) for number in range(NUM_SAMPLES))


def batches_of(size):
    return lambda: (
        [(number,) for number in range(begin, min(begin + size, NUM_SAMPLES))]
        for begin in range(0, NUM_SAMPLES, size)
    )


def values(feed):
    return feed["x"].numpy().ravel().tolist()


def train(reader, batch_size, total_pass=1, **options):
    """Train on the host; return the values of every step."""
    seen = []
    options.setdefault("places", "cpu")
    options.setdefault("step", lambda feed: seen.append(values(feed)))
    stats = gf.train(reader, {"x": 0}, batch_size, total_pass, **options)
    assert stats.num_steps >= len(seen) or not seen
    return seen


THREES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


class TestReaders:
    def test_samples_are_cut_into_batches(self):
        assert train(samples, 3) == THREES

    def test_a_batch_reader_is_recognised(self):
        reader = gf.batch(samples, 3)
        assert train(reader, 3) == train(reader, None) == train(reader, 3.0) == THREES

    def test_another_size_than_that_of_the_batch_reader_is_an_error(self):
        with pytest.raises(FieldError, match=r"train\.batch_size must be 3, .* or None, got 4"):
            train(gf.batch(samples, 3), 4)
        with pytest.raises(FieldError, match=r"train\.batch_size must be None"):
            train(gf.batch(samples, max_tokens=3, length=lambda sample: 1), 3)

    @pytest.mark.parametrize(
        "decorate",
        [
            lambda reader: gf.reader.buffered(reader, 2),
            gf.reader.cache,
            lambda reader: gf.reader.shuffle(reader, 1),
            lambda reader: gf.reader.firstn(reader, 9),
            lambda reader: gf.reader.repeat(reader, 1),
            lambda reader: gf.reader.shard(reader, 1, 0),
            lambda reader: gf.reader.skip(reader, 0),
            lambda reader: gf.reader.filter(len, reader),
            lambda reader: gf.reader.take_while(len, gf.reader.buffered(reader, 2)),
            lambda reader: gf.reader.firstn(gf.reader.replay(reader, 4), 4),
        ],
    )
    def test_it_is_recognised_below_stages_that_pass_batches_on(self, decorate):
        reader = decorate(gf.batch(samples, 3))
        assert train(reader, 3) == train(reader, None) == THREES
        with pytest.raises(FieldError, match=r"train\.batch_size must be 3"):
            train(reader, 4)

    def test_batches_of_a_provider_are_recognised(self):
        from gpufeed.provider import integer_value, provider

        @provider(input_types={"x": integer_value(10)})
        def process(settings, filename):
            yield from range(NUM_SAMPLES)

        test = process(["any"], is_train=False)
        assert train(test.batches(3), 3) == train(test, 3) == THREES

    def test_without_a_size_the_reader_yields_batches(self):
        assert train(batches_of(3), None) == THREES

    def test_batches_may_grow(self):
        def growing():
            numbers = samples()
            for size in count(1):
                batch = list(islice(numbers, size))
                if not batch:
                    return
                yield batch

        expected = [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9]]
        assert train(growing, None) == expected
        assert train(samples, lambda epoch, number: number + 1) == expected

    def test_batches_are_not_taken_for_samples(self):
        """Of which the mapping would take the first of each."""
        seen = []
        with pytest.raises(FieldError, match=r"train\.batch_size must be None for a reader of"):
            train(batches_of(3), 2, step=seen.append)
        assert seen == []

    def test_samples_that_are_lists(self):
        assert train(lambda: ([number] for number in range(4)), 3) == [[0, 1, 2], [3]]

    def test_readers_that_never_end(self):
        def online():
            return ((number,) for number in count())

        class EnoughError(Exception):
            pass

        seen = []

        def step(feed):
            seen.extend(values(feed))
            if len(seen) >= 50:
                raise EnoughError

        with pytest.raises(EnoughError):
            train(online, 10, step=step)
        assert seen == list(range(50))
        assert train(gf.reader.firstn(online, 3), 2) == [[0, 1], [2]]

    def test_readers_of_record_batches(self):
        whole = gf.ColumnarBatch({"x": np.arange(NUM_SAMPLES)})
        seen = []
        gf.train(
            *(lambda: [whole], None, 4, 1),
            step=lambda feed: seen.append(values(feed)),
            feed_list=["x"],
            places="cpu",
        )
        assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


class TestMapping:
    def test_items_are_skipped_and_used_twice(self):
        gf.data("y", [1], "int64")
        gf.data("again", [1], "int64")
        rows = [(1, "unused", 10), (2, "unused", 20)]
        feeds = []
        gf.train(
            *(lambda: rows, {"x": 0, "y": 2, "again": 2}, 2, 1), step=feeds.append, places="cpu"
        )
        [feed] = feeds
        assert {name: tensor.to_list() for name, tensor in feed.items()} == {
            "x": [[1], [2]],
            "y": [[10], [20]],
            "again": [[10], [20]],
        }

    def test_variables_are_those_of_the_mapping_unless_listed(self):
        other = gf.Program()
        with gf.program_guard(other):
            x = gf.data("x", [1], "float32")
        seen = []
        gf.train(
            *(samples, {"x": 0}, 10, 1),
            step=lambda feed: seen.append(feed["x"].dtype),
            feed_list=[x],
            program=other,
            places="cpu",
        )
        assert seen == [np.float32]

    def test_without_a_mapping_items_go_by_position(self):
        seen = []
        gf.train(
            *(samples, None, 10, 1),
            step=lambda feed: seen.append(values(feed)),
            feed_list=["x"],
            places="cpu",
        )
        assert seen == [list(range(10))]
        with pytest.raises(FieldError, match=r"train\.mapping must map names .* got None"):
            gf.train(samples, None, 10, 1, step=print, places="cpu")

    def test_names_that_are_not_declared(self):
        with pytest.raises(FieldError, match="var y not in this block"):
            gf.train(samples, {"y": 0}, 10, 1, step=print, places="cpu")
        with pytest.raises(FieldError, match="feeding must name"):
            gf.train(samples, {"y": 0}, 10, 1, step=print, places="cpu", feed_list=["x"])

    def test_loose_conversion(self):
        assert train(lambda: [(1.5,)], 1, strict=False) == [[1]]


class TestEvents:
    def test_they_come_around_each_pass_and_step(self):
        events = []
        train(samples, 6, 2, step=lambda feed: len(values(feed)), event_handler=events.append)
        told = [(type(event).__name__, *_numbers(event)) for event in events]
        assert told == [
            entry
            for pass_id in (0, 1)
            for entry in (
                ("BeginPass", pass_id),
                ("BeginIteration", pass_id, 0),
                ("EndIteration", pass_id, 0, 6),
                ("BeginIteration", pass_id, 1),
                ("EndIteration", pass_id, 1, 4),
                ("EndPass", pass_id),
            )
        ]

    def test_a_step_comes_between_its_events(self):
        order = []
        train(
            samples,
            10,
            step=lambda feed: order.append("step"),
            event_handler=lambda event: order.append(type(event).__name__),
        )
        assert order == ["BeginPass", "BeginIteration", "step", "EndIteration", "EndPass"]

    @pytest.mark.parametrize(
        ("result", "cost", "metrics"),
        [
            (0.5, 0.5, {}),
            (None, None, {}),
            ({"cost": 0.5, "error": 0.1}, 0.5, {"cost": 0.5, "error": 0.1}),
            ({"error": 0.1}, None, {"error": 0.1}),
        ],
    )
    def test_what_a_step_returns_is_told(self, result, cost, metrics):
        events = []
        train(samples, 10, step=lambda feed: result, event_handler=events.append)
        [end] = [event for event in events if isinstance(event, gf.EndIteration)]
        assert (end.result, end.cost, end.metrics) == (result, cost, metrics)

    def test_an_empty_reader_has_passes_without_steps(self):
        events = []
        assert train(list, 3, 2, event_handler=events.append) == []
        assert [type(event) for event in events] == [gf.BeginPass, gf.EndPass] * 2

    def test_they_can_be_compared_and_shown(self):
        assert gf.BeginIteration(1, 2) == gf.BeginIteration(pass_id=1, batch_id=2)
        events = []
        train(samples, 10, event_handler=events.append)
        assert repr(events[-2]) == "EndIteration(pass_id=0, batch_id=0, result=None)"


def _numbers(event):
    names = ("pass_id", "batch_id", "result")
    return [getattr(event, name) for name in names if hasattr(event, name)]


class TestState:
    def make(self):
        return gf.batch(gf.reader.shuffle(samples, 4, seed=1), 3)

    def whole_run(self):
        """All steps, and the state after each step and each pass, with the steps that follow it."""
        states, seen = [], []

        def handle(event):
            if isinstance(event, (gf.EndIteration, gf.EndPass)):
                states.append((json.loads(json.dumps(event.state_dict())), len(seen)))

        train(self.make(), 3, 3, step=lambda feed: seen.append(values(feed)), event_handler=handle)
        return seen, states

    def test_training_goes_on_where_a_state_was_taken(self):
        seen, states = self.whole_run()
        assert len(seen) == 12
        assert seen[:4] != seen[4:8]
        assert len(states) == 15
        for state, num_steps in states:
            assert train(self.make(), None, 3, state=state) == seen[num_steps:]

    def test_numbers_of_passes_and_steps_go_on(self):
        _, states = self.whole_run()
        after_two_steps, at_the_end_of_pass_0 = states[1][0], states[4][0]
        events = []
        train(self.make(), 3, 1, state=after_two_steps, event_handler=events.append)
        assert [_numbers(event)[:2] for event in events[:3]] == [[0], [0, 2], [0, 2]]
        events.clear()
        train(self.make(), 3, 3, state=at_the_end_of_pass_0, event_handler=events.append)
        assert [_numbers(event)[:2] for event in events[:2]] == [[1], [1, 0]]

    def test_the_last_step_of_a_pass_is_not_yet_its_end(self):
        _, states = self.whole_run()
        events = []
        train(self.make(), 3, 1, state=states[3][0], event_handler=events.append)
        assert events == [gf.BeginPass(0), gf.EndPass(0, dict)]

    def test_nothing_is_left_to_do(self):
        _, states = self.whole_run()
        events = []
        assert train(self.make(), 3, 3, state=states[-1][0], event_handler=events.append) == []
        assert events == []

    def test_on_many_places(self):
        def run(**options):
            seen = []
            train(
                self.make(),
                3,
                2,
                step=lambda feeds: seen.append([values(feed) for feed in feeds]),
                places=["cpu", "cpu"],
                **options,
            )
            return seen

        states = []

        def handle(event):
            if isinstance(event, gf.EndIteration):
                states.append(event.state_dict())

        whole = run(event_handler=handle)
        assert run(state=states[0]) == whole[1:]

    def test_a_shuffle_without_a_seed_has_none(self):
        def handle(event):
            if isinstance(event, gf.EndIteration):
                event.state_dict()

        with pytest.raises(ReaderError, match="shuffle has no seed"):
            train(gf.reader.shuffle(samples, 4), 3, event_handler=handle)

    def test_samples_and_a_size_are_the_same_pipeline_as_a_batch_reader(self):
        seen, states = self.whole_run()
        shuffled = gf.reader.shuffle(samples, 4, seed=1)
        assert train(shuffled, 3, 3, state=states[1][0]) == seen[2:]

    def test_a_state_of_another_pipeline_is_refused(self):
        _, states = self.whole_run()
        with pytest.raises(ReaderError, match="fingerprint"):
            train(samples, 3, state=states[0][0])


class TestPlaces:
    def test_a_list_of_places_gets_a_list_of_feeds(self):
        with gf.virtual_devices(2):
            feeds = []
            train(samples, 3, step=feeds.append, places=gf.cuda_places())
            got = [[values(feed) for feed in step] for step in feeds]
            assert got == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9]]]
            assert [str(feed.place) for feed in feeds[0]] == ["cuda:0", "cuda:1"]

    @pytest.mark.parametrize(
        ("options", "last"),
        [
            ({}, [[[8, 9], []]]),
            ({"remainder": "partial"}, [[[8, 9]]]),
            ({"remainder": None}, []),
        ],
    )
    def test_nothing_is_left_out_unless_asked_for(self, options, last):
        seen = []
        train(
            samples,
            4,
            step=lambda feeds: seen.append([values(feed) for feed in feeds]),
            places=["cpu", "cpu"],
            **options,
        )
        if "remainder" not in options:
            last = [[[8], [9]]]
        assert seen == [[[0, 1, 2, 3], [4, 5, 6, 7]], *last]

    def test_drop_last_is_that_of_decorate_reader(self):
        with pytest.raises(FieldError, match="1 batches are left over"):
            train(samples, 4, step=list, places=["cpu"] * 2, remainder=None, drop_last=False)

    def test_one_place_in_a_list_is_a_list(self):
        kinds = set()
        train(samples, 3, step=lambda feeds: kinds.add(type(feeds)), places=["cpu"])
        assert kinds == {list}

    def test_by_default_the_first_device_there_is(self):
        places = []
        with gf.virtual_devices(2):
            assert [str(place) for place in gf.present_places()] == ["cuda:0", "cuda:1"]
            train(samples, 10, step=lambda feed: places.append(str(feed.place)), places=None)
        assert places == ["cuda:0"]

    def test_a_place_that_is_not_there(self):
        with gf.virtual_devices(1), pytest.raises(PlaceError, match="there are 1 virtual devices"):
            train(samples, 10, places="cuda:1")


class TestFailure:
    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_an_error_of_the_reader_comes_after_what_was_read_before_it(self, prefetch):
        seen = []
        reader = gf.reader.map_readers(lambda number: (number,), failing(5))
        with pytest.raises(BrokenError) as caught:
            train(reader, 2, step=lambda feed: seen.append(values(feed)), prefetch=prefetch)
        assert seen == [[0, 1], [2, 3], [4]]
        assert "read_until_broken" in function_names(caught.value)

    @pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
    @pytest.mark.parametrize("where", ["step", "event_handler"])
    def test_an_error_of_the_user_closes_what_is_open(self, where, error):
        watched = Watched(1000)
        fail = {where: lambda given: (_ for _ in ()).throw(error())}
        with pytest.raises(error):
            train(gf.reader.map_readers(lambda number: (number,), watched), 2, **fail)
        assert watched.num_open == 0
        assert not [each for each in threading.enumerate() if each.name.startswith("gpufeed-")]

    def test_a_sample_that_does_not_fit_is_named(self):
        with pytest.raises(FieldError, match="field 'x', sample 1: expected int64") as caught:
            train(lambda: [(1,), (2,), (3,), ("four",)], 2, prefetch=0)
        assert "in step 1 of this pass" in caught.value.__notes__

    @pytest.mark.parametrize(
        ("argument", "given", "error", "message"),
        [
            ("step", None, TypeError, "train.step must be callable, got None"),
            ("event_handler", 3, TypeError, "train.event_handler must be callable, got 3"),
            ("total_pass", 0, FieldError, "train.total_pass must be a whole number >= 1, got 0"),
            ("batch_size", 0, FieldError, "batch.batch_size must be a whole number >= 1, got 0"),
            ("reader", [1], TypeError, "reader must be callable"),
            ("mapping", [1], FieldError, "train.mapping must map names"),
            ("prefetch", -1, FieldError, "decorate_reader.prefetch must be"),
            ("drop_last", True, FieldError, "train.remainder must be None for drop_last to have"),
            ("remainder", "x", FieldError, "decorate_reader.remainder must be"),
            ("prefetsch", 1, TypeError, "prefetsch"),
            ("num_places", 1, TypeError, "num_places"),
            ("multi_devices", True, TypeError, "multi_devices"),
        ],
    )
    def test_arguments_are_checked_before_anything_is_read(self, argument, given, error, message):
        watched = Watched(4)
        arguments = {
            "reader": watched,
            "mapping": {"x": 0},
            "batch_size": 2,
            "total_pass": 1,
            "step": list,
            "places": "cpu",
        }
        with pytest.raises(error, match=message):
            gf.train(**{**arguments, argument: given})
        assert watched.num_read == 0


class TestMemory:
    @pytest.mark.parametrize("events", [{}, {"event_handler": lambda event: None}])
    def test_a_feed_is_gone_when_the_next_one_is_there(self, events):
        """Or its slab could not be used again."""
        arrays, num_alive = [], []

        def step(feed):
            arrays.append(weakref.ref(feed["x"].data))
            num_alive.append(sum(array() is not None for array in arrays))

        train(samples, 2, 2, step=step, **events)
        assert num_alive == [1] * 10


class TestProgress:
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def test_a_bar_on_a_terminal(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", self.Terminal())
        train(samples, 3)
        assert "samples" in sys.stderr.getvalue()
        sys.stderr.truncate(0)
        train(samples, 3, progress=False)
        assert sys.stderr.getvalue().strip("\0") == ""

    @pytest.mark.parametrize("stderr", [io.StringIO(), None])
    def test_none_elsewhere(self, monkeypatch, stderr):
        monkeypatch.setattr(sys, "stderr", stderr)
        train(samples, 3)
        assert stderr is None or stderr.getvalue() == ""

    def test_stats_say_where_the_time_went(self):
        stats = gf.train(samples, {"x": 0}, 3, 2, step=list, places="cpu")
        assert (stats.num_steps, stats.num_samples) == (8, 20)
        assert "the loop waits" in stats.bottleneck
