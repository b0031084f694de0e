"""Where to cut a batch so that several devices share its samples.

A cut never runs through a sample and never changes their order. Sizes only: the cutting itself is
`gpufeed.ragged.Ragged.split`.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.lod import Offsets

__all__ = ["SplitPolicy", "split_points"]

SplitPolicy = Literal["ceil", "floor", "tokens"]


def split_points(rows: Offsets, n: int, policy: SplitPolicy) -> list[int]:
    """Return the samples at which the parts of a batch begin, and where the last one ends.

    >>> five = np.arange(6)
    >>> split_points(five, 4, "ceil"), split_points(five, 4, "floor")
    ([0, 2, 4, 5], [0, 1, 2, 3, 5])
    >>> split_points(np.array([0, 90, 100, 110, 120]), 2, "tokens")
    [0, 1, 4]

    No part is empty, so there are at most as many parts as samples; only a batch of no samples
    gives ``n`` empty parts.

    Args:
        rows: Where each sample's rows begin, ``(samples + 1,)``.
        n: Number of devices, at least 1.
        policy: ``"ceil"``: ``ceil(samples / n)`` samples a part, fewer in the last one, and
            sometimes fewer than ``n`` parts. ``"floor"``: ``samples // n`` a part, what remains
            goes to the last one. ``"tokens"``: parts of about equally many rows, none larger than
            ``ceil(rows / n)`` plus its longest sample.

    Raises:
        FieldError: ``n`` or ``policy`` breaks a rule above.

    Source: SplitLoDTensor of PaddlePaddle, since 1.8 (ceil) and up to 1.7 (floor).
    """
    n = whole_number("split.n", n, minimum=1)
    if policy not in get_args(SplitPolicy):
        raise FieldError(
            f"split.policy must be one of {', '.join(get_args(SplitPolicy))}, got {policy!r}"
        )
    samples = len(rows) - 1
    if samples == 0:
        return [0] * (n + 1)
    if policy == "ceil":
        return [*range(0, samples, -(-samples // n)), samples]
    parts = min(n, samples)
    if policy == "floor":
        return [*range(0, parts * (samples // parts), samples // parts), samples]
    return _balanced(rows, parts)


def _balanced(rows: Offsets, parts: int) -> list[int]:
    """Cut at the sample boundaries nearest to equal shares, one sample a part at least."""
    samples = len(rows) - 1
    inner = np.arange(1, parts)
    targets = int(rows[-1]) * inner / parts
    after = np.searchsorted(rows, targets).clip(1, samples)
    cuts = after - (targets - rows[after - 1] < rows[after] - targets)
    # Samples longer than a share, and samples of no rows, can put several cuts on one boundary.
    cuts = np.maximum.accumulate(np.maximum(cuts, inner) - inner) + inner
    cuts = np.minimum(cuts, samples - parts + inner)
    return [0, *cuts.tolist(), samples]
