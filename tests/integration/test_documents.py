"""What the reference's documents show, call for call, as scripts whose import lines are changed.

The change is that of `gpufeed.compat`: ``gpufeed.compat.`` in front of ``paddle``. What the
documents leave out is written out; where they end in a network, the feeds end in a list.
"""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.porting import ported

import gpufeed as gf
from gpufeed.compat import paddle
from gpufeed.compat.paddle.dataset import common
from gpufeed.errors import ComposeNotAligned

NUM_IMAGES = 20


def run(script, **names):
    """Run a script in programs of its own; return its variables."""
    namespace = {"__name__": "__main__", **names}
    with gf.program_guard(gf.Program(), gf.Program()):
        exec(compile(ported(script), "<document>", "exec"), namespace)
    return namespace


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A small MNIST where Paddle downloads its data sets to; returns images and labels."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (NUM_IMAGES, 784), np.uint8)
    labels = np.arange(NUM_IMAGES, dtype=np.uint8) % 10
    folder = tmp_path / "home" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        header = struct.pack(">4I", 0x0803, NUM_IMAGES, 28, 28)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(header + images.tobytes())
        )
        header = struct.pack(">2I", 0x0801, NUM_IMAGES)
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(header + labels.tobytes())
        )
    monkeypatch.setattr(common, "DATA_HOME", str(folder.parent))
    return images.astype(np.float32) / 255 * 2 - 1, labels


def images_of(feeds, name="image"):
    return np.concatenate([feed[name].numpy().reshape(len(feed[name]), -1) for feed in feeds])


