"""What the examples read: the user's files, or small ones of the same formats."""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gpufeed.cli import positive

__all__ = ["arguments", "data_folder", "made_census", "made_mnist", "made_reviews"]

_NUM_SAMPLES = 600
_TELLING = {"neg": ["bad", "dull", "long", "flat"], "pos": ["good", "fun", "new", "warm"]}
_NEUTRAL = ["the", "film", "and", "its", "actors", "are", "what", "one", "would", "expect"]


def arguments(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of an example's command line: ``data``, ``passes`` and ``batch_size``."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="with mnist/, rt-polarity/, a9a/")
    parser.add_argument("--passes", type=positive, default=3, metavar="P", help="default 3")
    parser.add_argument("--batch-size", type=positive, default=64, metavar="B", help="default 64")
    return parser.parse_args(argv)


@contextmanager
def data_folder(given: Path | None, make: Callable[[Path], None]) -> Iterator[Path]:
    """Give the user's folder, or a temporary one in which ``make`` has written files."""
    if given is not None:
        yield given
        return
    with TemporaryDirectory(prefix="gpufeed-") as folder:
        make(Path(folder))
        print("made-up files; --data DIR reads your own")
        yield Path(folder)


def made_mnist(folder: Path) -> None:
    """Write ``mnist/``: noise with a bright bar, whose place is the digit."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 10, _NUM_SAMPLES)
    images = rng.integers(0, 100, (_NUM_SAMPLES, 28, 28))
    images += 100 * (np.arange(28) // 3 == labels[:, None])[:, None]
    (folder / "mnist").mkdir()
    (folder / "mnist/t10k-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x0803, _NUM_SAMPLES, 28, 28) + images.astype(np.uint8).tobytes()
    )
    (folder / "mnist/t10k-labels-idx1-ubyte").write_bytes(
        struct.pack(">2I", 0x0801, _NUM_SAMPLES) + labels.astype(np.uint8).tobytes()
    )


def made_reviews(folder: Path) -> None:
    """Write ``rt-polarity/``: sentences of some dozen words, a few of which tell."""
    rng = np.random.default_rng(2)
    (folder / "rt-polarity").mkdir()
    for name, telling in _TELLING.items():
        words = telling + _NEUTRAL
        lines = (
            " ".join([*rng.choice(words, rng.integers(3, 20)), rng.choice(telling)])
            for _ in range(_NUM_SAMPLES // 2)
        )
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"rt-polarity/rt-polarity.{name}").write_text(text, encoding="utf-8")


def made_census(folder: Path) -> None:
    """Write ``a9a/``: rows of some features out of 123, of which the low ones tell."""
    rng = np.random.default_rng(3)
    (folder / "a9a").mkdir()
    for name in ("a9a", "a9a.t"):
        rows = [np.unique(rng.integers(0, 123, 12)) for _ in range(_NUM_SAMPLES)]
        lines = [
            f"{'+1' if (row < 40).sum() > 3 else '-1'} {' '.join(f'{at + 1}:1' for at in row)}\n"
            for row in rows
        ]
        (folder / "a9a" / name).write_text("".join(lines))
