"""A script of the reference's time: it runs on PaddlePaddle 1.8.5, and here once ported.

Every line that it prints is a JSON value, and has to be the same in both.
"""

import json
import os
import random

import numpy as np

os.environ["CPU_NUM"] = "2"

import paddle
import paddle.fluid as fluid

draw = random.Random(11)


def show(*values):
    print(json.dumps(values))


def ended(iterable):
    """Return what came, and the kind of error that it ended in."""
    got = []
    try:
        for each in iterable:
            got.append(each)  # noqa: PERF402 - what came before the error is shown
    except ValueError:
        return got, "ValueError"
    return got, None


def numbers(n, make=lambda i: i):
    return lambda: (make(i) for i in range(n))


def random_item(i):
    return draw.choice([i, (i,), (i, i), [i, i], str(i), (i, (i,)), [], {"i": i}])


for n in (0, 1, 5, 8):
    for size in (1, 2, 4, 9):
        for drop_last in (False, True):
            show("batch", list(paddle.batch(numbers(n), size, drop_last)()))
for size in (0, -1, "x"):
    try:
        paddle.batch(numbers(3), size)
        show("batch", size)
    except ValueError:
        show("batch", size, "ValueError")

for _ in range(60):
    readers = [numbers(draw.randint(0, 4), random_item) for _ in range(draw.randint(1, 3))]
    kept = [paddle.reader.cache(reader) for reader in readers]
    show("cache", [list(reader()) for reader in kept])
    show("chain", list(paddle.reader.chain(*kept)()))
    show("compose", ended(paddle.reader.compose(*kept)()))
    show("shortest", list(paddle.reader.compose(*kept, check_alignment=False)()))
    show("map", list(paddle.reader.map_readers(lambda *items: [items], *kept)()))
    for n in (-1, 0, 2, 9, None):
        show("firstn", list(paddle.reader.firstn(kept[0], n)()))
    for size in (-1, 0, 1, 5):
        show("buffered", list(paddle.reader.buffered(kept[0], size)()))
    ordered = paddle.reader.xmap_readers(lambda item: [item], kept[0], 2, 4, order=True)
    show("xmap", list(ordered()))
    blocks = list(paddle.reader.shuffle(numbers(10), 4)())
    show("shuffle", sorted(blocks[:4]), sorted(blocks[4:8]), sorted(blocks[8:]))


def lengths_of(levels):
    entries, lengths = draw.randint(1, 3), []
    for _ in range(levels):
        lengths.append([draw.randint(0, 3) for _ in range(entries)])
        entries = max(1, sum(lengths[-1]))
    return lengths


for _ in range(200):
    lengths = lengths_of(draw.randint(0, 3))
    height = sum(lengths[-1]) if lengths else 3
    if draw.random() < 0.3:
        height = draw.randint(1, 9)
    tensor = fluid.LoDTensor()
    tensor.set(np.arange(2 * height).reshape(height, 2).astype("float32"), fluid.CPUPlace())
    try:
        tensor.set_recursive_sequence_lengths(lengths)
        show(
            "lengths", tensor.recursive_sequence_lengths(), tensor.lod(), np.array(tensor).tolist()
        )
        show("valid", tensor.has_valid_recursive_sequence_lengths())
    except Exception:  # noqa: BLE001 - another kind in each
        show("lengths", lengths, "refused")

for _ in range(60):
    rows = [[draw.randint(0, 9) for _ in range(draw.randint(0, 3))] for _ in range(3)]
    if any(rows):
        made = fluid.create_lod_tensor(rows, [[len(row) for row in rows]], fluid.CPUPlace())
        show("create", np.array(made).tolist(), made.lod())
    drawn = fluid.create_random_int_lodtensor([[2, 3]], [2], fluid.CPUPlace(), 4, 5)
    show("drawn", np.array(drawn).shape, sorted(set(np.array(drawn).ravel().tolist()) | {4, 5}))

with fluid.program_guard(fluid.Program(), fluid.Program()):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=2)
    image = fluid.layers.data("image", [2, 2])
    label = fluid.data("label", [None, 1], "int64")
    feeder = fluid.DataFeeder([words, "image", label], fluid.CPUPlace())
    show([variable.shape for variable in (words, image, label)])


def sample(i):
    sentences = [[i] * draw.randint(0, 3) for _ in range(draw.randint(1, 3))]
    return sentences, [i, 1, 2, 3], i


def shown(feed):
    return [
        (name, feed[name].recursive_sequence_lengths(), np.array(feed[name]).tolist())
        for name in ("words", "image", "label")
    ]


