"""What batches hold, and what padding them would waste.

Feeds are ragged and pad nothing. But a model that takes rectangles pads (`LoDTensor.to_padded`),
kernels that give a thread block to each sequence wait for the longest one, and a bin that is not
full is memory that was reserved for nothing. So batches whose samples have lengths are measured:

    tokens          sum of the lengths
    padded tokens   samples x longest length
    padding waste   1 - tokens / padded tokens
    fill            tokens / (batches x max_tokens)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

__all__ = ["BatchStats", "Filling"]


class Filling:
    """A batch in the making, or one that is done.

    >>> filling = Filling(size=2)
    >>> filling.add(3, "abc")
    >>> filling.num_tokens, filling.longest, filling.is_full
    (3, 3, False)

    Attributes:
        size: Most samples that it may hold.
        samples: In the order they came.
        num_tokens: Sum of their lengths.
        longest: The largest of their lengths.
    """

    __slots__ = ("longest", "num_tokens", "samples", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.samples: list[Any] = []
        self.num_tokens = 0
        self.longest = 0

    def add(self, length: int, sample: Any) -> None:
        """Take one more sample."""
        self.samples.append(sample)
        self.num_tokens += length
        if length > self.longest:
            self.longest = length

    def give(self) -> list[Any]:
        """Return the samples and keep none: whoever made the batch may hold on to this object."""
        samples, self.samples = self.samples, []
        return samples

    @property
    def is_full(self) -> bool:
        """Whether it holds as many samples as it may."""
        return len(self.samples) >= self.size


@dataclass
class BatchStats:
    """What one `batch` reader has delivered, since it was made and over all passes.

    >>> stats = BatchStats(num_batches=2, num_samples=3, num_tokens=9, num_padded_tokens=12)
    >>> stats.padding_waste
    0.25

    Batches that a resumed pass skips are not counted, also where they have to be made again to come
    past them; what a thread has made ahead by then is not counted either. Those made in another
    process are counted when they are taken from it.

    Attributes:
        num_batches: Lists of samples delivered.
        num_samples: Samples in them.
        num_tokens: Sum of the samples' lengths; 0 if nothing asked for lengths.
        num_padded_tokens: What it would be with every batch padded to its longest sample.
        max_tokens: Of the reader; None if it has no token budget.
    """

    is_of_pass: ClassVar[bool] = False

    num_batches: int = 0
    num_samples: int = 0
    num_tokens: int = 0
    num_padded_tokens: int = 0
    max_tokens: int | None = None

    @property
    def padding_waste(self) -> float | None:
        """Share of padding in batches padded to their longest sample; None if not measured."""
        if not self.num_padded_tokens:
            return None
        return 1 - self.num_tokens / self.num_padded_tokens

    @property
    def fill(self) -> float | None:
        """Share of the token budget that the samples use; None without a budget or a batch."""
        if not self.max_tokens or not self.num_batches:
            return None
        return self.num_tokens / (self.num_batches * self.max_tokens)

    def count(self, done: Filling) -> None:
        """Add one batch whose samples have lengths."""
        self.num_batches += 1
        self.num_samples += len(done.samples)
        self.num_tokens += done.num_tokens
        self.num_padded_tokens += len(done.samples) * done.longest

    def copy(self) -> BatchStats:
        """Return what is counted by now."""
        return replace(self)

    def go_back_to(self, before: BatchStats) -> None:
        """Forget what was counted since `before` was copied."""
        self.__dict__.update(before.__dict__)

    def totals(self) -> tuple[int, ...]:
        """Return all counts, as a `Counter`."""
        return self.num_batches, self.num_samples, self.num_tokens, self.num_padded_tokens

    def since(self, totals: tuple[int, ...]) -> tuple[int, ...]:
        """Return by how much each has grown."""
        if self.num_batches == totals[0]:
            return ()
        return tuple(now - before for now, before in zip(self.totals(), totals, strict=True))

    def count_also(self, change: tuple[int, ...]) -> None:
        """Count what another has."""
        num_batches, num_samples, num_tokens, num_padded_tokens = change
        self.num_batches += num_batches
        self.num_samples += num_samples
        self.num_tokens += num_tokens
        self.num_padded_tokens += num_padded_tokens
