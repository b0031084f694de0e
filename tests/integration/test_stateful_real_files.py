"""Stateful readers over published files, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpufeed import creator, layers
from gpufeed.dataset import mnist
from gpufeed.errors import EOFException
from gpufeed.executor import Executor
from gpufeed.reader import batch
from gpufeed.stateful import BatchReader, open_files
from gpufeed.variables import Program, program_guard

DATA = Path(__file__).parents[2] / "../shared/data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}")


def test_images_of_one_file_in_batches():
    path = DATA / "mnist" / "t10k-images-idx3-ubyte.gz"
    reader = BatchReader(open_files(path, [[28, 28]], [0], ["uint8"]), 512)
    batches = [images.data.copy() for (images,) in reader()]
    assert [len(images) for images in batches] == [512] * 19 + [272]
    np.testing.assert_array_equal(np.concatenate(batches), np.stack(list(creator.idx(path)())))


def test_two_files_at_once_give_every_item_of_both():
    paths = [DATA / "mnist" / name for name in ("t10k-labels-idx1-ubyte.gz",) * 2]
    reader = BatchReader(open_files(paths, [[-1]], [0], ["uint8"], thread_num=2), 1000)
    labels = np.concatenate([labels.data.copy() for (labels,) in reader()])
    # The published numbers of test images a digit, twice.
    assert np.bincount(labels).tolist() == [
        *(2 * n for n in (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009))
    ]


def test_a_python_reader_of_images_and_labels():
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader = layers.py_reader(4, [[784], [1]], ["float32", "int64"])
        fields = layers.read_file(reader)
    reader.decorate_paddle_reader(batch(mnist.test(DATA / "mnist"), 256))
    executor = Executor("cpu")
    executor.run(startup)
    for _ in range(2):
        reader.start()
        total, labels = 0.0, []
        try:
            while True:
                images, label = executor.run(main, fetch_list=fields)
                total += float(images.sum(dtype=np.float64))
                labels.append(label.ravel().copy())
        except EOFException:
            reader.reset()
        assert np.bincount(np.concatenate(labels))[7] == 1028
        assert abs((total / (10_000 * 784) + 1) / 2 - 0.1325) < 1e-4
