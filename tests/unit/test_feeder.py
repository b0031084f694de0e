from __future__ import annotations

import gc
import threading
from types import GeneratorType

import numpy as np
import pytest
from support.columns import feed_column, make_feeder

from gpufeed.device.virtual import virtual_devices, virtual_stream
from gpufeed.errors import FieldError, PlaceError
from gpufeed.feed import Feed
from gpufeed.feeder import DataFeeder
from gpufeed.places import CPUPlace, CUDAPinnedPlace, CUDAPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard

IDS = {"name": "ids", "shape": [1], "dtype": "int64", "lod_level": 1}
LABEL = {"name": "label", "shape": [1], "dtype": "int64"}
TAGS = {"name": "tags", "shape": [5], "layout": "sparse_binary"}
X = {"name": "x", "shape": [1]}
BATCH = [([7, 8], 1), ([9], 0)]


def values(feed):
    return {name: tensor.numpy().ravel().tolist() for name, tensor in feed.items()}


class TestConstruction:
    def test_it_describes_its_fields(self):
        feeder = make_feeder(IDS, TAGS, X)
        assert feeder.feed_names == ["ids", "tags", "x"]
        assert feeder.feed_dtypes == [np.int64, np.float32, np.float32]
        assert feeder.feed_lod_level == [1, 0, 0]
        assert feeder.feed_shapes == [(-1, 1), (-1, 5), (-1, 1)]
        assert feeder.place == CPUPlace()
        assert feeder.places == [CPUPlace()]

    def test_names_are_looked_up_in_the_program(self):
        main = Program()
        with program_guard(main):
            label, ids = data(**LABEL), data(**IDS)
            assert DataFeeder(["ids", label], "cpu").feed_names == ["ids", "label"]
        assert DataFeeder([ids, "label"], "cpu", main).feed_names == ["ids", "label"]
        with pytest.raises(FieldError, match="var nothing not in this block"):
            DataFeeder(["nothing"], "cpu", main)

    def test_a_variable_of_another_program_is_refused(self):
        with program_guard(Program()):
            label = data(**LABEL)
        with program_guard(Program()):
            data(**LABEL)
            with pytest.raises(ValueError, match="'label' is not of the program"):
                DataFeeder([label], "cpu")

    @pytest.mark.parametrize("other", [3, None, ["x"], np.zeros(1)])
    def test_the_feed_list_holds_variables_and_names(self, other):
        with pytest.raises(TypeError, match="Feed list should contain a list of variable"):
            DataFeeder([other], "cpu", Program())

    def test_one_field_is_a_list_of_one(self):
        with program_guard(Program()):
            for feed_list in (data(**LABEL), "label", None):
                with pytest.raises(FieldError, match="feed_list must be a list of Variables or"):
                    DataFeeder(feed_list, "cpu")

    def test_each_field_is_named_once(self):
        with program_guard(Program()):
            label = data(**LABEL)
            for feed_list in ([], [label, "label"]):
                with pytest.raises(FieldError, match="must name each field once"):
                    DataFeeder(feed_list, "cpu")

    @pytest.mark.parametrize("place", [None, 0, object(), [None], ["cpu", 0]])
    def test_a_place_is_one_or_a_list_of_them(self, place):
        with pytest.raises(PlaceError, match="place must be"):
            make_feeder(X, place=place)

    def test_a_place_must_be_there(self):
        with pytest.raises(PlaceError, match="at least one place"):
            make_feeder(X, place=[])
        with pytest.raises(PlaceError, match="must be a CPUPlace or CUDAPlace, got cuda_pinned"):
            make_feeder(X, place=CUDAPinnedPlace())
        with virtual_devices(1), pytest.raises(PlaceError):
            make_feeder(X, place="cuda:1")


