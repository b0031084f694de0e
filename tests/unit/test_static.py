import pickle
from contextlib import nullcontext

import numpy as np
import pytest
from support.feeding import batch, held, make_feeder, make_reader

from gpufeed.device.virtual import VirtualStream, virtual_devices, virtual_stream
from gpufeed.errors import FieldError, PlaceError, ReaderError
from gpufeed.feeder import DataFeeder
from gpufeed.static import StaticFeed, StaticSlot
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard

BOUNDS = {"ids": (6, 60), "label": 6}


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request):
    with virtual_devices(2, seed=5, jitter=True):
        yield request.param


def make_static(place, num=12, make=batch, static=BOUNDS, **options):
    return make_feeder(place).decorate_reader(make_reader(num, make), static=static, **options)


def feeder_of(*fields, place="cpu"):
    with program_guard(Program()):
        return DataFeeder([data(**field) for field in fields], place)


def assert_holds_padded(feed, samples):
    """Check, on the host and now, the values and all padding of a static feed."""
    rows = np.concatenate([np.empty(0, np.int64), *[row for row, _ in samples]])
    ends = np.cumsum([0, *[len(row) for row, _ in samples]])
    ids, labels = np.zeros((60, 1), np.int64), np.zeros((6, 1), np.int64)
    ids[: len(rows), 0] = rows
    labels[: len(samples), 0] = [label for _, label in samples]
    np.testing.assert_array_equal(feed["ids"].data, ids)
    np.testing.assert_array_equal(feed["label"].data, labels)
    padded = np.append(ends, [ends[-1]] * (6 - len(samples)))
    np.testing.assert_array_equal(feed["ids"].cu_seqlens(), padded)
    assert feed["ids"].lod() == [ends.tolist()]
    assert len(feed["ids"]) == feed.num_samples == len(samples)


def of_any_size(number):
    return batch(number, (4, 0, 6, 1, 3)[number % 5])


def addresses(feed):
    arrays = [feed["ids"].data, feed["ids"].cu_seqlens(), feed["label"].data]
    return [array.ctypes.data for array in arrays]


class TestStaticFeed:
    @pytest.mark.parametrize("prefetch", [0, 1, 3])
    def test_holds_each_batch_and_padding(self, place, prefetch):
        reader = make_static(place, make=of_any_size, prefetch=prefetch)
        for number, feed in enumerate(reader):
            assert_holds_padded(feed, of_any_size(number))
        assert number == 11

    def test_is_one_object_at_one_address_from_pass_to_pass(self, place):
        reader = make_static(place, make=of_any_size)
        feeds = [feed for _ in range(2) for feed in reader]
        assert len(feeds) == 24
        assert len({id(feed) for feed in feeds}) == 1
        reader = make_static(place, make=of_any_size)
        assert len({tuple(addresses(feed)) for _ in range(2) for feed in reader}) == 1

    def test_knows_its_place_and_keys(self, place):
        (feed,) = make_static(place, 1)
        assert isinstance(feed, StaticFeed)
        assert list(feed) == ["ids", "label"]
        assert {str(feed.place), str(feed["ids"].place)} == {place}

    def test_takes_bounds_from_shapes_where_these_say_them(self, place):
        feeder = feeder_of({"name": "x", "shape": [3, 2], "append_batch_size": False}, place=place)
        rows = [np.full((3, 2), number, np.float32) for number in range(5)]
        reader = feeder.decorate_reader(lambda: map(list, rows), static=True)
        assert [feed["x"].data.ravel().tolist() for feed in reader] == [[n] * 6 for n in range(5)]

    def test_holds_what_kernels_unpacked(self, place):
        feeder = feeder_of(
            {"name": "image", "shape": [4], "wire_dtype": "uint8", "scale": 2.0},
            {"name": "word", "shape": [8], "layout": "sparse_binary", "densify": True},
            place=place,
        )
        batches = [[([number] * 4, [number % 8])] * (1 + number % 3) for number in range(9)]
        reader = feeder.decorate_reader(lambda: batches, static={"image": 3, "word": 3})
        for number, feed in enumerate(reader):
            size = 1 + number % 3
            wanted = np.zeros((3, 4)), np.zeros((3, 8))
            wanted[0][:size], wanted[1][:size, number % 8] = 2.0 * number, 1
            np.testing.assert_array_equal(feed["image"].data, wanted[0])
            np.testing.assert_array_equal(feed["word"].data, wanted[1])

    def test_pads_every_level_of_nested_sequences(self, place):
        feeder = feeder_of(
            {"name": "x", "shape": [1], "dtype": "int64", "lod_level": 2}, place=place
        )
        batches = [[([[1, 2], [], [3]],), ([[4]],)], [([],)]]
        reader = feeder.decorate_reader(lambda: batches, static={"x": (3, 5, 6)})
        feeds = reader()
        tensor = next(feeds)["x"]
        assert tensor.lod() == [[0, 3, 4], [0, 2, 2, 3, 4]]
        assert tensor.cu_seqlens(0).tolist() == [0, 3, 4, 4]
        assert tensor.cu_seqlens(1).tolist() == [0, 2, 2, 3, 4, 4]
        assert tensor.data.ravel().tolist() == [1, 2, 3, 4, 0, 0]
        tensor = next(feeds)["x"]
        assert tensor.lod() == [[0, 0], [0]]
        assert not tensor.cu_seqlens(0).any()
        assert not tensor.data.any()
        feeds.close()

    def test_one_for_each_of_many_places(self):
        with virtual_devices(2, seed=5, jitter=True):
            reader = make_static(["cuda:0", "cuda:0", "cuda:1"], multi_devices=True)
            numbers = iter(range(12))
            for feeds in reader:
                assert len({id(feed) for feed in feeds}) == 3
                for feed in feeds:
                    assert_holds_padded(feed, batch(next(numbers)))
            assert list(numbers) == []