class TestDesignOfReaders:
    """``doc/design/reader``, of both generations."""

    RANDOM = """
import numpy
import paddle

def noise(width, height):
    def reader():
        while True:
            yield numpy.random.uniform(-1, 1, size=width * height)
    return reader

def labelled_noise(width, height, label):
    def reader():
        while True:
            yield numpy.random.uniform(-1, 1, size=width * height), label
    return reader
"""

    def test_readers_of_one_and_of_several_items(self):
        found = run(self.RANDOM)
        image = next(iter(found["noise"](4, 3)()))
        assert image.shape == (12,)
        reader = paddle.reader.firstn(found["labelled_noise"](2, 2, 7), 3)
        assert [label for _, label in reader()] == [7, 7, 7]

    TRAIN = """
import paddle

image_layer = paddle.layer.data("image", paddle.data_type.dense_vector(784))
label_layer = paddle.layer.data("label", paddle.data_type.integer_value(10))

batches = {reader}
feeds = []
paddle.train(batches, {{"image":0, "label":1}}, 8, 2, step=feeds.append)
"""

    @pytest.mark.parametrize(
        "reader",
        [
            "paddle.batch(paddle.dataset.mnist.train(), 8)",
            "paddle.dataset.mnist.train()  # the older design",
            "paddle.batch(paddle.reader.buffered(paddle.dataset.mnist.train(), 100), 8)",
        ],
    )
    def test_train(self, mnist, reader):
        feeds = run(self.TRAIN.format(reader=reader))["feeds"]
        images, labels = mnist
        assert [len(feed["label"]) for feed in feeds] == [8, 8, 4] * 2
        np.testing.assert_allclose(images_of(feeds), np.concatenate([images] * 2), atol=1e-6)
        assert images_of(feeds, "label").ravel().tolist() == labels.tolist() * 2

    def test_shuffle(self, mnist):
        reader = "paddle.batch(paddle.reader.shuffle(paddle.dataset.mnist.train(), 512), 8)"
        feeds = run(self.TRAIN.format(reader=reader))["feeds"]
        for one_pass in (feeds[:3], feeds[3:]):
            found = Counter(images_of(one_pass, "label").ravel().tolist())
            assert found == Counter(mnist[1].tolist())

    CUSTOM_BATCHES = """
import numpy
import paddle

def noise_in_batches():
    while True:
        yield [(numpy.random.uniform(-1, 1, 28 * 28),) for _ in range(128)]

paddle.layer.data("image", paddle.data_type.dense_vector(784))
feeds = []
paddle.train(paddle.reader.firstn(noise_in_batches, 3), {"image":0}, None, 1, step=feeds.append)
"""

    def test_a_custom_batch_reader(self):
        feeds = run(self.CUSTOM_BATCHES)["feeds"]
        assert [feed["image"].shape for feed in feeds] == [(128, 784)] * 3

    @pytest.mark.parametrize(
        ("batch", "names", "columns"),
        [
            ([(1, 1, 1), (2, 2, 2), (3, 3, 3)], "abc", [[1, 2, 3]] * 3),
            ([([1, 1, 1],), ([2, 2, 2],), ([3, 3, 3],)], "a", [[[1] * 3, [2] * 3, [3] * 3]]),
        ],
    )
    def test_valid_batches(self, batch, names, columns):
        with gf.program_guard(gf.Program()):
            fields = [
                gf.data(name, np.shape(column)[1:])
                for name, column in zip(names, columns, strict=True)
            ]
            feed = gf.DataFeeder(fields, "cpu").feed(batch)
        assert [feed[name].to_list() for name in names] == columns

    def test_the_batch_that_is_wrong_there(self):
        """``[1,1,1] needs to be inside a tuple``: not taken for three items of one field."""
        with gf.program_guard(gf.Program()):
            feeder = gf.DataFeeder([gf.data("a", [3])], "cpu")
        with pytest.raises(gf.FieldError, match=r"expected 1 field \(a\), got 3 .* \(x,\)"):
            feeder.feed([[1, 1, 1], [2, 2, 2], [3, 3, 3]])

    GAN = """
import numpy
import paddle

def noise(width, height):
    def reader():
        while True:
            yield numpy.random.uniform(-1, 1, size=width * height)
    return reader

def always(value):
    def reader():
        while True:
            yield value
    return reader

images = paddle.dataset.mnist.train()
reader = paddle.reader.{join}(images, noise(20, 20), always(True), always(False))

paddle.layer.data("true_image", paddle.data_type.dense_vector(784))
paddle.layer.data("fake_image", paddle.data_type.dense_vector(400))
paddle.layer.data("true_label", paddle.data_type.integer_value(2))
paddle.layer.data("false_label", paddle.data_type.integer_value(2))
feeds = []
# Item 1 is the digit, which no layer takes.
mapping = {{"true_image":0, "fake_image": 2, "true_label": 3, "false_label": 4}}
paddle.train({reader}, mapping, 8, 2, step=feeds.append)
"""

    @pytest.mark.parametrize("reader", ["reader", "paddle.batch(reader, 8)"])
    def test_combine(self, mnist, reader):
        feeds = run(self.GAN.format(join="combine", reader=reader))["feeds"]
        np.testing.assert_allclose(
            images_of(feeds, "true_image"), np.concatenate([mnist[0]] * 2), atol=1e-6
        )
        assert images_of(feeds, "fake_image").shape == (2 * NUM_IMAGES, 400)
        assert set(images_of(feeds, "true_label").ravel()) == {1}
        assert set(images_of(feeds, "false_label").ravel()) == {0}

    def test_compose_wants_readers_that_end_together(self, mnist):
        """As in the reference, for which the document's example fails at the end of its pass."""
        feeds = []
        script = self.GAN.format(join="compose", reader="reader")
        with pytest.raises(ComposeNotAligned, match="after 20 samples"):
            run(script.replace("feeds = []", ""), feeds=feeds)
        assert [len(feed["true_label"]) for feed in feeds] == [8, 8, 4]

    TWO_FILES = """
import numpy
import paddle

def two_files(image_path, label_path, n):
    def reader():
        with open(image_path) as f, open(label_path) as l:
            pixels = numpy.fromfile(f, 'ubyte', count=n * 784).reshape((n, 784))
            labels = numpy.fromfile(l, 'ubyte', count=n).astype("int")
        images = pixels.astype('float32') / 255.0 * 2.0 - 1.0
        for i in range(n):
            yield images[i, :], labels[i]
    return reader

reader = two_files(image_path, label_path, 12)
paddle.layer.data("image", paddle.data_type.dense_vector(784))
paddle.layer.data("label", paddle.data_type.integer_value(10))
feeds = []
paddle.train(paddle.batch(reader, 8), {"image":0, "label":1}, 8, 1, step=feeds.append)
"""

    def test_a_creator_over_two_binary_files(self, tmp_path):
        pixels = np.random.default_rng(0).integers(0, 256, (12, 784), np.uint8)
        (tmp_path / "images").write_bytes(pixels.tobytes())
        (tmp_path / "labels").write_bytes(bytes(range(12)))
        feeds = run(
            self.TWO_FILES,
            image_path=str(tmp_path / "images"),
            label_path=str(tmp_path / "labels"),
        )["feeds"]
        np.testing.assert_allclose(images_of(feeds), pixels / 255 * 2 - 1, atol=1e-6)
        assert images_of(feeds, "label").ravel().tolist() == list(range(12))

    REUSED = """
import paddle

def reader():
    for i in range(4):
        yield [float(i)] * 3, i, i % 2

for name in ("image_a", "image_b"):
    paddle.layer.data(name, paddle.data_type.dense_vector(3))
paddle.layer.data("label", paddle.data_type.integer_value(2))
feeds = []
paddle.train(reader, {"image_a":0, "image_b":0, "label":2}, 4, 1, step=feeds.append)
"""

    def test_an_item_is_reused_and_another_skipped(self):
        [feed] = run(self.REUSED)["feeds"]
        np.testing.assert_array_equal(feed["image_a"].numpy(), feed["image_b"].numpy())
        assert feed["image_a"].to_list() == [[float(i)] * 3 for i in range(4)]
        assert feed["label"].to_list() == [[0], [1], [0], [1]]

    EVENTS = """
import paddle.v2 as paddle

paddle.init(use_gpu=False, trainer_count=1)
paddle.layer.data(name="x", type=paddle.data_type.dense_vector(1))

costs = []

def event_handler(event):
    if isinstance(event, paddle.event.EndIteration):
        if event.batch_id % 100 == 0:
            costs.append((event.pass_id, event.batch_id, event.cost))
    if isinstance(event, paddle.event.EndPass):
        costs.append("end of pass %d" % event.pass_id)

def reader():
    for i in range(6):
        yield [float(i)],

paddle.train(paddle.batch(reader, batch_size=2), {"x": 0}, 2, 2, event_handler=event_handler,
             step=lambda feed: float(feed["x"].numpy().mean()))
"""

    def test_events(self):
        costs = run(self.EVENTS)["costs"]
        assert costs == [(0, 0, 0.5), "end of pass 0", (1, 0, 0.5), "end of pass 1"]


