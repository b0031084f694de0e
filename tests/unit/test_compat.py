"""`gpufeed.compat`: names of the reference, which are ours, and the few adapters between them."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import struct
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

import gpufeed as gf
import gpufeed.compat
from gpufeed.compat import fluid, paddle
from gpufeed.compat.paddle.dataset import common
from gpufeed.errors import EOFException, FieldError, MissingFile, ReaderError

MODULES = [
    module.name for module in pkgutil.walk_packages(gpufeed.compat.__path__, "gpufeed.compat.")
]


@pytest.fixture(autouse=True)
def programs():
    """Programs of its own for each test."""
    with gf.program_guard(gf.Program(), gf.Program()):
        yield


class TestNames:
    @pytest.mark.parametrize("module", MODULES)
    def test_every_name_is_there(self, module):
        found = importlib.import_module(module)
        for name in found.__all__:
            assert getattr(found, name) is not None
        assert len(set(found.__all__)) == len(found.__all__)

    @pytest.mark.parametrize(
        ("name", "ours"),
        [
            ("batch", gf.batch),
            ("train", gf.train),
            ("event.EndIteration", gf.EndIteration),
            ("event.BeginPass", gf.BeginPass),
            ("reader.shuffle", gf.reader.shuffle),
            ("reader.compose", gf.reader.compose),
            ("reader.xmap_readers", gf.reader.xmap_readers),
            ("reader.ComposeNotAligned", gf.ComposeNotAligned),
            ("reader.creator.np_array", gf.creator.np_array),
            ("data_type.dense_vector", gf.provider.dense_vector),
            ("trainer.PyDataProvider2.provider", gf.provider.provider),
            ("fluid.io.shuffle", gf.reader.shuffle),
            ("fluid.CUDAPlace", gf.CUDAPlace),
            ("fluid.LoDTensor", gf.LoDTensor),
            ("fluid.create_lod_tensor", gf.create_lod_tensor),
            ("fluid.core.EOFException", EOFException),
            ("fluid.layers.open_files", gf.layers.open_files),
            ("fluid.framework.Program", gf.Program),
        ],
    )
    def test_they_are_ours(self, name, ours):
        found = paddle
        for part in name.split("."):
            found = getattr(found, part)
        assert found is ours

    def test_the_three_ways_to_get_them(self):
        import gpufeed.compat.paddle.fluid as by_path
        import gpufeed.compat.paddle.v2 as v2

        assert fluid is paddle.fluid is by_path
        assert all(getattr(v2, name) is getattr(paddle, name) for name in v2.__all__)

    def test_star_imports(self):
        namespace = {}
        exec("from gpufeed.compat.paddle.trainer.PyDataProvider2 import *", namespace)
        exec("from gpufeed.compat.paddle.trainer_config_helpers import *", namespace)
        assert set(gf.provider.__all__) <= set(namespace)
        assert namespace["define_py_data_sources2"] is gf.define_py_data_sources2

    def test_what_is_not_there(self):
        with pytest.raises(AttributeError, match="no attribute 'fc': it records readers"):
            fluid.layers.fc  # noqa: B018 - raises
        with pytest.raises(
            AttributeError, match=r"no data set 'imdb', only mnist.*gpufeed\.creator"
        ):
            paddle.dataset.imdb  # noqa: B018 - raises
        with pytest.raises(AttributeError):
            fluid.optimizer  # noqa: B018 - raises


class TestV2:
    SCRIPT = """