class TestStaticTensor:
    @pytest.fixture
    def tensor(self, place):
        feeds = make_static(place, make=lambda number: batch(number + 1))()
        self.rows = [row.tolist() for row, _ in batch(1)]
        yield next(feeds)["ids"]
        feeds.close()

    def test_is_the_batch_but_for_its_arrays(self, tensor):
        as_lists = [[[value] for value in row] for row in self.rows]
        assert tensor.to_list() == as_lists
        assert [row.ravel().tolist() for row in tensor] == self.rows
        assert tensor[1].ravel().tolist() == self.rows[1]
        assert tensor[[2, 0]].to_list() == [as_lists[2], as_lists[0]]
        assert [part.to_list() for part in tensor.split(2)] == [as_lists[:2], as_lists[2:]]
        assert LoDTensor.merge([tensor, tensor]).to_list() == as_lists * 2
        assert tensor.to("cpu").to_list() == as_lists
        assert pickle.loads(pickle.dumps(tensor)).to_list() == as_lists
        padded, lengths = tensor.to_padded()
        assert lengths.tolist() == [len(row) for row in self.rows]
        assert padded[1].ravel().tolist()[: lengths[1]] == self.rows[1]
        assert len(tensor.segment_ids()) == len(tensor.positions()) == sum(map(len, self.rows))

    def test_without_padding_is_a_view(self, tensor):
        exact = tensor[:]
        assert type(exact) is LoDTensor
        assert exact.shape == (sum(map(len, self.rows)), 1)
        assert np.shares_memory(exact.data, tensor.data)

    def test_is_saved_and_shared_as_the_batch(self, tensor, tmp_path):
        tensor.save(tmp_path / "ids")
        assert LoDTensor.load(tmp_path / "ids").to_list() == tensor.to_list()
        if tensor.place == LoDTensor([1]).place:
            assert tensor.to_arrow().to_pylist() == [[[v] for v in row] for row in self.rows]

    def test_moved_to_its_own_place_is_itself(self, tensor):
        assert tensor.to(tensor.place) is tensor


class TestBounds:
    @pytest.mark.parametrize(
        ("static", "message"),
        [
            (True, r"static\['ids'\] must be \(most sequences, most rows\), got None"),
            ({"ids": 60, "label": 6}, r"static\['ids'\] must be \(most sequences, .* got 60"),
            ({"ids": (6, 60)}, r"static\['label'\] must be \(most rows\), got None"),
            ({"ids": (6, -1), "label": 6}, r"static\['ids'\] must be .* -1"),
            ({"ids": (6, 2**31), "label": 6}, r"static\['ids'\] must be at most 2147483647"),
            (60, "static must be True or a mapping, got 60"),
            ({**BOUNDS, "tags": 3}, "static must name fields of the feeder, got tags"),
        ],
    )
    def test_fit_the_fields(self, static, message):
        with pytest.raises(FieldError, match=message):
            make_static("cpu", static=static)

    @pytest.mark.parametrize(
        ("field", "message"),
        [
            ({"shape": [8], "layout": "sparse_binary"}, "dense on the device; use densify=True"),
            ({"shape": [None, -1]}, r"rows have one shape, got \(-1,\)"),
        ],
    )
    def test_are_of_fields_that_can_stay_in_place(self, field, message):
        feeder = feeder_of({"name": "x", **field})
        with pytest.raises(FieldError, match=message):
            feeder.decorate_reader(make_reader(1), static={"x": 4})

    @pytest.mark.parametrize(
        ("samples", "message"),
        [
            (batch(0, 7), "field 'ids': expected at most 6 sequences of a static feed, got 7"),
            (
                [(np.arange(61), 0)],
                "field 'ids': expected at most 60 rows of a static feed, got 61",
            ),
        ],
    )
    def test_a_batch_beyond_them_is_an_error_and_the_next_pass_works(self, place, samples, message):
        fails = [True]

        def read():
            yield batch(0)
            yield samples if fails.pop() else batch(1)

        reader = make_feeder(place).decorate_reader(read, static=BOUNDS)
        feeds = reader()
        assert_holds_padded(next(feeds), batch(0))
        with pytest.raises(FieldError, match=message):
            next(feeds)
        fails.append(False)
        for number, feed in enumerate(reader):
            assert_holds_padded(feed, batch(number))

    def test_one_pass_at_a_time(self, place):
        reader = make_static(place)
        first, second = reader(), reader()
        next(first)
        with pytest.raises(ReaderError, match="one pass at a time"):
            next(second)
        first.close()
        assert_holds_padded(next(reader()), batch(0))