class TestDataFeeder:
    """The examples of ``fluid.DataFeeder`` and of each of its methods."""

    CLASS = """
import paddle.fluid as fluid

prog = fluid.framework.Program()
with fluid.framework.program_guard(prog):
    img = fluid.layers.data(name='image', shape=[1, 28, 28])
    label = fluid.layers.data(name='label', shape=[1], dtype='int64')
    feeder = fluid.DataFeeder(place=fluid.CPUPlace(), feed_list=[img, label])
    result = feeder.feed([([0] * 784, [9]), ([1] * 784, [1])])
"""

    def test_feed(self):
        result = run(self.CLASS)["result"]
        assert list(result) == ["image", "label"]
        assert result["image"].shape == (2, 1, 28, 28)
        assert result["image"].numpy().sum() == 784
        assert (result["image"].dtype, result["label"].dtype) == (np.float32, np.int64)
        assert result["label"].numpy().tolist() == [[9], [1]]
        assert result["label"].lod() == []

    FEED = """
import numpy as np
import paddle.fluid as fluid

def reader(limit=5):
    for i in range(1, limit + 1):
        yield (np.ones([6]).astype('float32') * i, np.ones([1]).astype('int64') * i,
               np.random.random([9]).astype('float32'))

data_1 = fluid.data(name='data_1', shape=[None, 2, 1, 3])
data_2 = fluid.data(name='data_2', shape=[None, 1], dtype='int64')
data_3 = fluid.data(name='data_3', shape=[None, 3, 3], dtype='float32')
feeder = fluid.DataFeeder(['data_1','data_2', 'data_3'], fluid.CPUPlace())

result = feeder.feed(reader())
"""

    def test_feed_of_a_generator(self):
        result = run(self.FEED)["result"]
        assert [tensor.shape for tensor in result.values()] == [(5, 2, 1, 3), (5, 1), (5, 3, 3)]
        assert result["data_2"].numpy().ravel().tolist() == [1, 2, 3, 4, 5]
        np.testing.assert_array_equal(result["data_1"].numpy()[:, 1, 0, 2], np.arange(1, 6))

    FEED_PARALLEL = """
import numpy.random as random
import paddle.fluid as fluid

def reader(limit=10):
    for i in range(limit):
        yield [random.random([784]).astype('float32'), random.random([1]).astype('float32')],

x = fluid.layers.data(name='x', shape=[1, 28, 28])
y = fluid.layers.data(name='y', shape=[1], dtype='float32')

feeder = fluid.DataFeeder(['x','y'], fluid.CPUPlace())
place_num = 2
data = []
feeds = []
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())

for item in reader():
    data.append(item)
    if place_num == len(data):
        feeds += list(feeder.feed_parallel(data, place_num))
        data = []
"""

    def test_feed_parallel(self):
        feeds = run(self.FEED_PARALLEL)["feeds"]
        assert [feed["x"].shape for feed in feeds] == [(1, 1, 28, 28)] * 10
        assert len({float(feed["y"].numpy().item()) for feed in feeds}) == 10

    DECORATE = """
import numpy as np
import paddle
import paddle.fluid as fluid

def reader():
    for i in range(12):
        yield np.full([784], i, 'float32'), [i]

data = fluid.layers.data(name='data', shape=[1, 28, 28])
label = fluid.layers.data(name='label', shape=[1], dtype='int64')
place = fluid.{place}
feeder = fluid.DataFeeder(place=place, feed_list=[data, label])
reader = feeder.decorate_reader(paddle.batch(reader, batch_size=4){more})
feeds = list(reader())
"""

    @pytest.mark.parametrize("place", ["CPUPlace()", "CUDAPlace(0)"])
    @pytest.mark.parametrize("more", ["", ", multi_devices=False"])
    def test_decorate_reader(self, place, more):
        with gf.virtual_devices(1):
            feeds = run(self.DECORATE.format(place=place, more=more))["feeds"]
            assert [feed["data"].shape for feed in feeds] == [(4, 1, 28, 28)] * 3
            labels = [feed["label"].numpy().ravel().tolist() for feed in feeds]
            assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]

    def test_decorate_reader_for_many_devices(self):
        with gf.virtual_devices(2):
            script = self.DECORATE.format(place="CUDAPlace(0)", more=", multi_devices=True")
            [feeds] = run(script)["feeds"]
            assert [str(feed.place) for feed in feeds] == ["cuda:0", "cuda:1"]
            with pytest.raises(ValueError, match="left over"):
                run(script.replace("multi_devices=True", "multi_devices=True, drop_last=False"))