class TestFeed:
    def test_a_feed_maps_names_to_tensors_in_the_order_of_the_feed_list(self):
        feed = make_feeder(TAGS, IDS, LABEL).feed([([3, 1], [7, 8], 1), ([], [9], 0)])
        assert isinstance(feed, Feed)
        assert list(feed) == ["tags", "ids", "label"]
        assert isinstance(feed["tags"], SparseRows)
        assert isinstance(feed["ids"], LoDTensor)
        assert feed.place == CPUPlace()
        assert feed["ids"].lod() == [[0, 2, 3]]
        assert feed["ids"].dtype == np.int64
        assert feed["label"].data.tolist() == [[1], [0]]

    def test_samples_may_come_in_every_form(self):
        feeder = make_feeder(IDS, LABEL)
        named = [{"label": label, "ids": ids} for ids, label in BATCH]
        for batch in (BATCH, tuple(BATCH), iter(BATCH), [list(row) for row in BATCH], named):
            assert values(feeder.feed(batch)) == {"ids": [7, 8, 9], "label": [1, 0]}
        feeder = make_feeder(IDS, LABEL, feeding={"label": 2, "ids": 0})
        batch = [(ids, "skipped", label) for ids, label in BATCH]
        assert values(feeder.feed(batch)) == {"ids": [7, 8, 9], "label": [1, 0]}

    def test_one_column_may_feed_two_fields(self):
        feeder = make_feeder(LABEL, X, feeding={"label": 1, "x": 1})
        assert values(feeder.feed(BATCH)) == {"label": [1, 0], "x": [1.0, 0.0]}

    def test_a_batch_may_be_one_array(self):
        assert values(make_feeder(X).feed(np.arange(3.0))) == {"x": [0, 1, 2]}
        assert make_feeder({"name": "x", "shape": [2]}).feed(np.eye(2))["x"].shape == (2, 2)

    def test_what_is_fed_is_copied(self):
        row = np.array([7, 8])
        tensor = feed_column([row], [1], "int64", 1)
        row[:] = 0
        assert tensor.data.ravel().tolist() == [7, 8]

    def test_a_feed_that_is_kept_keeps_its_values(self):
        feeder = make_feeder(IDS, LABEL)
        kept = [feeder.feed([([n] * (n % 5), n)]) for n in range(50)]
        for n, feed in enumerate(kept):
            assert values(feed) == {"ids": [n] * (n % 5), "label": [n]}

    def test_a_view_keeps_its_feed(self):
        feeder = make_feeder(X)
        views = [feeder.feed([n, n])["x"].data[1:] for n in range(20)]
        assert [view.tolist() for view in views] == [[[n]] for n in range(20)]

    def test_slabs_of_dropped_feeds_are_used_again(self):
        feeder = make_feeder(IDS, LABEL)
        for n in range(20):
            feeder.feed([([n] * 100, n)] * 8)
        gc.collect()
        assert feeder._pool.num_slabs <= 3

    def test_feeding_is_stateless(self):
        feeder = make_feeder(IDS, LABEL)
        assert values(feeder.feed(BATCH)) == {"ids": [7, 8, 9], "label": [1, 0]}
        assert values(feeder.feed([])) == {"ids": [], "label": []}
        assert values(feeder.feed(BATCH[1:])) == {"ids": [9], "label": [0]}

    def test_threads_may_share_a_feeder(self):
        feeder = make_feeder(IDS, LABEL)
        wrong = []

        def work(n):
            for _ in range(50):
                feed = feeder.feed([([n] * n, n)] * 3)
                if values(feed) != {"ids": [n] * n * 3, "label": [n] * 3}:
                    wrong.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_many_places_need_another_method(self):
        with pytest.raises(PlaceError, match="this feeder has 2; use feed_parallel"):
            make_feeder(X, place=["cpu", "cpu"]).feed([1])


class TestVirtualDevices:
    def test_all_kinds_of_fields_arrive(self):
        fields = (
            IDS,
            TAGS,
            {"name": "dense", "shape": [5], "layout": "sparse_float", "densify": True},
            {"name": "image", "shape": [2], "wire_dtype": "uint8", "scale": 0.5, "shift": 1.0},
        )
        batch = [([7, 8], [3, 1], [(0, 0.5)], [0, 255]), ([], [], [(4, 2), (4, 1)], [2, 4])]
        with virtual_devices(2):
            feed = make_feeder(*fields, place="cuda:1").feed(batch)
            assert feed.place == CUDAPlace(1)
            host = {name: tensor.to("cpu") for name, tensor in feed.items()}
            assert host["ids"].to_list() == [[[7], [8]], []]
            assert host["tags"].indices.tolist() == [3, 1]
            assert host["dense"].data.tolist() == [[0.5, 0, 0, 0, 0], [0, 0, 0, 0, 3]]
            assert host["image"].data.tolist() == [[1, 128.5], [2, 3]]
            assert feed["ids"].cu_seqlens().dtype == np.int32
            assert np.array(feed["ids"].cu_seqlens()).tolist() == [0, 2, 2]
            del feed

    def test_an_error_leaves_the_device_usable(self):
        with virtual_devices(1):
            feeder = make_feeder(IDS, LABEL, place="cuda")
            for _ in range(5):
                with pytest.raises(FieldError, match="field 'label', sample 1"):
                    feeder.feed([([7], 1), ([8], None)])
            assert values(feeder.feed(BATCH)) == {"ids": [7, 8, 9], "label": [1, 0]}