class TestStreams:
    @pytest.fixture(autouse=True)
    def devices(self):
        with virtual_devices(1, seed=9, jitter=True):
            yield

    def replay_on_every_feed(self, prefetch=2, steps=24, hold=lambda stream: nullcontext()):
        """Capture what reads the feed once, and replay it for every step without looking back."""
        reader = make_static("cuda:0", steps, of_any_size, prefetch=prefetch)
        seen, graph = [], None
        with virtual_stream("cuda:0") as stream, hold(stream):
            for feed in reader:
                if graph is None:
                    arrays = [feed["ids"].data, feed["label"].data, feed["ids"].cu_seqlens()]
                    with stream.capture() as graph:
                        stream.call(lambda read=arrays: seen.append([a.copy() for a in read]))
                graph.launch(stream)
        for number, (ids, labels, ends) in enumerate(seen):
            rows = [row for row, _ in of_any_size(number)]
            assert labels.ravel()[: len(rows)].tolist() == [number] * len(rows)
            total = sum(map(len, rows))
            assert ids.ravel()[:total].tolist() == [v for row in rows for v in row.tolist()]
            assert not ids[total:].any()
            assert ends[len(rows) :].tolist() == [total] * (7 - len(rows))
        return len(seen)

    @pytest.mark.parametrize("prefetch", [0, 1, 3])
    def test_a_captured_graph_sees_every_batch(self, prefetch):
        assert self.replay_on_every_feed(prefetch) == 24

    def test_and_would_not_if_the_copy_were_not_in_the_consumers_order(self, monkeypatch):
        update = StaticSlot.update
        monkeypatch.setattr(
            StaticSlot, "update", lambda self, feed, consumers: update(self, feed, [])
        )
        with pytest.raises(AssertionError):  # as many steps as can be taken while it is held
            self.replay_on_every_feed(prefetch=2, steps=4, hold=held)

    def read_on_a_side_stream(self, *, is_waited_for):
        """Read every step on another stream, which is held until all have been taken."""
        seen, side = [], VirtualStream()
        with virtual_stream("cuda:0") as stream:
            with held(side):
                for feed in make_static("cuda:0", 24):
                    side.wait(stream.record())
                    label = feed["label"].data
                    side.call(lambda label=label: seen.append(int(label[0, 0])))
                    feed["label"].record_stream(side)
                if not is_waited_for:
                    stream.synchronize()
            side.synchronize()
        side.close()
        return seen

    def test_a_recorded_stream_is_waited_for(self):
        assert self.read_on_a_side_stream(is_waited_for=True) == list(range(24))

    def test_and_has_to_be(self, monkeypatch):
        monkeypatch.setattr(StaticSlot, "_wait_for_readers", lambda self, consumers: None)
        assert self.read_on_a_side_stream(is_waited_for=False) == [23] * 24

    def test_another_stream_for_each_step(self):
        feeds, seen = make_static("cuda:0", 12)(), []
        for _ in range(12):
            with virtual_stream("cuda:0") as stream:
                label = next(feeds)["label"].data
                stream.call(lambda label=label: seen.append(int(label[0, 0])))
        assert seen == list(range(12))

    def test_the_next_step_cannot_be_taken_in_a_capture(self):
        feeds = make_static("cuda:0", 12)()
        with virtual_stream("cuda:0") as stream:
            next(feeds)
            with stream.capture(), pytest.raises(PlaceError, match="outside of graph capture"):
                next(feeds)

    def test_nor_while_a_recorded_stream_is_captured(self):
        feeds, side = make_static("cuda:0", 12)(), VirtualStream()
        next(feeds)["ids"].record_stream(side)
        with side.capture(), pytest.raises(PlaceError, match="must not be captured"):
            next(feeds)
        side.close()