class TestExecutors:
    """The loops of the book's chapter on digits, whose network is left out."""

    LOOP = """
import paddle
import paddle.fluid as fluid

train_reader = paddle.batch(
    paddle.reader.shuffle(paddle.dataset.mnist.train(), buf_size=500), batch_size=8)
img = fluid.layers.data(name='img', shape=[1, 28, 28], dtype='float32')
label = fluid.layers.data(name='label', shape=[1], dtype='int64')

use_cuda = fluid.core.is_compiled_with_cuda()
place = fluid.CUDAPlace(0) if use_cuda else fluid.CPUPlace()
feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
digits = []
for pass_id in range(2):
    for batch_id, data in enumerate(train_reader()):
        image, digit = exe.run(fluid.default_main_program(),
                               feed=feeder.feed(data),
                               fetch_list=[img, label])
        assert image.shape == (len(data), 1, 28, 28)
        digits += digit.ravel().tolist()
"""

    PARALLEL = """
import paddle
import paddle.fluid as fluid

batches = paddle.batch(paddle.dataset.mnist.train(), batch_size=4)
img = fluid.layers.data(name='img', shape=[1, 28, 28], dtype='float32')
label = fluid.layers.data(name='label', shape=[1], dtype='int64')
feeder = fluid.DataFeeder(feed_list=[img, label], place=fluid.CUDAPlace(0))
exe = fluid.ParallelExecutor(use_cuda=True, main_program=fluid.default_main_program())
digits = []
for feeds in feeder.decorate_reader(batches, multi_devices=True)():
    digit, = exe.run(fetch_list=[label.name], feed=feeds)
    digits += digit.ravel().tolist()
whole = feeder.feed([(image, digit) for batch in batches() for image, digit in batch])
again, = exe.run(fetch_list=[label.name], feed=whole)
"""

    def test_one_place(self, mnist):
        assert Counter(run(self.LOOP)["digits"]) == Counter(mnist[1].tolist() * 2)
        with gf.virtual_devices(1):
            found = run(self.LOOP)
            assert found["place"] == gf.CUDAPlace(0)
            assert Counter(found["digits"]) == Counter(mnist[1].tolist() * 2)

    def test_many_places(self, mnist):
        with gf.virtual_devices(2):
            found = run(self.PARALLEL)
        labels = mnist[1].tolist()
        assert found["digits"] == labels[:16]  # the fifth batch has no second device to fill
        assert found["again"].ravel().tolist() == labels