for n in (1, 4, 7, 9):
    reader = paddle.reader.cache(paddle.batch(numbers(n, sample), 2))
    show("feed", [shown(feeder.feed(batch)) for batch in reader()])
    show("one", [shown(feed) for feed in feeder.decorate_reader(reader, multi_devices=False)()])
    for drop_last in (True, False):
        many = feeder.decorate_reader(reader, multi_devices=True, drop_last=drop_last)
        groups, error = ended(many())
        show("many", [[shown(feed) for feed in group] for group in groups], error)
    pair = list(reader())[:2]
    groups, error = ended(feeder.feed_parallel(pair, 2))
    show("parallel", [shown(feed) for feed in groups], error)


def arrays():
    for i in range(5):
        yield np.full((i + 1, 2), i, "float32"), np.full((i + 1, 1), i)


with fluid.program_guard(fluid.Program(), fluid.Program()):
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    for places in (fluid.CPUPlace(), fluid.cpu_places(2)):
        loader = fluid.io.DataLoader.from_generator([x, y], 4)
        rows = paddle.reader.cache(numbers(7, lambda i: ([i, i], [i])))
        for drop_last in (True, False):
            loader.set_sample_generator(rows, 2, drop_last, places)
            show(
                "samples", [[np.array(feed["y"]).tolist() for feed in feeds] for feeds in loader()]
            )
        loader.set_sample_list_generator(paddle.batch(rows, 3), places)
        show("lists", [[np.array(feed["x"]).tolist() for feed in feeds] for feeds in loader()])
        loader.set_batch_generator(arrays, places)
        show("arrays", [[np.array(feed["x"]).tolist() for feed in feeds] for feeds in loader()])


def rows(n):
    return lambda: (
        [([i, i + 0.5], [i] * (i % 3), i) for i in range(n)][at : at + 2] for at in range(0, n, 2)
    )


def passes(exe, main, reader, fetched):
    for _ in range(2):
        reader.start()
        got = []
        try:
            while True:
                values = exe.run(main, fetch_list=fetched, return_numpy=False)
                got.append([(value.lod(), np.array(value).tolist()) for value in values])
        except fluid.core.EOFException:
            reader.reset()
        show("pass", got)


def declared():
    return [
        fluid.layers.data("x", [2]),
        fluid.layers.data("ids", [1], dtype="int64", lod_level=1),
        fluid.layers.data("y", [1], dtype="int64"),
    ]


def recorded(made, double):
    """Return what a program reads, and what begins its passes."""
    if made == "py_reader":
        shapes, dtypes = [(-1, 2), (-1, 1), (-1, 1)], ["float32", "int64", "int64"]
        reader = fluid.layers.py_reader(4, shapes, dtypes, [0, 1, 0], None, double)
        reader.decorate_sample_list_generator(rows(7))
        return reader, fluid.layers.read_file(reader)
    fields = declared()
    if made == "by_data":
        reader = fluid.layers.create_py_reader_by_data(4, fields, None, double)
        reader.decorate_paddle_reader(rows(7))
        return reader, fluid.layers.read_file(reader)
    if made == "PyReader":
        reader = fluid.io.PyReader(fields, 4, double, iterable=False)
        reader.decorate_sample_list_generator(rows(7))
    else:
        reader = fluid.io.DataLoader.from_generator(fields, 4, double, iterable=False)
        reader.set_sample_list_generator(rows(7))
    return reader, fields


exe = fluid.Executor(fluid.CPUPlace())
for made in ("py_reader", "by_data", "PyReader", "DataLoader"):
    for double in (True, False):
        with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            main, startup = fluid.Program(), fluid.Program()
            with fluid.program_guard(main, startup):
                reader, fields = recorded(made, double)
            exe.run(startup)
            passes(exe, main, reader, fields)

main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup):
    x, y = declared()[0], fluid.data("strict", [None, 1], "int64")
for fed in (np.ones((3, 2), "float32"), np.ones((3, 5), "float32"), np.ones((2, 3, 4), "float32")):
    show("unchecked", [got.tolist() for got in exe.run(main, {"x": fed}, [x])])
for fed in (np.ones((3, 1), "int64"), np.ones((3, 2), "int64"), np.ones((3, 1), "float32")):
    try:
        show("checked", [got.tolist() for got in exe.run(main, {"strict": fed}, [y])])
    except ValueError:
        show("checked", "ValueError")
test = main.clone(for_test=True)
show(
    "clone",
    [got.tolist() for got in exe.run(test, {"strict": np.ones((1, 1), "int64")}, ["strict"])],
)
