"""One pipeline through all faces: the same batches, value for value and LoD for LoD."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gpufeed as gf
from gpufeed.compat import fluid, paddle
from gpufeed.provider import integer_value, integer_value_sequence, provider
from gpufeed.stateful import BatchReader, ReaderHolder, ShuffleReader, open_files

NUM_FILES, NUM_ROWS, BATCH_SIZE, BUFFER_SIZE = 3, 17, 8, 20
DECLARED = {"shapes": [[1], [1]], "lod_levels": [1, 0], "dtypes": ["int64", "int64"]}


@pytest.fixture
def files(tmp_path):
    """Files of JSON lines, each a sequence and a label."""
    rng = np.random.default_rng(3)
    for file in range(NUM_FILES):
        lines = [
            json.dumps([rng.integers(0, 99, rng.integers(0, 6)).tolist(), row])
            for row in range(NUM_ROWS)
        ]
        (tmp_path / f"{file}.jsonl").write_text("\n".join(lines))
    return sorted(map(str, tmp_path.iterdir()))


@pytest.fixture
def fields():
    with gf.program_guard(gf.Program(), gf.Program()):
        yield [gf.data("words", [1], "int64", lod_level=1), gf.data("label", [1], "int64")]


def shown(tensors):
    return [(each.numpy().tolist(), each.recursive_sequence_lengths()) for each in tensors]


def samples(files, seed):
    reader = gf.creator.jsonl(files)
    return reader if seed is None else gf.reader.shuffle(reader, BUFFER_SIZE, seed=seed)


def by_hand(files, fields, seed):
    batches = gf.batch(samples(files, seed), BATCH_SIZE)
    feeds = gf.DataFeeder(fields, "cpu").decorate_reader(batches)
    return [shown(feed.values()) for feed in feeds()]


def by_train(files, fields, seed):
    seen = []
    gf.train(
        *(samples(files, seed), {"words": 0, "label": 1}, BATCH_SIZE, 1),
        step=lambda feed: seen.append(shown(feed.values())),
        feed_list=fields,
        places="cpu",
    )
    return seen


def by_compat(files, fields, seed):
    feeder = fluid.DataFeeder(feed_list=fields, place=fluid.CPUPlace())
    feeds = feeder.decorate_reader(
        paddle.batch(samples(files, seed), BATCH_SIZE), multi_devices=False
    )
    return [shown(feed.values()) for feed in feeds()]


def held_open(files, seed):
    reader = open_files([f"jsonl:{path}" for path in files], **DECLARED, is_test=True)
    if seed is not None:
        reader = ShuffleReader(reader, BUFFER_SIZE, seed=seed)
    return BatchReader(reader, BATCH_SIZE)


def by_stateful(files, fields, seed):
    reader = held_open(files, seed)
    seen = []
    while reader.has_next():
        seen.append(shown(reader.read_next()))
    return seen


def by_layers(files, fields, seed):
    reader = gf.layers.open_files([f"jsonl:{path}" for path in files], **DECLARED, is_test=True)
    if seed is not None:
        reader = gf.layers.shuffle(reader, BUFFER_SIZE, seed=seed)
    reader = gf.layers.double_buffer(gf.layers.batch(reader, BATCH_SIZE))
    read = gf.layers.read_file(reader)
    executor = gf.Executor("cpu")
    executor.run(gf.default_startup_program())
    seen = []
    while reader.has_next():
        seen.append(shown(executor.run(fetch_list=read, return_numpy=False)))
    return seen


def by_provider(files, fields, seed):
    assert seed is None

    @provider(input_types={"words": integer_value_sequence(99), "label": integer_value(99)})
    def process(settings, filename):
        yield from gf.creator.jsonl(filename)()

    test = process(files, is_train=False)
    feeds = test.feeder("cpu").decorate_reader(test.batches(BATCH_SIZE))
    return [shown(feed.values()) for feed in feeds()]


FACES = [by_train, by_compat, by_stateful, by_layers]


@pytest.mark.parametrize("face", [*FACES, by_provider])
def test_in_order(files, fields, face):
    expected = by_hand(files, fields, None)
    assert len(expected) == 7
    assert face(files, fields, None) == expected


@pytest.mark.parametrize("face", FACES)
def test_shuffled(files, fields, face):
    expected = by_hand(files, fields, 5)
    assert expected != by_hand(files, fields, None)
    assert face(files, fields, 5) == expected


def test_a_stateful_reader_is_a_reader(files, fields):
    """What is held open is decorated, fed and trained from like any other."""
    seen = []
    held = ReaderHolder(gf.creator.jsonl(files))
    gf.train(
        *(held, {"words": 0, "label": 1}, BATCH_SIZE, 1),
        step=lambda feed: seen.append(shown(feed.values())),
        feed_list=fields,
        places="cpu",
    )
    assert seen == by_hand(files, fields, None)
