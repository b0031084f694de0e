"""Good or bad? Sentences of any length, without padding.

A sentence is one sample of a field with ``lod_level=1``: in a feed all words stand end to end, and
offsets tell where each sentence begins. Batches are cut by words and not by sentences, so that
every step is as much work as the others.

    python -m gpufeed.examples.sentiment --data DIR
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import gpufeed as gf
from gpufeed.demo.models import Sentences
from gpufeed.examples.files import arguments, data_folder, made_reviews
from gpufeed.examples.learner import Learner
from gpufeed.training import Event

NUM_WORDS = 5000
NUM_HELD_OUT = 100  # of each kind
WORDS_A_BATCH = 1024


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print how good it gets."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_reviews) as folder:
        # One file holds the bad ones, the other the good ones: two readers of (sentence, label).
        labelled = []
        for label, name in enumerate(("neg", "pos")):
            lines = gf.creator.text_file(folder / "rt-polarity" / f"rt-polarity.{name}")
            labelled.append(gf.reader.map_readers(lambda line, label=label: (line, label), lines))
        held_out = gf.reader.chain(*(gf.reader.firstn(each, NUM_HELD_OUT) for each in labelled))
        training = gf.reader.chain(*(gf.reader.skip(each, NUM_HELD_OUT) for each in labelled))

        # Words are numbered by frequency, and 0 stands for all that are rare.
        counts = Counter(word for line, _ in training for word in line.split())
        numbers = {word: at for at, (word, _) in enumerate(counts.most_common(NUM_WORDS), 1)}

        def encode(sample: tuple[str, int]) -> tuple[Any, int]:
            line, label = sample
            return np.array([numbers.get(word, 0) for word in line.split()], np.int64), label

        def batches(reader: gf.reader.Reader[Any]) -> gf.reader.Reader[Any]:
            return gf.batch(gf.reader.map_readers(encode, reader), max_tokens=WORDS_A_BATCH)

        fields = [gf.data("words", [1], "int64", lod_level=1), gf.data("label", [1], "int64")]
        place = gf.present_places()[0]
        learner = Learner(Sentences(words=len(numbers) + 1, classes=2), [place])
        test = gf.DataFeeder(fields, place).decorate_reader(batches(held_out))

        def handle(event: Event) -> None:
            if isinstance(event, gf.EndPass):
                print(f"pass {event.pass_id}: held-out accuracy {learner.accuracy(test()):.1%}")

        stats = gf.train(
            batches(gf.reader.shuffle(training, 20_000, seed=1)),
            {"words": 0, "label": 1},
            None,  # the reader makes batches of its own
            options.passes,
            step=learner.step,
            feed_list=fields,
            places=place,
            event_handler=handle,
        )
        print(f"{stats.batches.fill:.0%} of what the batches may hold is words")  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
