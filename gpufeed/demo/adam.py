"""Adam: steps whose length does not depend on the scale of the loss or of the inputs."""

from __future__ import annotations

import math

from gpufeed.demo.models import Array
from gpufeed.device import array_module

__all__ = ["Adam"]

_MEAN_DECAY, _SQUARE_DECAY = 0.9, 0.999


class Adam:
    """Moves weights in place, along the running mean of their gradients over its running size.

    Args:
        weights: Arrays on the current device.
        learning_rate: Length of a step, roughly, in every single weight.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1.
    """

    def __init__(self, weights: list[Array], learning_rate: float) -> None:
        self._weights = weights
        self._learning_rate = learning_rate
        self._means = [array_module(weight).zeros_like(weight) for weight in weights]
        self._squares = [array_module(weight).zeros_like(weight) for weight in weights]
        self._num_steps = 0

    def step(self, gradients: list[Array]) -> None:
        """Take one step."""
        self._num_steps += 1
        rate = self._learning_rate * math.sqrt(1 - _SQUARE_DECAY**self._num_steps)
        rate /= 1 - _MEAN_DECAY**self._num_steps
        for weight, gradient, mean, square in zip(
            self._weights, gradients, self._means, self._squares, strict=True
        ):
            mean += (1 - _MEAN_DECAY) * (gradient - mean)
            square += (1 - _SQUARE_DECAY) * (gradient**2 - square)
            weight -= rate * mean / (array_module(square).sqrt(square) + 1e-8)
