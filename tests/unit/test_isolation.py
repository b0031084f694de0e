"""Feeds that are collated in a process of its own are those that are collated here."""

import os
import signal
import threading

import numpy as np
import pytest
from support.elsewhere import collating_here
from support.feeding import assert_holds, batch, make_feeder, make_reader

from gpufeed.device.virtual import virtual_devices
from gpufeed.errors import FieldError, ReaderError, WorkerDied
from gpufeed.feeder import DataFeeder
from gpufeed.grouping import deal
from gpufeed.reader import batch as batched
from gpufeed.reader import shuffle
from gpufeed.testing import assert_equal
from gpufeed.variables import Program, data, program_guard


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request):
    with virtual_devices(2, seed=6, jitter=True):
        yield request.param


def feeder_of(place="cpu", strict=True, feeding=None, **fields):
    with program_guard(Program()):
        variables = [data(name, **said) for name, said in fields.items()]
        return DataFeeder(variables, place, strict=strict, feeding=feeding)


def assert_the_same(feeder, batches, **options):
    """Check that batches come out of another process as they come out of this one."""
    here = list(feeder.decorate_reader(lambda: batches, **options))
    there = list(feeder.decorate_reader(lambda: batches, isolate=True, **options))
    assert len(here) == len(there) == len(batches)
    for one, other in zip(here, there, strict=True):
        assert list(one) == list(other)
        for name in one:
            assert_equal(one[name].to("cpu"), other[name].to("cpu"))