class TestReaderDecorators:
    """The examples of ``paddle.reader``'s functions."""

    def test_cache(self):
        script = """
import paddle

def reader():
    for i in range(3):
        yield i

cached_reader = paddle.reader.cache(reader)
"""
        cached = run(script)["cached_reader"]
        assert list(cached()) == list(cached()) == [0, 1, 2]

    def test_map_readers(self):
        script = """
import paddle

d = {"h": 0, "i": 1}

def func(x):
    return d[x]

def reader():
    yield "h"
    yield "i"

map_reader_result = paddle.reader.map_readers(func, reader)
"""
        assert list(run(script)["map_reader_result"]()) == [0, 1]

    def test_buffered_shuffle_firstn(self):
        script = """
import paddle.fluid as fluid

def reader():
    for i in range(100):
        yield i

firstn_reader = fluid.io.firstn(reader, 5)
buffered_reader = fluid.io.buffered(reader, 100)
shuffled_reader = fluid.io.shuffle(reader, 30)
"""
        found = run(script)
        assert list(found["firstn_reader"]()) == [0, 1, 2, 3, 4]
        assert list(found["buffered_reader"]()) == list(range(100))
        shuffled = list(found["shuffled_reader"]())
        assert shuffled != list(range(100))
        assert sorted(shuffled[:30]) == list(range(30))

    def test_compose(self):
        script = """
import paddle.fluid as fluid

def reader_creator_10(dur):
    def reader():
        for i in range(10):
            yield i
    return reader

reader = fluid.io.compose(reader_creator_10(0), reader_creator_10(0))
"""
        assert list(run(script)["reader"]()) == [(i, i) for i in range(10)]
        spliced = paddle.reader.compose(lambda: [(1, 2)], lambda: [3], lambda: [(4, 5)])
        assert list(spliced()) == [(1, 2, 3, 4, 5)]

    def test_chain(self):
        script = """
import paddle

def reader_creator_3(start):
    def reader():
        for i in range(start, start + 3):
            yield [i, i, i]
    return reader

c = paddle.reader.chain(reader_creator_3(0), reader_creator_3(10), reader_creator_3(20))
"""
        expected = [[i] * 3 for start in (0, 10, 20) for i in range(start, start + 3)]
        assert list(run(script)["c"]()) == expected

    def test_xmap_readers(self):
        for order in (False, True):
            reader = paddle.reader.xmap_readers(lambda x: x + 1, lambda: range(20), 4, 8, order)
            assert sorted(reader()) == list(range(1, 21))

    @pytest.mark.parametrize("use_pipe", [True, False])
    def test_multiprocess_reader(self, tmp_path, monkeypatch, use_pipe):
        monkeypatch.chdir(tmp_path)
        script = """
import numpy as np
from paddle.fluid.io import multiprocess_reader

np.savez('one.npz', a=np.array([1, 2]), b=np.array([3, 4]), c=np.array([5, 6]))
np.savez('two.npz', a=np.array([7, 8]), b=np.array([9, 10]))

def arrays_of(file_name):
    def reader():
        with np.load(file_name) as data:
            for item in sorted(data.files):
                yield data[item],
    return reader

reader = multiprocess_reader([arrays_of(f) for f in ['one.npz', 'two.npz']], use_pipe)
samples = list(reader())
"""
        samples = run(script, use_pipe=use_pipe)["samples"]
        assert sorted(array.tolist() for (array,) in samples) == [
            [first, first + 1] for first in range(1, 11, 2)
        ]

    def test_pipe_reader(self, tmp_path):
        (tmp_path / "a").write_text("0 1\n2 3\n")
        (tmp_path / "b").write_text("4 5")  # without a line break, which lost the line there
        script = """
from paddle.reader import PipeReader

def reader():
    for f in files:
        for line in PipeReader("cat %s" % f).get_line():
            yield line.split(" ")
"""
        found = run(script, files=[str(tmp_path / name) for name in "ab"])
        assert list(found["reader"]()) == [["0", "1"], ["2", "3"], ["4", "5"]]

    def test_fake(self):
        script = """
from paddle.reader import Fake

def reader():
    for i in range(10):
        yield i

fake_reader = Fake()(reader, 100)
"""
        fake = run(script)["fake_reader"]
        assert list(fake()) == list(fake()) == [0] * 100


