"""Digits out of images: read, shuffle, batch, train.

A *reader* is a function that returns an iterable of samples; decorators make new readers of old
ones. `gpufeed.train` feeds their batches to a step, reading and sending ahead on a thread, and
tells an event handler how it goes.

    python -m gpufeed.examples.mnist --data DIR
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import gpufeed as gf
from gpufeed.demo.models import Images
from gpufeed.examples.files import arguments, data_folder, made_mnist
from gpufeed.examples.learner import Learner
from gpufeed.training import Event

NUM_HELD_OUT = 300


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print how good it gets."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_mnist) as folder:
        # Samples are (image, label): 784 floats in [-1, 1], and a digit.
        samples = gf.dataset.mnist.test(folder / "mnist")
        held_out = gf.reader.firstn(samples, NUM_HELD_OUT)
        # With a seed the order is another one in each pass, and the same one in each run.
        training = gf.reader.shuffle(gf.reader.skip(samples, NUM_HELD_OUT), 10_000, seed=1)

        # What a feed holds: the batch dimension is put in front of these shapes.
        fields = [gf.data("image", [784]), gf.data("label", [1], "int64")]
        place = gf.present_places()[0]
        learner = Learner(Images(pixels=784, classes=10), [place])

        feeder = gf.DataFeeder(fields, place)
        test = feeder.decorate_reader(gf.batch(held_out, options.batch_size))

        states = []

        def handle(event: Event) -> None:
            if isinstance(event, gf.EndIteration) and event.batch_id == 0:
                print(f"pass {event.pass_id}: first loss {event.cost:.3f}", end=", ")
            if isinstance(event, gf.EndPass):
                print(f"held-out accuracy {learner.accuracy(test()):.1%}")
                # To be saved with the weights: train(..., state=...) goes on from here.
                states.append(event.state_dict())

        stats = gf.train(
            training,
            {"image": 0, "label": 1},
            options.batch_size,
            options.passes,
            step=learner.step,
            feed_list=fields,
            places=place,
            event_handler=handle,
        )
        print(f"{stats.num_samples} samples: {stats.bottleneck}")
        print(f"a state to go on from is {len(json.dumps(states[-1]))} bytes")


if __name__ == "__main__":
    main()
