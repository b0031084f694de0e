"""What the examples train: a model of `gpufeed.demo`, on the devices that its feeds are on.

With a framework of your own you would call its loss and its optimizer here; `Feed.to_torch` and
`Feed.to_jax` hand over the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpufeed.demo.adam import Adam
from gpufeed.demo.models import Array, Model, softmax_loss
from gpufeed.device import transfer
from gpufeed.places import CPUPlace, Place

__all__ = ["Learner"]

Inputs = Mapping[str, Any]


class Learner:
    """Weights on the first place, and steps that move them along the gradient of every place.

    Args:
        model: Whose inputs are in a feed, beside ``label``.
        places: That feeds are on.
    """

    def __init__(self, model: Model, places: Sequence[Place]) -> None:
        self._model = model
        self._places = list(places)
        initial = model.initial_weights(np.random.default_rng(0))
        self._weights = [transfer(weight, CPUPlace(), places[0]) for weight in initial]
        with places[0]:
            self._optimizer = Adam(self._weights, model.learning_rate)

    def step(self, feeds: Any) -> float:
        """Learn from one feed, or from one a place; return the mean loss."""
        found = [
            self._gradients(feed, place)
            for feed, place in zip(_listed(feeds), self._places, strict=False)
        ]
        num_samples = sum(size for _, size, _ in found)
        with self._places[0]:
            totals = [sum(parts) for parts in zip(*(each for *_, each in found), strict=True)]
            self._optimizer.step([total / num_samples for total in totals])
        return sum(loss for loss, *_ in found) / num_samples

    def accuracy(self, feeds: Iterable[Any]) -> float:
        """Return which part of the labels scores highest; feeds are on the first place."""
        num_correct = num_samples = 0
        for feed in feeds:
            labels = feed["label"].data.reshape(-1)
            with self._places[0]:
                scores, _ = self._model.forward(self._weights, feed)
                num_correct += int((scores.argmax(axis=1) == labels).sum())
            num_samples += len(labels)
        return num_correct / num_samples

    def _gradients(self, feed: Inputs, place: Place) -> tuple[float, int, list[Array]]:
        first = self._places[0]
        weights = [transfer(weight, first, place) for weight in self._weights]
        labels = feed["label"].data.reshape(-1)
        with place:
            scores, backward = self._model.forward(weights, feed)
            loss, _, gradient = softmax_loss(scores, labels)
            gradients = backward(gradient)
        gathered = [transfer(gradient, place, first) for gradient in gradients]
        return float(loss), len(labels), gathered


def _listed(feeds: Any) -> Sequence[Inputs]:
    return [feeds] if isinstance(feeds, Mapping) else feeds