class TestCreators:
    """The examples and test files of ``paddle.reader.creator``."""

    def test_np_array(self):
        rows = np.arange(6).reshape(3, 2)
        reader = paddle.reader.creator.np_array(rows)
        np.testing.assert_array_equal(list(reader()), rows)

    def test_text_file(self, tmp_path):
        (tmp_path / "test_data_creator.txt").write_text("0 1\n2 3\n4 5\n")
        reader = paddle.reader.creator.text_file(str(tmp_path / "test_data_creator.txt"))
        assert list(reader()) == ["0 1", "2 3", "4 5"]

    def test_recordio(self, tmp_path):
        """The reference's own test file, byte for byte, which holds two pickled tuples."""
        path = tmp_path / "test_reader_recordio.dat"
        path.write_bytes(
            bytes.fromhex(
                "04030201 9362159b 01000000 38000000 02000000 ff060000734e61507059"
                "01 2a0000 585d4c3c 0f000000"
            )
            + b"(I1\nI2\nI3\ntp1\n."
            + bytes.fromhex("0f000000")
            + b"(I4\nI5\nI6\ntp1\n."
        )
        for paths in (str(path), [str(path)], f"{path},{path}"):
            records = list(paddle.reader.creator.recordio(paths, buf_size=10)())
            assert records[:2] == [(1, 2, 3), (4, 5, 6)]
        assert len(records) == 4