import sys
import gpufeed.compat.paddle.v2.fluid as fluid
import gpufeed.compat.paddle.v2.dataset.mnist as mnist
from gpufeed.compat.paddle.v2.fluid.executor import Executor
import gpufeed.compat.paddle as paddle
assert fluid is paddle.fluid and mnist is paddle.dataset.mnist and Executor is fluid.Executor
"""

    def test_its_modules_are_the_same(self):
        done = subprocess.run([sys.executable, "-c", self.SCRIPT], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


class TestDeclarations:
    def test_layers_data_takes_append_batch_size_third(self):
        x = fluid.layers.data("x", [1, 28, 28], True, "int64", 0, None, True)
        assert (x.shape, x.dtype) == ((-1, 1, 28, 28), np.int64)
        assert fluid.layers.data("y", [4, 3], append_batch_size=False).shape == (4, 3)
        assert fluid.layers.data("z", [-1, 3]).shape == (-1, 3)
        assert fluid.default_main_program().global_block().var("x") is x

    @pytest.mark.parametrize(
        "fed", [np.zeros((2, 5), "float32"), np.zeros((2, 3)), np.zeros((1, 2, 3), "uint8")]
    )
    def test_only_data_itself_is_held_against_what_is_fed(self, fed):
        fluid.layers.data("free", [3])
        fluid.data("held", [None, 3])
        executor = fluid.Executor(fluid.CPUPlace())
        [array] = executor.run(feed={"free": fed}, fetch_list=["free"])
        assert (array.shape, array.dtype) == (fed.shape, fed.dtype)
        with pytest.raises(FieldError, match=r"field 'held': expected (shape|dtype)"):
            executor.run(feed={"held": fed}, fetch_list=["held"])

    def test_a_lod_that_was_not_declared_is_not_lost(self):
        fluid.layers.data("free", [1], dtype="int64")
        tensor = fluid.create_lod_tensor(np.zeros((2, 1), "int64"), [[2]], fluid.CPUPlace())
        with pytest.raises(FieldError, match=r"'free' has a LoD.* pass return_numpy=False"):
            fluid.Executor(fluid.CPUPlace()).run(feed={"free": tensor}, fetch_list=["free"])

    def test_data_takes_its_shape_as_it_is(self):
        assert fluid.data("x", [None, 3]).shape == (-1, 3)
        assert fluid.data("y", [4, 3], "int64", 0).shape == (4, 3)
        assert fluid.data("z", [3]).shape == (3,)

    @pytest.mark.parametrize(
        ("kind", "shape", "dtype", "lod_level", "layout"),
        [
            (paddle.data_type.dense_vector(7), (-1, 7), "float32", 0, "dense"),
            (paddle.data_type.dense_vector_sequence(7), (-1, 7), "float32", 1, "dense"),
            (paddle.data_type.integer_value(7), (-1, 1), "int64", 0, "dense"),
            (paddle.data_type.integer_value_sub_sequence(7), (-1, 1), "int64", 2, "dense"),
            (paddle.data_type.sparse_binary_vector(7), (-1, 7), "float32", 0, "sparse_binary"),
            (paddle.data_type.sparse_float_vector(7), (-1, 7), "float32", 0, "sparse_float"),
        ],
    )
    def test_layer_data(self, kind, shape, dtype, lod_level, layout):
        layer = paddle.layer.data(name="x", type=kind, height=1, width=7)
        assert (layer.shape, layer.dtype, layer.lod_level) == (shape, dtype, lod_level)
        assert layer.layout == layout
        assert fluid.default_main_program().global_block().var("x") is layer

    def test_a_layer_has_a_type(self):
        with pytest.raises(
            FieldError, match=r"layer\.data\.type must be a paddle\.data_type, got 3"
        ):
            paddle.layer.data("x", 3)

    def test_a_layer_of_another_meaning(self):
        paddle.layer.data("x", paddle.data_type.integer_value(7))
        with pytest.raises(FieldError, match="already declared"):
            paddle.layer.data("x", paddle.data_type.dense_vector(7))


class TestFluidFeeder:
    def test_it_converts(self):
        x = fluid.layers.data("x", [3], dtype="int64")
        feeder = fluid.DataFeeder([x], fluid.CPUPlace())
        # Floats are cut, and the shape of rows of the declared rank is not looked at.
        assert feeder.feed([([1.9, -1.9],)])["x"].to_list() == [[1, -1]]
        with pytest.raises(FieldError, match="expected int64"):
            gf.DataFeeder([x], "cpu").feed([([1.9, -1.9],)])

    def test_its_methods_do_too(self):
        x = fluid.layers.data("x", [1], dtype="int64")
        feeder = fluid.DataFeeder(place=fluid.CPUPlace(), feed_list=["x"])
        [one, two] = feeder.feed_parallel([[(1.5,)], [(2.5,)]], 2)
        assert (one["x"].to_list(), two["x"].to_list()) == ([[1]], [[2]])
        [feed] = feeder.decorate_reader(lambda: [[(3.5,)]], False)()
        assert feed["x"].to_list() == [[3]]
        assert feeder.feed_dtypes == [x.dtype]

    def test_an_array_is_a_row_of_fields(self):
        fluid.layers.data("x", [1])
        fluid.layers.data("y", [1], dtype="int64")
        feeder = fluid.DataFeeder(["x", "y"], fluid.CPUPlace())
        rows = np.array([[0.5, 1.0], [1.5, 2.0]])
        for batch in (rows, list(rows), [tuple(row) for row in rows]):
            feed = feeder.feed(batch)
            assert feed["x"].to_list() == [[0.5], [1.5]]
            assert feed["y"].to_list() == [[1], [2]]
        with pytest.raises(FieldError, match="expected 2 fields"):
            feeder.feed(rows[:, :1])
        one = fluid.DataFeeder(["x"], fluid.CPUPlace())
        assert one.feed(rows[:, :1])["x"].to_list() == [[0.5], [1.5]]


class TestLoaders:
    def rows(self):
        return (([float(number)] * 2, number) for number in range(5))

    def loader(self, make=None, **options):
        x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
        return (make or fluid.io.DataLoader.from_generator)([x, y], 4, **options)

    def shown(self, loader):
        return [[feed["y"].numpy().ravel().tolist() for feed in feeds] for feeds in loader()]

    def test_samples(self):
        loader = self.loader().set_sample_generator(self.rows, 2, places=fluid.CPUPlace())
        assert self.shown(loader) == [[[0, 1]], [[2, 3]]]
        loader = self.loader().set_sample_generator(self.rows, 2, False)
        assert self.shown(loader) == self.shown(lambda: iter(loader)) == [[[0, 1]], [[2, 3]], [[4]]]

    def test_batches_on_many_places(self):
        lists = paddle.batch(self.rows, 2)
        loader = self.loader().set_sample_list_generator(lists, fluid.cpu_places(2))
        assert self.shown(loader) == [[[0, 1], [2, 3]]]
        kept = self.loader(drop_last=False, use_double_buffer=False)
        kept.set_sample_list_generator(lists, fluid.cpu_places(2))
        assert self.shown(kept) == [[[0, 1], [2, 3]], [[4]]]

    def test_arrays(self):
        def arrays():
            for number in range(3):
                yield np.full((2, 2), number, "float32"), np.full((2, 1), number)

        loader = self.loader(return_list=True).set_batch_generator(arrays)
        got = [[tensor.numpy().tolist() for tensor in tensors] for [tensors] in loader]
        assert got == [[[[n, n], [n, n]], [[n], [n]]] for n in range(3)]

        loader.set_batch_generator(lambda: [[np.zeros((2, 2), "float32")]])
        with pytest.raises(FieldError, match=r"must be one array for each of .*, got 1"):
            list(loader)

    def test_a_loop(self):
        executor = fluid.Executor(fluid.CPUPlace())
        reader = self.loader(fluid.io.PyReader)
        reader.decorate_sample_generator(self.rows, batch_size=5, places=[fluid.CPUPlace()])
        [[y]] = [executor.run(feed=data, fetch_list=["y"]) for data in reader()]
        assert y.ravel().tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(FieldError, match="must be one for its one place, got 2"):
            executor.run(feed=[{}, {}])

    def test_what_is_not_there(self):
        for missing in ({"feed_list": None}, {"capacity": None}):
            with pytest.raises(FieldError, match="PyReader needs a feed_list and a capacity"):
                fluid.io.PyReader(**{"feed_list": ["x"], "capacity": 2, **missing})
        with pytest.raises(gf.ReaderError, match="must come first"):
            self.loader()()


class TestV2Feeder:
    def test_items_are_reordered_skipped_and_reused(self):
        feeder = paddle.DataFeeder(
            [
                ("image", paddle.data_type.dense_vector(2)),
                ("words", paddle.data_type.integer_value_sequence(9)),
                ("again", paddle.data_type.integer_value_sequence(9)),
                ("label", paddle.data_type.integer_value(3)),
            ],
            {"image": 3, "words": 1, "again": 1, "label": 0},
        )
        for kind in (tuple, list):
            rows = [kind((1, [4, 5], "unused", [0.5, 1.5])), kind((2, [6], "unused", [2.5, 3.5]))]
            image, words, again, label = feeder(rows)
            assert image.value.to_list() == [[0.5, 1.5], [2.5, 3.5]]
            assert words.value.data.ravel().tolist() == [4, 5, 6]
            assert words.sequence_start_positions.tolist() == [0, 2, 3]
            assert again.value.data.ravel().tolist() == [4, 5, 6]
            assert label.value.to_list() == [[1], [2]]

    def test_by_position(self):
        feeder = paddle.DataFeeder([("a", paddle.data_type.integer_value(3))])
        filled = []
        assert feeder.convert([(1, "unused"), (2,)], filled) is filled
        assert filled[0].value.to_list() == [[1], [2]]

    def test_the_second_of_a_pair_is_a_type(self):
        with pytest.raises(TypeError, match="should be an InputType, got 3 of a"):
            paddle.DataFeeder([("a", 3)])
        with pytest.raises(FieldError, match="feeding must name"):
            paddle.DataFeeder([("a", paddle.data_type.integer_value(3))], {"b": 0})


class TestLoadersOfPrograms:
    """``iterable=False``: what they yield is in `support.reference_script`, too."""

    def reader(self, make=fluid.io.PyReader, **options):
        x, y = fluid.data("x", [None, 1]), fluid.data("y", [None, 1], "int64")
        return make(feed_list=[x, "y"], capacity=4, iterable=False, **options), [x, y]

    def passes(self, loader, fields):
        executor = fluid.Executor(fluid.CPUPlace())
        seen = []
        for _ in range(2):
            loader.start()
            with suppress(EOFException):
                while True:
                    got = executor.run(fetch_list=fields)
                    seen.append([array.ravel().tolist() for array in got])
            loader.reset()
        return seen

    @pytest.mark.parametrize("make", [fluid.io.PyReader, fluid.io.DataLoader.from_generator])
    def test_they_set_the_variables_of_their_list(self, make):
        loader, fields = self.reader(make)
        assert not loader.iterable
        # Label is a float, which the reference cuts to an integer.
        loader.set_sample_generator(lambda: [(0, 1.0), (1, 2.9), (2, 3)], 2, drop_last=False)
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        assert self.passes(loader, fields) == [[[0, 1], [1, 2]], [[2], [3]]] * 2

    def test_arrays_are_taken_as_they_are(self):
        loader, fields = self.reader()
        loader.decorate_batch_generator(lambda: [(np.zeros((1, 3)), np.ones((1, 2), "float32"))])
        # Nobody has run the startup program.
        assert self.passes(loader, fields) == [[[0, 0, 0], [1, 1]]] * 2

    def test_they_send_ahead_to_the_place_of_the_executor(self):
        loader, [x, _] = self.reader()
        loader.decorate_sample_list_generator(lambda: [[(1, 1)], [(2, 2)]])
        with gf.virtual_devices(1):
            executor = fluid.Executor(fluid.CUDAPlace(0))
            executor.run(fluid.default_startup_program())
            loader.start()
            [tensor] = executor.run(fetch_list=[x], return_numpy=False)
            assert tensor.place == fluid.CUDAPlace(0)
            loader.reset()

    def test_what_is_for_the_other_kind(self):
        recorded, _ = self.reader()
        with pytest.raises(ReaderError, match=r"PyReader: the program reads it.*iterable=True"):
            recorded()
        looped = fluid.io.DataLoader.from_generator(["x"], 4)
        for method in (looped.start, looped.reset):
            with pytest.raises(ReaderError, match=r"DataLoader\.\w+ is for iterable=False"):
                method()
        with pytest.raises(ReaderError, match=r"DataLoader: set_sample_list_generator\(\)"):
            looped()


class TestExecutors:
    def test_the_order_of_arguments(self):
        x = fluid.data("x", [None, 1], "int64")
        executor = fluid.Executor(fluid.CPUPlace())
        feed = {"x": np.array([[1], [2]])}
        main = fluid.default_main_program()
        [array] = executor.run(main, feed, [x], "feed", "fetch", None, True, False)
        assert array.tolist() == [[1], [2]]
        [tensor] = executor.run(feed=feed, fetch_list=["x"], return_numpy=False)
        assert isinstance(tensor, fluid.LoDTensor)
        for one in (x, "x"):
            assert executor.run(feed=feed, fetch_list=one)[0].tolist() == [[1], [2]]
        assert executor.place == gf.CPUPlace()
        executor.close()

    def test_what_many_devices_fetch_comes_as_one(self):
        x = fluid.data("x", [None, 1], "int64")
        feed = {"x": np.arange(5)[:, None]}
        with gf.virtual_devices(3):
            executor = fluid.ParallelExecutor(True, "loss", fluid.default_main_program())
            assert executor.device_count == 3
            for options in ({"feed": feed}, {"feed_dict": feed}):
                [array] = executor.run([x], **options)
                assert array.ravel().tolist() == [0, 1, 2, 3, 4]
            three = [{"x": np.array([[number]])} for number in range(3)]
            [tensor] = executor.run([x.name], three, return_numpy=False)
            assert (tensor.to_list(), tensor.place) == ([[0], [1], [2]], gf.CPUPlace())

    def test_on_the_host(self, monkeypatch):
        monkeypatch.setenv("CPU_NUM", "2")
        executor = fluid.ParallelExecutor(use_cuda=False, share_vars_from=None, num_trainers=1)
        assert executor.device_count == 2

    def test_what_is_fetched_twice_comes_twice(self):
        x = fluid.data("x", [None, 1], "int64")
        one, two = fluid.ParallelExecutor(False).run([x, x.name], {"x": np.array([[7]])})
        assert one.tolist() == two.tolist() == [[7]]

    def test_an_empty_feed_is_none(self):
        reader = fluid.layers.py_reader(2, [[-1]], ["int64"])
        x = fluid.layers.read_file(reader)
        reader.decorate_paddle_reader(lambda: [[(7,)]])
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        reader.start()
        [array] = fluid.ParallelExecutor(False).run([x], feed={})
        assert array.tolist() == [7]
        with pytest.raises(EOFException):
            fluid.ParallelExecutor(False).run([])
        reader.reset()

    @pytest.mark.parametrize("places", [None, fluid.cpu_places(2)])
    def test_compiled_programs_are_for_many_devices(self, monkeypatch, places):
        monkeypatch.setenv("CPU_NUM", "2")
        x = fluid.data("x", [None, 1], "int64")
        strategy = fluid.ExecutionStrategy()
        strategy.num_threads = 4
        main = fluid.compiler.CompiledProgram(fluid.default_main_program(), fluid.BuildStrategy())
        executor = fluid.Executor(fluid.CPUPlace())
        one, two = {"x": np.array([[7]])}, {"x": np.array([[8]])}
        assert executor.run(main, one, [x])[0].tolist() == [[7]]
        main = main.with_data_parallel("loss", exec_strategy=strategy, places=places)
        for _ in range(2):
            assert executor.run(main, [one, two], [x.name])[0].tolist() == [[7], [8]]
        assert executor.run(main, [one, two]) == []
        with pytest.raises(FieldError, match="one for each of 2 places, got 1"):
            executor.run(main, [one], [x])

    def test_compiled_programs_run_where_the_executor_does(self):
        x = fluid.data("x", [None, 1], "int64")
        main = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
        with gf.virtual_devices(3):
            three = [{"x": np.array([[number]])} for number in range(3)]
            [array] = fluid.Executor(fluid.CUDAPlace(0)).run(main, three, [x])
        assert array.tolist() == [[0], [1], [2]]

    def test_scopes_and_unique_names_are_for_scripts(self):
        with fluid.scope_guard(fluid.core.Scope()), fluid.unique_name.guard():
            assert isinstance(fluid.global_scope(), fluid.Scope)
            assert [fluid.unique_name.generate("x") for _ in range(2)] == ["x_0", "x_1"]
            with fluid.unique_name.guard():
                assert fluid.unique_name.generate("x") == "x_0"
            assert fluid.unique_name.generate("x") == "x_2"

    def test_a_lod_has_no_array_form(self):
        words = fluid.data("words", [None, 1], "int64", 1)
        tensor = fluid.create_lod_tensor(np.arange(4)[:, None], [[1, 3]], fluid.CPUPlace())
        with gf.virtual_devices(2):
            executor = fluid.ParallelExecutor(use_cuda=True)
            with pytest.raises(FieldError, match=r"'words' has a LoD.* pass return_numpy=False"):
                executor.run([words], {"words": tensor})
            [whole] = executor.run([words], {"words": tensor}, return_numpy=False)
        assert whole.recursive_sequence_lengths() == [[1, 3]]


class TestCore:
    def test_devices(self):
        with gf.virtual_devices(2):
            assert fluid.core.get_cuda_device_count() == 2
            assert fluid.is_compiled_with_cuda()
            assert fluid.cuda_places() == [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]


class TestRecordIO:
    def feeder(self):
        fields = [fluid.layers.data("x", [1]), fluid.layers.data("y", [1], dtype="int64")]
        return fluid.DataFeeder(fields, fluid.CPUPlace())

    def reader(self):
        return iter([[(0.5, 1), (1.5, 2)], [(2.5, 3)], [(3.5, 4)]])

    def test_a_file(self, tmp_path):
        path = str(tmp_path / "a.recordio")
        compressor = fluid.core.RecordIOWriter.Compressor.NoCompress
        num = fluid.recordio_writer.convert_reader_to_recordio_file(
            *(path, self.reader, self.feeder(), compressor, 2, ["y", "x"])
        )
        records = list(gf.creator.recordio(path, tensors=True))
        assert num == len(records) == 3
        assert [tensor.to_list() for tensor in records[0]] == [[[1], [2]], [[0.5], [1.5]]]

    def test_files_hold_every_batch(self, tmp_path):
        num = fluid.recordio_writer.convert_reader_to_recordio_files(
            filename=str(tmp_path / "a.recordio"),
            batch_per_file=2,
            reader_creator=self.reader,
            feeder=self.feeder(),
            compressor=fluid.core.RecordIOWriter.Compressor.NoCompress,
        )
        assert num == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "a-00000.recordio",
            "a-00001.recordio",
        ]

    def test_a_writer(self, tmp_path):
        path = str(tmp_path / "a.recordio")
        compressor = fluid.core.RecordIOWriter.Compressor.NoCompress
        with fluid.recordio_writer.create_recordio_writer(path, compressor, 10) as writer:
            writer.append_tensor(fluid.create_lod_tensor(np.ones((3, 1)), [[1, 2]], "cpu"))
            writer.complete_append_tensor()
        [(tensor,)] = gf.creator.recordio(path, tensors=True)
        assert tensor.recursive_sequence_lengths() == [[1, 2]]

    def test_the_creator_unpickles_and_ours_does_not(self, tmp_path):
        path = str(tmp_path / "a.recordio")
        with gf.RecordIOWriter(path, compressor="none") as writer:
            writer.write(pickle.dumps((1, "a")))
        assert list(paddle.reader.creator.recordio(path, 2)()) == [(1, "a")]
        [record] = gf.creator.recordio(path)
        assert isinstance(record, bytes)


class TestMnist:
    def test_it_is_looked_for_where_it_was_downloaded_to(self, tmp_path, monkeypatch):
        assert common.DATA_HOME.endswith("/.cache/paddle/dataset")
        monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
        with pytest.raises(MissingFile, match=f"{tmp_path}/mnist/train-images-idx3-ubyte"):
            paddle.dataset.mnist.train()
        (tmp_path / "mnist").mkdir()
        for name in ("t10k", "train"):
            path = tmp_path / "mnist"
            (path / f"{name}-images-idx3-ubyte").write_bytes(
                struct.pack(">4I", 0x0803, 1, 28, 28) + bytes(784)
            )
            (path / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x0801, 1) + b"\7")
        for reader in (paddle.dataset.mnist.train(), paddle.dataset.mnist.test(path)):
            [(image, label)] = reader()
            assert (image.shape, label) == ((784,), 7)


def test_combine_stops_at_the_shortest():
    combined = paddle.reader.combine(lambda: [(1, 2), (3, 4)], lambda: iter(int, 1))
    assert list(combined()) == [(1, 2, 0), (3, 4, 0)]


def test_a_py_reader_by_data():
    x = fluid.data("x", [None, 2], "float32")
    words = fluid.data("words", [None, 1], "int64", 1)
    reader = fluid.layers.create_py_reader_by_data(4, [x, words], name="py")
    reader.decorate_paddle_reader(lambda: [[([0.5, 1.5], [7, 8])]])
    a, b = fluid.layers.read_file(reader)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    reader.start()
    first, second = executor.run(fetch_list=[a, b], return_numpy=False)
    assert first.to_list() == [[0.5, 1.5]]
    assert second.recursive_sequence_lengths() == [[2]]
    reader.reset()


def test_init_takes_what_the_trainer_took():
    assert paddle.init(use_gpu=True, trainer_count=4) is None