class TestFeeds:
    @pytest.mark.parametrize("prefetch", [0, 1, 3])
    def test_come_in_order(self, place, prefetch):
        reader = make_feeder(place).decorate_reader(
            make_reader(12), prefetch=prefetch, isolate=True
        )
        for number, feed in enumerate(reader):
            assert_holds(feed, batch(number))
        assert number == 11

    def test_that_are_kept_keep_their_values(self, place):
        feeds = list(make_feeder(place).decorate_reader(make_reader(40), isolate=True))
        for number, feed in enumerate(feeds):
            assert_holds(feed, batch(number))

    def test_are_made_in_another_process(self):
        feeder = feeder_of(x={"shape": [1], "dtype": "int64"})
        (feed,) = feeder.decorate_reader(lambda: [[os.getpid()]], isolate=True)
        assert feed["x"].to_list() != [[os.getpid()]]

    def test_of_large_arrays(self, place):
        rows = [[np.full(30_000, number, np.int64)] for number in range(5)]
        batches = [[(row, number) for row in rows[number]] for number in range(5)]
        assert_the_same(make_feeder(place), batches)

    def test_of_every_kind_of_field(self, place):
        """Of each alone, `tests.property.test_isolation_laws` without the process."""
        fields = {
            "plain": ({"shape": [3]}, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
            "scaled": ({"shape": [2], "wire_dtype": "uint8", "scale": 0.5}, [[1, 2], [3, 255]]),
            "ids": ({"shape": [1], "dtype": "int64", "wire_dtype": "auto"}, [3, 70_000]),
            "flags": ({"shape": [1], "dtype": "bool", "wire_dtype": "auto"}, [True, False]),
            "words": ({"shape": [1], "dtype": "int64", "lod_level": 2}, [[[1, 2], []], []]),
            "tags": ({"shape": [6], "layout": "sparse_binary"}, [[0, 5], []]),
            "bag": ({"shape": [6], "layout": "sparse_float", "densify": True}, [[(1, 2.5)], []]),
            "again": ({"shape": [6], "layout": "sparse_binary", "densify": "reuse"}, [[1], [2]]),
        }
        samples = list(zip(*(values for _, values in fields.values()), strict=True))
        feeder = feeder_of(place, **{name: declared for name, (declared, _) in fields.items()})
        assert_the_same(feeder, [samples, [], samples[:1], samples])

    def test_of_fields_that_are_taken_by_number_or_name(self, place):
        fields = {"a": {"shape": [1]}, "b": {"shape": [1], "dtype": "int64"}}
        assert_the_same(feeder_of(place, feeding={"a": 2, "b": 0}, **fields), [[(1, "-", 2.5)]])
        assert_the_same(feeder_of(place, **fields), [[{"b": 1, "a": 2.5}]])

    def test_of_samples_that_are_converted_as_the_reference_does(self, place):
        feeder = feeder_of(place, strict=False, x={"shape": [1], "dtype": "int8"})
        assert_the_same(feeder, [[(300.7,)], [(-1,)]])

    def test_that_are_static(self, place):
        reader = make_feeder(place).decorate_reader(
            make_reader(6), isolate=True, static={"ids": (4, 60), "label": 4}
        )
        seen = [feed["label"].to("cpu").to_list() for feed in reader]
        assert seen == [[[number]] * 4 for number in range(6)]

    def test_of_many_devices_and_what_is_left_over(self):
        with virtual_devices(2):
            reader = make_feeder(["cuda:0", "cuda:1"]).decorate_reader(
                make_reader(5), multi_devices=True, remainder="split", isolate=True
            )
            steps = [[feed["label"].to("cpu").to_list() for feed in feeds] for feeds in reader]
        parts = [[[label] for _, label in part] for part in deal(batch(4), 2)]
        assert steps == [[[[0]] * 4, [[1]] * 4], [[[2]] * 4, [[3]] * 4], parts]

    def test_that_are_left_over_may_have_travelled_as_different_dtypes(self):
        """Each batch as narrow as its own values allow, and two of them on three devices."""
        with virtual_devices(3), collating_here():
            places = ["cuda:0", "cuda:1", "cuda:2"]
            feeder = feeder_of(places, x={"shape": [1], "dtype": "int64", "wire_dtype": "auto"})
            (step,) = feeder.decorate_reader(
                lambda: [[-1, -2], [200]], multi_devices=True, remainder="split", isolate=True
            )
            assert [feed["x"].to("cpu").to_list() for feed in step] == [[[-1]], [[-2]], [[200]]]


class TestState:
    def make(self, isolate):
        samples = shuffle(lambda: (batch(n, 1)[0] for n in range(40)), 16, seed=5)
        return make_feeder("cpu").decorate_reader(batched(samples, 4), isolate=isolate)

    def labels(self, feeds):
        return [feed["label"].data.ravel().tolist() for feed in feeds]

    @pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
    def test_goes_on_in_either_process(self, first, second):
        wanted = self.labels(self.make(isolate=False))
        feeds = (reader := self.make(first))()
        taken = self.labels(next(feeds) for _ in range(3))
        state = reader.state_dict()
        feeds.close()
        again = self.make(second)
        again.load_state_dict(state)
        assert taken + self.labels(again) == wanted

    def test_goes_on_with_the_same_batch_on_the_same_of_several_places(self):
        with virtual_devices(1):
            feeder = make_feeder(["cpu", "cuda:0", "cpu"])

            def make():
                return feeder.decorate_reader(make_reader(12), multi_devices=True, isolate=True)

            feeds = (reader := make())()
            next(feeds)
            state = reader.state_dict()
            feeds.close()
            (again := make()).load_state_dict(state)
            for step, feeds in enumerate(again, 1):
                assert [str(feed.place) for feed in feeds] == ["cpu", "cuda:0", "cpu"]
                for part, feed in enumerate(feeds):
                    assert_holds(feed, batch(3 * step + part))
            assert step == 3


class TestFaults:
    def test_a_sample_that_does_not_fit_is_named_with_its_batch(self, place):
        def read():
            yield batch(0)
            yield [([1], 0), ([1.5], 0)]

        feeds = make_feeder(place).decorate_reader(read, isolate=True)()
        assert_holds(next(feeds), batch(0))
        with pytest.raises(FieldError, match="'ids', sample 1") as caught:
            next(feeds)
        assert "mini-batch 1 of this pass" in "".join(
            [*map(str, caught.value.__notes__), str(caught.value)]
        )

    def test_what_came_before_it_in_shared_memory_arrives(self, place):
        """Of many ahead, several go at once; the last one fails while it is written."""

        def read():
            yield from map(batch, range(5))
            yield [([1], 0), ([2], 1 << 70)]

        feeds = make_feeder(place).decorate_reader(read, isolate=True, prefetch=16)()
        for number in range(5):
            assert_holds(next(feeds), batch(number))
        with pytest.raises(FieldError, match="'label', sample 1"):
            next(feeds)

    def test_values_that_the_wire_cannot_carry_are_refused(self):
        feeder = feeder_of(x={"shape": [1], "wire_dtype": "uint8"})
        with pytest.raises(FieldError, match=r"'x', sample 0.* got 300"):
            list(feeder.decorate_reader(lambda: [[(300,)]], isolate=True))

    @pytest.mark.parametrize("densify", [False, True, "reuse"])
    def test_an_index_that_is_checked_on_the_device_is_found_there(self, place, densify):
        with program_guard(Program()):
            tags = data("tags", [9], layout="sparse_binary", densify=densify)
            feeder = DataFeeder([tags], place, check_indices="device")
        told = []
        for isolate in (False, True):
            with collating_here():
                feeds = feeder.decorate_reader(
                    lambda: [[([1, 2],)], [([3],), ([1, 20],)]], prefetch=0, isolate=isolate
                )
            with pytest.raises(FieldError, match=r"'tags', sample 1: .* got 20") as caught:
                list(feeds)
            told.append(caught.value.__notes__)
        assert told[0] == told[1]

    def test_a_process_that_is_killed_is_named_after_what_it_made(self):
        def read():
            yield batch(0)
            os.kill(os.getpid(), signal.SIGKILL)

        feeds = make_feeder("cpu").decorate_reader(read, isolate=True)()
        assert_holds(next(feeds), batch(0))
        with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
            next(feeds)

    def test_a_reader_that_cannot_be_pickled_is_named(self):
        lock = threading.Lock()

        def read():
            with lock:
                yield batch(0)

        with pytest.raises(ReaderError, match="must be picklable"):
            list(make_feeder("cpu").decorate_reader(read, isolate=True))

    @pytest.mark.parametrize("num", [0, 1, 5])
    def test_a_pass_that_is_left_leaves_nothing(self, place, num):
        reader = make_feeder(place).decorate_reader(make_reader(1000), isolate=True)
        for _ in range(2):
            feeds = reader()
            for number in range(num):
                assert_holds(next(feeds), batch(number))
            feeds.close()
