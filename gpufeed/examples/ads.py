"""Clicks on ads: rows with a few features out of very many.

A sparse field is given as the indices of a row's features. A batch crosses to the device in
compressed form (CSR) and becomes dense there, written by a kernel: what is transferred is the
features that are there, not the width of the row.

    python -m gpufeed.examples.ads --data DIR
"""

from __future__ import annotations

from collections.abc import Sequence

import gpufeed as gf
from gpufeed.demo.models import Rows
from gpufeed.examples.files import arguments, data_folder, made_census
from gpufeed.examples.learner import Learner

NUM_FEATURES = 123


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print how good it gets."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_census) as folder:

        def rows(name: str) -> gf.reader.Reader[object]:
            # A line is "+1 3:1 11:1 14:1": whether there was a click, then the features, from 1.
            lines = gf.creator.svmlight(folder / "a9a" / name, NUM_FEATURES, binary=True)
            return gf.reader.map_readers(lambda sample: (sample[0], int(sample[1] > 0)), lines)

        fields = [
            gf.data("row", [NUM_FEATURES], layout="sparse_binary", densify=True),
            gf.data("label", [1], "int64"),
        ]
        place = gf.present_places()[0]
        feeder = gf.DataFeeder(fields, place)
        training = gf.batch(gf.reader.shuffle(rows("a9a"), 50_000, seed=1), options.batch_size)
        feeds = feeder.decorate_reader(training, prefetch=2)
        test = feeder.decorate_reader(gf.batch(rows("a9a.t"), 512))

        # `gpufeed.train` is a loop over passes and steps; this is that loop, by hand.
        learner = Learner(Rows(features=NUM_FEATURES, classes=2), [place])
        for number in range(options.passes):
            losses = [learner.step(feed) for feed in feeds()]
            mean = sum(losses) / len(losses)
            print(f"pass {number}: loss {mean:.3f}, test accuracy {learner.accuracy(test()):.1%}")

        stats = feeds.stats()
        dense_nbytes = stats.num_samples * NUM_FEATURES * 4
        print(f"{stats.num_samples} rows, {dense_nbytes / 1e6:.1f} MB when dense")
        print(stats.bottleneck)


if __name__ == "__main__":
    main()