class TestFeedParallel:
    def test_it_yields_one_feed_a_place(self):
        feeder = make_feeder(X)
        feeds = feeder.feed_parallel([[1, 2], [3], []], num_places=3)
        assert isinstance(feeds, GeneratorType)
        assert [values(feed) for feed in feeds] == [{"x": [1, 2]}, {"x": [3]}, {"x": []}]

    def test_batches_may_come_from_any_iterable(self):
        feeder = make_feeder(X)
        batches = (iter([n, n]) for n in range(2))
        assert [values(feed) for feed in feeder.feed_parallel(batches, 2)] == [
            {"x": [0, 0]},
            {"x": [1, 1]},
        ]

    @pytest.mark.parametrize("batches", [[], [[1]], [[1]] * 3])
    def test_the_counts_must_match_at_the_first_iteration(self, batches):
        feeds = make_feeder(X).feed_parallel(batches, num_places=2)
        message = rf"must be same, got {len(batches)} and 2"
        with pytest.raises(ValueError, match=message):
            next(feeds)

    def test_it_is_lazy(self):
        feeds = make_feeder(X).feed_parallel([[1], ["no number"]], num_places=2)
        assert values(next(feeds)) == {"x": [1]}
        with pytest.raises(FieldError, match="sample 0"):
            next(feeds)

    def test_abandoning_it_leaves_the_feeder_as_it_was(self):
        with virtual_devices(3):
            feeder = make_feeder(X, place="cuda:1")
            feeds = feeder.feed_parallel([[1], [2], [3]])
            assert next(feeds).place == CUDAPlace(0)
            feeds.close()
            assert feeder.place == CUDAPlace(1)
            assert feeder.feed([4]).place == CUDAPlace(1)

    def test_the_places_are_the_feeders_list(self):
        with virtual_devices(2):
            feeder = make_feeder(X, place=["cuda:1", "cpu", CUDAPlace(0)])
            batches = [[1], [2], [3]]
            feeds = list(feeder.feed_parallel(batches))
            assert [str(feed.place) for feed in feeds] == ["cuda:1", "cpu", "cuda:0"]
            assert [values(feed) for feed in feeds] == [{"x": [1]}, {"x": [2]}, {"x": [3]}]
            assert len(list(feeder.feed_parallel(batches[:2], num_places=2))) == 2
            with pytest.raises(PlaceError, match="at most 3, got 4"):
                next(feeder.feed_parallel([[1]] * 4, num_places=4))

    def test_one_place_may_repeat(self):
        feeds = list(make_feeder(X, place=["cpu", "cpu"]).feed_parallel([[1], [2]]))
        assert [values(feed) for feed in feeds] == [{"x": [1]}, {"x": [2]}]

    def test_places_by_default(self, monkeypatch):
        feeder = make_feeder(X)
        monkeypatch.delenv("CPU_NUM", raising=False)
        assert len(list(feeder.feed_parallel([[1]]))) == 1
        monkeypatch.setenv("CPU_NUM", "2")
        assert len(list(feeder.feed_parallel([[1], [2]]))) == 2
        with virtual_devices(3):
            places = [feed.place for feed in make_feeder(X, place="cuda").feed_parallel([[1]] * 3)]
            assert places == [CUDAPlace(0), CUDAPlace(1), CUDAPlace(2)]

    def test_num_places_may_be_of_any_numeric_type(self):
        for num_places in (2, 2.0, np.int64(2)):
            assert len(list(make_feeder(X).feed_parallel([[1], [2]], num_places))) == 2

    @pytest.mark.parametrize("num_places", [0, -1, 2.7, "2", True, [2], float("inf")])
    def test_num_places_is_a_number(self, num_places):
        with pytest.raises(PlaceError, match="num_places must be a whole number >= 1, got"):
            next(make_feeder(X).feed_parallel([[1]], num_places=num_places))


BATCH_OF_TAGS = [(1, [(3, 0.5)]), (0, [(0, 1.0), (4, 2.0)])]


class TestInterop:
    @pytest.fixture
    def feed(self):
        return make_feeder(LABEL, {**TAGS, "layout": "sparse_float"}).feed(BATCH_OF_TAGS)

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
    def test_a_feed_becomes_torch_tensors_over_the_same_memory(self, feed):
        torch = pytest.importorskip("torch")
        tensors = feed.to_torch()
        assert list(tensors) == ["label", "tags"]
        assert tensors["label"].data_ptr() == feed["label"].data.ctypes.data
        tags = tensors["tags"]
        assert tags.col_indices().data_ptr() == feed["tags"].indices.ctypes.data
        torch._validate_sparse_csr_tensor_args(
            tags.crow_indices(), tags.col_indices(), tags.values(), tags.shape
        )
        assert tags.to_dense().tolist() == [[0, 0, 0, 0.5, 0], [1, 0, 0, 0, 2]]

    @pytest.mark.parametrize(("dim", "dtype"), [(5, np.int32), (2**31, np.int64)])
    def test_sparse_rows_have_one_index_dtype_as_other_libraries_want(self, dim, dtype):
        pytest.importorskip("scipy")
        rows = feed_column([[3, 0], [4]], [dim], layout="sparse_binary")
        assert rows.offsets.dtype == rows.indices.dtype == dtype
        assert rows.to_scipy().sum(axis=1).tolist() == [2, 1]


def test_reads_of_the_host_come_after_the_current_stream():
    with virtual_devices(2, seed=6, jitter=True):
        feeder = make_feeder(
            {"name": "ids", "shape": [1], "dtype": "int64", "lod_level": 1}, place="cuda:0"
        )
        with virtual_stream("cuda:0"):
            for number in range(1, 8):
                ids = feeder.feed([([number] * 5000,)])["ids"]
                assert ids.numpy()[-1, 0] == number
                assert ids.to("cuda:1").to_list()[0][-1] == [number]
                assert ids.to_padded()[0][0, -1, 0] == number


def test_a_copy_of_a_feed_is_a_feed():
    feed = make_feeder({"name": "x", "shape": [1]}).feed([1.0])
    assert isinstance(feed.copy(), Feed)
    assert (feed.copy().place, feed.copy()["x"]) == (feed.place, feed["x"])
