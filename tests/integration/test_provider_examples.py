"""The two providers of the reference's documents, as they are written there, on published files.

The files are first put into the documents' line formats: ``label;pixel pixel ...`` for MNIST, and
``label<tab>sentence`` beside a dictionary of one word a line for the sentences.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import gpufeed as gf

DATA = Path(__file__).parents[2] / "../shared/data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}")

MNIST_PROVIDER = """
from gpufeed.provider import *


# Define a py data provider
@provider(
    input_types={"pixel": dense_vector(28 * 28), "label": integer_value(10)},
    cache=CacheType.CACHE_PASS_IN_MEM,
    check=True,
)
def process(settings, filename):  # settings is not used currently.
    f = open(filename, "r")  # open one of training file
    for line in f:  # read each line
        label, pixel = line.split(";")
        # get features and label
        pixels_float = []
        for each_pixel_str in pixel.split(" "):
            pixels_float.append(float(each_pixel_str))
        # give data
        yield {"pixel": pixels_float, "label": int(label)}
    f.close()  # close file
"""

SENTIMENT_PROVIDER = """
from gpufeed.provider import *


def on_init(settings, dictionary, **kwargs):
    # set input types in runtime
    settings.input_types = {
        "data": integer_value_sequence(len(dictionary)),  # text input
        "label": integer_value(2),  # label positive/negative
    }
    settings.dictionary = dictionary
    settings.logger.info("dictionary of %d words", len(dictionary))


@provider(init_hook=on_init, check=True)
def process(settings, filename):
    with open(filename, "r", encoding="utf-8") as f:
        for line in f:
            label, sentence = line.rstrip("\\n").split("\\t")
            words = sentence.split(" ")
            # words that are not in the dictionary are left out
            word_ids = [settings.dictionary[w] for w in words if w in settings.dictionary]
            yield {"data": word_ids, "label": int(label)}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to write configurations into, which is where a training script runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in {"mnist_provider", "sentiment_provider"} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.fixture(params=["cpu", "virtual"])
def place(request):
    """The host, and a device without a GPU."""
    is_virtual = request.param == "virtual"
    with gf.virtual_devices(1) if is_virtual else nullcontext():
        yield gf.CUDAPlace(0) if is_virtual else gf.CPUPlace()


def split_into(folder, name, lines, num_files):
    """Write lines into several files, and a list of these."""
    paths = [f"{name}-{number}.txt" for number in range(num_files)]
    for number, path in enumerate(paths):
        text = "".join(f"{line}\n" for line in lines[number::num_files])
        Path(folder, path).write_text(text, encoding="utf-8")
    Path(folder, f"{name}.list").write_text("\n".join(paths) + "\n")


def test_mnist(folder, place):
    images = [
        (np.round((image + 1) / 2, 4), label)
        for image, label in islice(gf.dataset.mnist.test(DATA / "mnist")(), 700)
    ]
    lines = [f"{label};{' '.join(f'{pixel:g}' for pixel in image)}" for image, label in images]
    split_into(folder, "train", lines[:600], num_files=3)
    split_into(folder, "test", lines[600:], num_files=1)
    Path(folder, "mnist_provider.py").write_text(MNIST_PROVIDER)

    train, test = gf.define_py_data_sources2(
        train_list="train.list",
        test_list="test.list",
        module="mnist_provider",
        obj="process",
        seed=1,
    )
    with gf.program_guard(gf.Program()):
        gf.data("pixel", [1, 28, 28])
        gf.data("label", [1], "int64")
        feeder = train.feeder(place)
    training = feeder.decorate_reader(train.batches(128))
    expected = Counter(_key(image, label) for image, label in images[:600])
    first, second = (_collect(training) for _ in range(2))
    assert Counter(first) == Counter(second) == expected
    assert first != second

    tests = [feed for batch in test.batches(64) for feed in [feeder.feed(batch)]]
    assert [feed["pixel"].shape for feed in tests] == [(64, 1, 28, 28), (36, 1, 28, 28)]
    assert _collect(tests) == [_key(image, label) for image, label in images[600:]]


def test_the_second_pass_needs_no_files(folder):
    split_into(folder, "train", ["1;" + " ".join(["0.5"] * 784)] * 10, num_files=2)
    Path(folder, "mnist_provider.py").write_text(MNIST_PROVIDER)
    train, _ = gf.define_py_data_sources2("train.list", None, "mnist_provider", "process")
    first = list(train.batches(4))
    for path in folder.glob("train-*.txt"):
        path.unlink()
    assert Counter(map(len, train.batches(4))) == Counter(map(len, first)) == {4: 2, 2: 1}


def test_a_broken_line_is_found(folder):
    good = "1;" + " ".join(["0.5"] * 784)
    split_into(folder, "train", [good, good, "12;" + good[2:]], num_files=1)
    Path(folder, "mnist_provider.py").write_text(MNIST_PROVIDER)
    train, _ = gf.define_py_data_sources2("train.list", None, "mnist_provider", "process")
    message = (
        r"process\('train-0.txt'\): field 'label', sample 2: expected values in \[0, 10\), got 12"
    )
    with pytest.raises(gf.FieldError, match=message):
        list(train)


def test_sentiment(folder, place):
    reviews = []
    for label, name in enumerate(("neg", "pos")):
        text = gf.creator.text_file(DATA / "rt-polarity" / f"rt-polarity.{name}")
        reviews += [(label, " ".join(line.split())) for line in text()]
    counts = Counter(word for _, sentence in reviews for word in sentence.split(" "))
    words = [f"{word}\t{count}" for word, count in counts.most_common(3000)]
    Path(folder, "dictionary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    lines = [f"{label}\t{sentence}" for label, sentence in reviews]
    tested = lines[::10]
    split_into(folder, "test", tested, num_files=1)
    del lines[::10]
    split_into(folder, "train", lines, num_files=12)
    Path(folder, "sentiment_provider.py").write_text(SENTIMENT_PROVIDER)

    # The configuration: it reads the dictionary, and the provider knows what it is given.
    dictionary = {}
    with open("dictionary.txt", encoding="utf-8") as f:
        for number, line in enumerate(f):
            dictionary[line.split("\t")[0]] = number
    train, test = gf.define_py_data_sources2(
        train_list="train.list",
        test_list="test.list",
        module="sentiment_provider",
        obj="process",
        args={"dictionary": dictionary},
    )

    def encoded(lines):
        for line in lines:
            label, sentence = line.split("\t")
            ids = [dictionary[word] for word in sentence.split(" ") if word in dictionary]
            yield tuple(ids), int(label)

    training = train.feeder(place).decorate_reader(train.batches(128))
    testing = test.feeder(place).decorate_reader(test.batches(128))
    assert Counter(_sentences(training)) == Counter(encoded(lines))
    assert list(_sentences(testing)) == list(encoded(tested))


def _key(image, label):
    return np.asarray(image, np.float32).tobytes(), int(label)


def _collect(feeds):
    found = []
    for feed in feeds:
        pixels, labels = feed["pixel"].numpy(), feed["label"].numpy()
        found += [_key(image, label) for image, [label] in zip(pixels, labels, strict=True)]
    return found


def _sentences(feeds):
    for feed in feeds:
        words, labels = feed["data"].to("cpu"), feed["label"].numpy()
        assert words.lod_level == 1
        [lengths] = words.recursive_sequence_lengths()
        ends = np.cumsum([0, *lengths])
        flat = words.data.ravel().tolist()
        for at, [label] in enumerate(labels):
            yield tuple(flat[ends[at] : ends[at + 1]]), int(label)
