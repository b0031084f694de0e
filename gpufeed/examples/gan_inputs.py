"""Real images and noise, with their labels: one sample out of four readers.

A discriminator learns to tell images from noise. Its samples are composed of a reader of files, one
that draws noise without end, and two that always yield the same; a mapping says which item of a
sample fills which variable, and leaves one out.

    python -m gpufeed.examples.gan_inputs --data DIR
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np

import gpufeed as gf
from gpufeed.demo.models import Images
from gpufeed.examples.files import arguments, data_folder, made_mnist
from gpufeed.examples.learner import Learner
from gpufeed.training import Event


def noise(num_pixels: int) -> Iterator[Any]:
    """Yield images that nobody has drawn, for ever."""
    rng = np.random.default_rng(0)
    while True:
        yield rng.uniform(-1, 1, num_pixels).astype(np.float32)


def always(value: bool) -> Callable[[], Iterator[bool]]:
    """Return a reader of nothing but ``value``."""
    return lambda: repeat(value)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print how well images and noise are told apart."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_mnist) as folder:
        # (image, digit) + noise + True + False: a tuple's items are spliced in, so a sample has
        # five. Only the images end, which the check of alignment would call an error.
        samples = gf.reader.compose(
            gf.dataset.mnist.test(folder / "mnist"),
            lambda: noise(784),
            always(True),
            always(False),
            check_alignment=False,
        )
        # Item 1, the digit, is not fed.
        mapping = {"true_image": 0, "fake_image": 2, "true_label": 3, "false_label": 4}
        for name in ("true_image", "fake_image"):
            gf.data(name, [784])
        for name in ("true_label", "false_label"):
            gf.data(name, [1], "int64")

        place = gf.present_places()[0]
        learner = Learner(Images(pixels=784, classes=2, hidden=16), [place])
        costs: list[float] = []

        def step(feed: gf.Feed) -> None:
            for image, label in (("true_image", "true_label"), ("fake_image", "false_label")):
                costs.append(learner.step({"image": feed[image], "label": feed[label]}))

        def handle(event: Event) -> None:
            if isinstance(event, gf.EndPass):
                print(f"pass {event.pass_id}: loss {sum(costs) / len(costs):.4f}")
                costs.clear()

        size, passes = options.batch_size, options.passes
        # Names of variables are taken from the mapping.
        gf.train(samples, mapping, size, passes, step=step, places=place, event_handler=handle)


if __name__ == "__main__":
    main()
