"""Good or bad? `@provider` with a dictionary that it gets when it is made.

How many words there are is not known where the provider is written. So its ``init_hook`` is given
the dictionary, sets the input types, and keeps what the generator will need.

    python -m gpufeed.examples.provider_sentiment --data DIR
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpufeed as gf
from gpufeed.demo.models import Sentences
from gpufeed.examples.files import arguments, data_folder, made_reviews
from gpufeed.examples.learner import Learner
from gpufeed.provider import Settings, integer_value, integer_value_sequence, provider

NUM_WORDS, HELD_OUT = 5000, 10  # every tenth sentence is held out


def on_init(settings: Settings, dictionary: Mapping[str, int], **others: Any) -> None:
    """Learn how many words there are."""
    settings.input_types = {
        "words": integer_value_sequence(len(dictionary)),
        "label": integer_value(2),
    }
    settings.dictionary = dictionary


@provider(init_hook=on_init, min_pool_size=20_000, check=True)
def process(settings: Settings, filename: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a file whose lines are ``label<tab>sentence``."""
    with open(filename, encoding="utf-8") as lines:
        for line in lines:
            label, sentence = line.rstrip("\n").split("\t")
            # Words that are not in the dictionary are left out; that may be all of a sentence.
            known = (settings.dictionary.get(word) for word in sentence.split())
            yield {"words": [word for word in known if word is not None], "label": int(label)}


def write_lines(reviews: Path, train: Path, test: Path) -> None:
    """Write sentences with their labels into a file to train on and one to test on."""
    lines: list[str] = []
    for label, name in enumerate(("neg", "pos")):
        text = gf.creator.text_file(reviews / f"rt-polarity.{name}")
        lines += [f"{label}\t{' '.join(line.split())}\n" for line in text()]
    test.write_text("".join(lines[::HELD_OUT]), encoding="utf-8")
    del lines[::HELD_OUT]
    train.write_text("".join(lines), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and print how good it gets."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_reviews) as data, TemporaryDirectory() as work:
        train_file, test_file = Path(work, "train.txt"), Path(work, "test.txt")
        write_lines(data / "rt-polarity", train_file, test_file)
        counts = Counter(train_file.read_text(encoding="utf-8").split())
        words = {word: number for number, (word, _) in enumerate(counts.most_common(NUM_WORDS))}
        train = process([train_file], is_train=True, seed=1, dictionary=words)
        test = process([test_file], is_train=False, dictionary=words)

        place = gf.present_places()[0]
        feeds = train.feeder(place).decorate_reader(train.batches(options.batch_size))
        held_out = test.feeder(place).decorate_reader(test.batches(options.batch_size))
        learner = Learner(Sentences(words=len(words), classes=2), [place])
        for number in range(options.passes):
            losses = [learner.step(feed) for feed in feeds]
            print(f"pass {number}: loss {sum(losses) / len(losses):.3f}", end=", ")
            print(f"held-out accuracy {learner.accuracy(held_out):.1%}")


if __name__ == "__main__":
    main()
