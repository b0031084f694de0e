"""The tasks: which files are read, as what samples, for which model.

With a folder of data: MNIST's test images, movie review sentences, census rows. Without: lines of
the Python standard library's source, once as a sequence of words and once as a set of words; to be
learned is the package that a line comes from.
"""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gpufeed.creator import svmlight, text_file
from gpufeed.dataset import mnist
from gpufeed.demo.models import Images, Model, Rows, Sentences
from gpufeed.errors import MissingFile
from gpufeed.reader import chain as chain_readers
from gpufeed.reader import filter as filter_samples
from gpufeed.reader import map_readers
from gpufeed.variables import Variable, data

__all__ = ["NAMES", "Task", "make_task"]

NAMES = ("images", "sentences", "census")

_PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")
_WORD = re.compile(r"\w+|[^\w\s]")
_NUM_WORDS = 3000
_HELD_OUT = 10  # every tenth sample

Samples = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
        title: What is read, for the report.
        train: Reader of ``(input, label)``.
        held_out: The same, of other samples.
        declare: Declares the variables that the samples fill, in the current program.
        model: What is trained.
    """

    title: str
    train: Samples
    held_out: Samples
    declare: Callable[[], list[Variable]]
    model: Model

    def baseline(self) -> float:
        """Return the accuracy of always guessing the most frequent held-out label."""
        counts = Counter(label for _, label in self.held_out())
        return max(counts.values()) / counts.total()


def make_task(name: str, folder: Path | None) -> Task | None:
    """Return the task called ``name``, over the files in ``folder``, or over Python's own.

    Returns:
        None where there is nothing to read: no images without a folder.

    Raises:
        FormatError: A file is missing or damaged.
    """
    if name == "images":
        return None if folder is None else _images(folder / "mnist")
    if name == "sentences":
        return _sentences(_source_lines() if folder is None else _reviews(folder / "rt-polarity"))
    return _bags_of_words(_source_lines()) if folder is None else _census(folder / "a9a")


@dataclass(frozen=True)
class _Lines:
    """Labelled lines of text."""

    title: str
    classes: int
    samples: Samples


def _images(folder: Path) -> Task:
    return Task(
        "MNIST test images",
        *_split(mnist.test(folder)),
        lambda: [data("image", [784], "float64", wire_dtype="float32"), _label()],
        Images(784, 10),
    )


def _census(folder: Path) -> Task:
    dim = 123

    def rows(name: str) -> Samples:
        lines = svmlight(folder / name, dim, binary=True)
        return map_readers(lambda sample: (sample[0], int(sample[1] > 0)), lines)

    return Task(
        "census rows (a9a)",
        rows("a9a"),
        rows("a9a.t"),
        lambda: [_sparse_row(dim), _label()],
        Rows(dim, 2),
    )


def _reviews(folder: Path) -> _Lines:
    paths = [folder / "rt-polarity.neg", folder / "rt-polarity.pos"]
    return _Lines("movie review sentences", 2, _labelled([[path] for path in paths]))


def _source_lines() -> _Lines:
    """Return the lines of code of some of Python's own packages, labelled by package."""
    library = Path(sysconfig.get_paths()["stdlib"])
    # Packages may hold empty files, which hold no lines.
    found = [
        [path for path in sorted(library.glob(f"{name}/**/*.py")) if path.stat().st_size]
        for name in _PACKAGES
    ]
    files = [paths for paths in found if paths]
    if len(files) < 2:
        raise MissingFile(f"{library}: no source files of {', '.join(_PACKAGES)}; give --data")
    telling = filter_samples(_is_telling, _labelled(files))
    return _Lines(f"lines of {len(files)} standard library packages", len(files), telling)


def _is_telling(sample: tuple[str, int]) -> bool:
    return len(sample[0].split()) > 2


def _labelled(groups: list[list[Path]]) -> Samples:
    """Return a reader of ``(line, number of its group)``."""
    return chain_readers(
        *(
            map_readers(lambda line, label=label: (line, label), text_file(paths))
            for label, paths in enumerate(groups)
        )
    )


def _sentences(lines: _Lines) -> Task:
    train, held_out = _split(lines.samples)
    vocabulary = _vocabulary(train)

    def encode(sample: tuple[str, int]) -> tuple[np.ndarray[Any, Any], int]:
        words = [vocabulary.get(word, 0) for word in _WORD.findall(sample[0])]
        return np.array(words, np.int64), sample[1]

    return Task(
        lines.title,
        map_readers(encode, train),
        map_readers(encode, held_out),
        lambda: [data("words", [1], "int64", lod_level=1), _label()],
        Sentences(len(vocabulary) + 1, lines.classes),
    )


def _bags_of_words(lines: _Lines) -> Task:
    train, held_out = _split(lines.samples)
    vocabulary = _vocabulary(train)
    dim = len(vocabulary) + 1

    def encode(sample: tuple[str, int]) -> tuple[np.ndarray[Any, Any], int]:
        words = {vocabulary.get(word, 0) for word in _WORD.findall(sample[0])}
        return np.array(sorted(words), np.int64), sample[1]

    return Task(
        f"{lines.title}, as bags of words",
        map_readers(encode, train),
        map_readers(encode, held_out),
        lambda: [_sparse_row(dim), _label()],
        Rows(dim, lines.classes),
    )


def _split(samples: Samples) -> tuple[Samples, Samples]:
    """Return a reader of the samples to train on, and one of those held out."""

    def read(*, held_out: bool) -> Iterator[Any]:
        for number, sample in enumerate(samples()):
            if (number % _HELD_OUT == 0) == held_out:
                yield sample

    return lambda: read(held_out=False), lambda: read(held_out=True)


def _vocabulary(samples: Samples) -> dict[str, int]:
    """Return the most frequent words, numbered from 1; 0 is for all others."""
    counts = Counter(chain.from_iterable(_WORD.findall(line) for line, _ in samples()))
    return {word: number for number, (word, _) in enumerate(counts.most_common(_NUM_WORDS), 1)}


def _label() -> Variable:
    return data("label", [1], "int64")


def _sparse_row(dim: int) -> Variable:
    return data("row", [dim], "float64", layout="sparse_binary", densify=True)
