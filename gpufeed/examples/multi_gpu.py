"""Every batch shared by all devices of one process.

A feeder with a list of places yields a list of feeds, one a device, each sent on a stream of its
own. On a machine without a GPU two virtual devices take their place, and the script stays the same.

    python -m gpufeed.examples.multi_gpu --data DIR
    GPUFEED_VIRTUAL_DEVICES=4 python -m gpufeed.examples.multi_gpu
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import gpufeed as gf
from gpufeed.demo.models import Images
from gpufeed.examples.files import arguments, data_folder, made_mnist
from gpufeed.examples.learner import Learner
from gpufeed.training import Event


def main(argv: Sequence[str] | None = None) -> None:
    """Train on all devices there are, or on two virtual ones."""
    options = arguments(__doc__, argv)
    has_device = gf.present_places() != [gf.CPUPlace()]
    with (
        data_folder(options.data, made_mnist) as folder,
        nullcontext() if has_device else gf.virtual_devices(2),
    ):
        places = gf.cuda_places()
        print(f"training on {', '.join(map(str, places))}")
        samples = gf.dataset.mnist.test(folder / "mnist")
        training = gf.reader.shuffle(samples, 10_000, seed=1)
        fields = [
            # Pixels are sent as half as many bytes, and widened where they arrive.
            gf.data("image", [784], "float32", wire_dtype="float16"),
            gf.data("label", [1], "int64"),
        ]
        learner = Learner(Images(pixels=784, classes=10), places)
        costs: list[float] = []

        def handle(event: Event) -> None:
            if isinstance(event, gf.EndIteration):
                costs.append(event.cost)
            if isinstance(event, gf.EndPass):
                print(f"pass {event.pass_id}: loss {sum(costs) / len(costs):.4f}")
                costs.clear()

        # A batch a device, so that a step is as many batches as there are devices. What is left at
        # the end of a pass is shared by all of them: remainder="split" is the default here.
        stats = gf.train(
            training,
            {"image": 0, "label": 1},
            max(1, options.batch_size // len(places)),
            options.passes,
            step=learner.step,  # takes a list of feeds, because `places` is a list
            feed_list=fields,
            places=places,
            event_handler=handle,
        )
        print(f"{stats.num_steps} steps, {stats.nbytes / 1e6:.1f} MB in the slabs of all devices")


if __name__ == "__main__":
    main()