class TestReadersOfFiles:
    """``fluid.recordio_writer`` and the readers of ``fluid.layers``, as in the book's recipes."""

    WRITE = """
import numpy as np
import paddle
import paddle.fluid as fluid

with fluid.program_guard(fluid.Program(), fluid.Program()):
    reader = paddle.batch(paddle.dataset.mnist.train(), batch_size=8)
    feeder = fluid.DataFeeder(
        feed_list=[  # order is image and label
            fluid.layers.data(name='image', shape=[784]),
            fluid.layers.data(name='label', shape=[1], dtype='int64'),
        ],
        place=fluid.CPUPlace())
    num = fluid.recordio_writer.convert_reader_to_recordio_file(
        filename, reader, feeder, compressor=fluid.core.RecordIOWriter.Compressor.NoCompress)
"""

    READ = """
import paddle.fluid as fluid

data_file = fluid.layers.{open}(
    {filename},
    shapes=[[-1, 784], [-1, 1]],
    lod_levels=[0, 0],
    dtypes=['float32', 'int64'])
data_file = fluid.layers.double_buffer(data_file)
img, label = fluid.layers.read_file(data_file)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
labels = []
for pass_id in range(2):
    try:
        while True:
            image_batch, label_batch = exe.run(fetch_list=[img, label])
            labels += label_batch.ravel().tolist()
    except fluid.core.EOFException:
        data_file.reset()
"""

    @pytest.mark.parametrize("opener", ["open_files", "open_recordio_file"])
    def test_write_and_read(self, mnist, tmp_path, opener):
        filename = str(tmp_path / "mnist.recordio")
        assert run(self.WRITE, filename=filename)["num"] == 3
        given = f"[{filename!r}]" if opener == "open_files" else repr(filename)
        labels = run(self.READ.format(open=opener, filename=given))["labels"]
        assert Counter(labels) == Counter(mnist[1].tolist() * 2)

    PY_READER = """
import paddle
import paddle.fluid as fluid

reader = fluid.layers.py_reader(capacity=64,
                                shapes=[(-1,1,28,28), (-1,1)],
                                dtypes=['float32', 'int64'])
reader.decorate_paddle_reader(
    paddle.reader.shuffle(paddle.batch(paddle.dataset.mnist.train(), batch_size=5), buf_size=1000))
img, label = fluid.layers.read_file(reader)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
labels = []
for epoch_id in range(2):
    reader.start()
    try:
        while True:
            image_batch, label_batch = exe.run(fetch_list=[img.name, label.name])
            labels += label_batch.ravel().tolist()
    except fluid.core.EOFException:
        reader.reset()
"""

    def test_py_reader(self, mnist):
        labels = run(self.PY_READER)["labels"]
        assert Counter(labels) == Counter(mnist[1].tolist() * 2)


class TestLoDTensor:
    """The examples of ``fluid.create_lod_tensor``, ``LoDTensor`` and their kin."""

    def test_create(self):
        script = """
import numpy as np
import paddle.fluid as fluid

t = fluid.create_lod_tensor(np.ndarray([5, 30]), [[2, 3]], fluid.CPUPlace())
u = fluid.create_random_int_lodtensor([[2, 3]], base_shape=[30], place=fluid.CPUPlace(),
                                      low=0, high=10)
w = fluid.LoDTensor()
w.set(np.ndarray([5, 30]), fluid.CPUPlace())
w.set_recursive_sequence_lengths([[2, 3]])
arr = fluid.LoDTensorArray()
arr.append(w)
"""
        found = run(script)
        for name in "tuw":
            assert found[name].recursive_sequence_lengths() == [[2, 3]]
            assert found[name].lod() == [[0, 2, 5]]
            assert np.array(found[name]).shape == (5, 30)
        assert len(found["arr"]) == 1

    def test_set_lod(self):
        script = """
import numpy as np
import paddle.fluid as fluid

t = fluid.LoDTensor()
t.set(np.ndarray([5, 30]), fluid.CPUPlace())
t.set_lod([[0, 2, 5]])
"""
        tensor = run(script)["t"]
        assert tensor.recursive_sequence_lengths() == [[2, 3]]
        assert tensor.has_valid_recursive_sequence_lengths()


DATA = Path(__file__).parents[2] / "../shared/data/mnist"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}")
def test_mnist_of_the_real_files():
    images, labels = [], []
    for image, label in paddle.reader.firstn(paddle.dataset.mnist.test(DATA), 100)():
        images.append(image)
        labels.append(label)
    assert labels[:5] == [7, 2, 1, 0, 4]
    assert np.stack(images).shape == (100, 784)
    assert np.abs(images).max() <= 1
