"""The models: how a feed becomes scores, and how the scores' gradient reaches the weights.

A model's ``forward`` returns ``(batch, classes)`` scores and a function from their gradient to the
weights' gradients. Arrays are NumPy's or CuPy's, whichever the feed holds; a feed may have no rows.

Numbers are float64, so that the order in which devices' shares are added up cannot be seen in the
first digits of a loss, however long the training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpufeed.device import array_module

__all__ = ["Array", "Images", "Model", "Rows", "Sentences", "softmax_loss"]

Array = Any
Backward = Callable[[Array], list[Array]]


class Model(Protocol):
    """What `gpufeed.demo.train` trains."""

    @property
    def learning_rate(self) -> float:
        """Of `gpufeed.demo.adam.Adam`."""

    def initial_weights(self, rng: np.random.Generator) -> list[Array]:
        """Return the weights to start from, on the host."""

    def forward(self, weights: list[Array], feed: Mapping[str, Any]) -> tuple[Array, Backward]:
        """Return the scores of a feed, and what carries their gradient back."""


@dataclass(frozen=True)
class Images:
    """One hidden layer of rectified units over dense pixels."""

    pixels: int
    classes: int
    hidden: int = 128
    learning_rate: float = 0.003

    def initial_weights(self, rng: np.random.Generator) -> list[Array]:
        """Return random layers and no bias."""
        return [
            _normal(rng, (self.pixels, self.hidden), np.sqrt(2 / self.pixels)),
            np.zeros(self.hidden),
            _normal(rng, (self.hidden, self.classes), np.sqrt(1 / self.hidden)),
            np.zeros(self.classes),
        ]

    def forward(self, weights: list[Array], feed: Mapping[str, Any]) -> tuple[Array, Backward]:
        """Read ``image``, ``(batch, pixels)``."""
        into, into_bias, out, out_bias = weights
        pixels = feed["image"].data
        hidden = (pixels @ into + into_bias).clip(0)

        def backward(scores: Array) -> list[Array]:
            active = (scores @ out.T) * (hidden > 0)
            return [pixels.T @ active, active.sum(0), hidden.T @ scores, scores.sum(0)]

        return hidden @ out + out_bias, backward


@dataclass(frozen=True)
class Sentences:
    """The mean of a sentence's word embeddings, then a linear layer."""

    words: int
    classes: int
    width: int = 32
    learning_rate: float = 0.01

    def initial_weights(self, rng: np.random.Generator) -> list[Array]:
        """Return random layers and no bias."""
        return [
            _normal(rng, (self.words, self.width), 0.1),
            _normal(rng, (self.width, self.classes), np.sqrt(1 / self.width)),
            np.zeros(self.classes),
        ]

    def forward(self, weights: list[Array], feed: Mapping[str, Any]) -> tuple[Array, Backward]:
        """Read ``words``, the ragged word numbers of the sentences."""
        embedding, out, out_bias = weights
        words, offsets = feed["words"].data.reshape(-1), feed["words"].cu_seqlens()
        xp = array_module(words)
        # An empty sentence has the mean 0, not 0 / 0.
        lengths = (offsets[1:] - offsets[:-1]).clip(1)[:, None]
        mean = _segment_sum(embedding[words], offsets) / lengths

        def backward(scores: Array) -> list[Array]:
            each_word = (scores @ out.T / lengths)[feed["words"].segment_ids()]
            found, sums = _sum_by_key(words, each_word)
            into = xp.zeros_like(embedding)
            into[found] = sums
            return [into, mean.T @ scores, scores.sum(0)]

        return mean @ out + out_bias, backward


@dataclass(frozen=True)
class Rows:
    """Logistic regression over sparse rows, which arrive densified."""

    features: int
    classes: int
    learning_rate: float = 0.01

    def initial_weights(self, rng: np.random.Generator) -> list[Array]:
        """Return zeros: the loss is convex."""
        shapes = (self.features, self.classes), (self.classes,)
        return [np.zeros(shape) for shape in shapes]

    def forward(self, weights: list[Array], feed: Mapping[str, Any]) -> tuple[Array, Backward]:
        """Read ``row``, ``(batch, features)``."""
        out, out_bias = weights
        rows = feed["row"].data
        return rows @ out + out_bias, lambda scores: [rows.T @ scores, scores.sum(0)]


def softmax_loss(scores: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Return the summed cross-entropy, how many labels score highest, and the scores' gradient."""
    xp = array_module(scores)
    scores = scores - scores.max(axis=1, keepdims=True)
    total = xp.exp(scores).sum(axis=1, keepdims=True)
    sample = xp.arange(len(labels))
    loss = (xp.log(total[:, 0]) - scores[sample, labels]).sum()
    gradient = xp.exp(scores) / total
    gradient[sample, labels] -= 1
    return loss, (scores.argmax(axis=1) == labels).sum(), gradient


def _segment_sum(rows: Array, offsets: Array) -> Array:
    """Return the sums of ``rows[offsets[i]:offsets[i + 1]]``, zero where that is empty."""
    xp = array_module(rows)
    sums = xp.zeros((len(offsets) - 1, *rows.shape[1:]), rows.dtype)
    # reduceat takes no empty segments; without them, each segment ends where the next begins.
    filled = xp.flatnonzero(offsets[1:] > offsets[:-1])
    if filled.size:
        sums[filled] = xp.add.reduceat(rows, offsets[filled], axis=0)
    return sums


def _sum_by_key(keys: Array, rows: Array) -> tuple[Array, Array]:
    """Return the distinct keys and the sum of each key's rows, added up in a fixed order."""
    xp = array_module(rows)
    order = xp.argsort(keys, kind="stable")
    found, counts = xp.unique(keys, return_counts=True)
    offsets = xp.concatenate((xp.zeros(1, counts.dtype), counts.cumsum()))
    return found, _segment_sum(rows[order], offsets)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> Array:
    return rng.standard_normal(shape) * scale
