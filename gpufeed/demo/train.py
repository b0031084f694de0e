"""Data-parallel training: one global batch, a share of it for every device.

Every device computes the gradient sums of its share with its own copy of the weights; the sums are
added on the first device, divided by the size of the global batch, and applied there. So any number
of devices takes the same steps as one, up to rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from gpufeed.demo.adam import Adam
from gpufeed.demo.models import Array, softmax_loss
from gpufeed.demo.tasks import Samples, Task
from gpufeed.device import transfer
from gpufeed.errors import ReaderError
from gpufeed.feed import Feed
from gpufeed.feeder import DataFeeder
from gpufeed.grouping import deal
from gpufeed.observe.stats import FeedStats
from gpufeed.places import CPUPlace, Place
from gpufeed.prefetch import FeedReader
from gpufeed.reader import batch, shuffle
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, program_guard

__all__ = ["Sweep", "Trainer", "share"]

_SHUFFLE_SAMPLES = 50_000


@dataclass(frozen=True)
class Sweep:
    """What one sweep over a reader came to.

    Attributes:
        num_samples: Seen.
        loss: Mean cross-entropy.
        accuracy: Fraction of labels that scored highest.
        elapsed_s: Seconds it took.
    """

    num_samples: int
    loss: float
    accuracy: float
    elapsed_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples a second, reading and learning together."""
        return self.num_samples / self.elapsed_s


@dataclass
class _Sums:
    """Running sums on one device, read at the end of a sweep: reading one waits for the device."""

    loss: Array = 0.0
    num_correct: Array = 0


class Trainer:
    """The weights of a task's model, and the feeders that bring its samples.

    Args:
        task: What to learn.
        places: Devices that share every batch; the first one keeps the weights.
        batch_size: Samples in a global batch.
        seed: Of the first weights and of the order of samples.
        progress: Whether to show a bar.
    """

    def __init__(
        self, task: Task, places: Sequence[Place], *, batch_size: int, seed: int, progress: bool
    ) -> None:
        self._model = task.model
        self._places = list(places)
        with program_guard(program := Program()):
            self._feeder = DataFeeder(task.declare(), self._places, program)
        shuffled = shuffle(task.train, _SHUFFLE_SAMPLES, seed=seed)
        self._train = self._feeds(batch(shuffled, batch_size), progress=progress)
        self._held_out = self._feeds(batch(task.held_out, batch_size), progress=False)
        self._weights = [
            transfer(weight, CPUPlace(), self._places[0])
            for weight in task.model.initial_weights(np.random.default_rng(seed))
        ]
        with self._places[0]:
            self._optimizer = Adam(self._weights, task.model.learning_rate)

    def train(self) -> Sweep:
        """Go once over the training samples and learn from them."""
        return self._sweep(self._train, update=True)

    def evaluate(self) -> Sweep:
        """Go once over the held-out samples."""
        return self._sweep(self._held_out, update=False)

    def stats(self) -> FeedStats:
        """Return where the time of all training sweeps went."""
        return self._train.stats()

    def _feeds(self, batches: Samples, *, progress: bool) -> FeedReader:
        return self._feeder.decorate_reader(
            share(batches, len(self._places)),
            multi_devices=True,
            remainder="split",
            progress=progress,
        )

    def _sweep(self, reader: FeedReader, *, update: bool) -> Sweep:
        started = time.perf_counter()
        num_samples = 0
        sums = [_Sums() for _ in self._places]
        for feeds in cast(Iterator[list[Feed]], reader()):
            shares = [self._score(*each) for each in zip(feeds, sums, strict=True)]
            size = sum(len(feed["label"]) for feed in feeds)
            if update:
                self._update(shares, size)
            num_samples += size
        if not num_samples:
            raise ReaderError("demo: expected samples to train on and to hold out, got none")
        loss = sum(float(each.loss) for each in sums)
        num_correct = sum(int(each.num_correct) for each in sums)
        elapsed_s = time.perf_counter() - started
        return Sweep(num_samples, loss / num_samples, num_correct / num_samples, elapsed_s)

    def _score(self, feed: Feed, sums: _Sums) -> Callable[[], list[Array]]:
        """Score one device's share; return what computes its gradient sums, on that device."""
        weights = [transfer(weight, self._places[0], feed.place) for weight in self._weights]
        labels = cast(LoDTensor, feed["label"])
        with feed.place:
            scores, backward = self._model.forward(weights, feed)
            loss, num_correct, gradient = softmax_loss(scores, labels.data.reshape(-1))
            sums.loss, sums.num_correct = sums.loss + loss, sums.num_correct + num_correct
        return partial(backward, gradient)

    def _update(self, shares: list[Callable[[], list[Array]]], num_samples: int) -> None:
        """Take one step along the mean gradient of the global batch, on the first device."""
        first = self._places[0]
        gathered = []
        for place, gradients in zip(self._places, shares, strict=True):
            with place:
                found = gradients()
            gathered.append([transfer(gradient, place, first) for gradient in found])
        with first:
            totals = [sum(parts) for parts in zip(*gathered, strict=True)]
            self._optimizer.step([total / num_samples for total in totals])


def share(batches: Samples, num_devices: int) -> Callable[[], Iterator[Iterable[Any]]]:
    """Return a batch reader that cuts each global batch into one batch a device.

    Sizes differ by at most one; a batch smaller than the number of devices leaves some empty.

    >>> list(share(lambda: [[1, 2, 3], [4]], 2)())
    [[1, 2], [3], [4], []]
    """

    def read() -> Iterator[Iterable[Any]]:
        for samples in batches():
            yield from deal(samples, num_devices)

    return read
