"""Digits out of files of lines, by `@provider`.

A provider is a generator function that reads *one* file. Called with a list of files, what the
decorator makes of it is a reader over all of them, which opens several at once, shuffles, keeps
what it has read if it is told to, and makes batches on a thread of its own.

    python -m gpufeed.examples.provider_mnist --data DIR
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpufeed as gf
from gpufeed.demo.models import Images
from gpufeed.examples.files import arguments, data_folder, made_mnist
from gpufeed.examples.learner import Learner
from gpufeed.provider import CacheType, Settings, dense_vector, integer_value, provider

NUM_FILES = 4
MAX_IMAGES = 2000  # as text they take nine bytes a pixel


@provider(
    input_types={"image": dense_vector(784), "label": integer_value(10)},
    cache=CacheType.CACHE_PASS_IN_MEM,  # the files are read once
    check=True,
)
def process(settings: Settings, filename: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file whose lines are ``label;pixel pixel pixel ...``."""
    with open(filename) as lines:
        for line in lines:
            label, pixels = line.split(";")
            yield {"image": [float(pixel) for pixel in pixels.split()], "label": int(label)}


def write_lines(mnist: Path, folder: Path) -> Path:
    """Write images as text into a few files, and the list of these."""
    paths = [folder / f"train-{number}.txt" for number in range(NUM_FILES)]
    for number, path in enumerate(paths):
        part = islice(gf.dataset.mnist.test(mnist)(), number, MAX_IMAGES, NUM_FILES)
        lines = (f"{label};{' '.join(f'{x:.4f}' for x in image)}\n" for image, label in part)
        path.write_text("".join(lines))
    (folder / "train.list").write_text("\n".join(map(str, paths)))
    return folder / "train.list"


def main(argv: Sequence[str] | None = None) -> None:
    """Train on all files but the last, and print how good it gets on that one."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_mnist) as data, TemporaryDirectory() as work:
        files = write_lines(data / "mnist", Path(work)).read_text().split("\n")
        train = process(files[:-1], is_train=True, seed=1)
        test = process(files[-1:], is_train=False)

        # The input types say what a feed holds, so a provider makes its own feeder.
        place = gf.present_places()[0]
        feeds = train.feeder(place).decorate_reader(train.batches(options.batch_size))
        held_out = test.feeder(place).decorate_reader(test.batches(options.batch_size))

        learner = Learner(Images(pixels=784, classes=10), [place])
        for number in range(options.passes):
            losses = [learner.step(feed) for feed in feeds]
            print(
                f"pass {number}: {feeds.stats().num_samples} samples so far, "
                f"loss {sum(losses) / len(losses):.3f}, accuracy {learner.accuracy(held_out):.1%}"
            )


if __name__ == "__main__":
    main()
