"""Random numbers for mappers: a generator for every sample, whoever maps it.

    numbers of a sample = Philox(key(seed, epoch, stage), counter=(0, ordinal, 0, 0))

The key stands for one stage of one pass, and the ordinal for one sample in it. Nothing depends on
threads, processes, or which worker a sample came to, so every number of workers draws the same
numbers; ranks that read shards of one pass draw each sample's own, because an ordinal counts the
samples of all ranks.

A new generator takes longer than most mappers draw. So each worker keeps one and reseats it, which
is to write the counter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufeed.checks import whole_number
from gpufeed.reader.stage import Stage

__all__ = ["PassRng", "pass_rng", "rng_seed"]

# Of the key: keeps it apart from the key that `shuffle` makes of the same seed and epoch.
_PURPOSE = 1


def rng_seed(name: str, rng: bool | int) -> int | None:
    """Return the seed that an argument ``rng`` means: False is None, True is 0.

    >>> rng_seed("xmap_readers.rng", True), rng_seed("xmap_readers.rng", 7)
    (0, 7)

    Raises:
        FieldError: It is neither a truth value nor a whole number >= 0.
    """
    if isinstance(rng, bool | np.bool_):
        return 0 if rng else None
    return whole_number(name, rng, minimum=0)


@dataclass(frozen=True)
class PassRng:
    """The random numbers of one stage in one pass; small, and can be sent to worker processes.

    >>> at = PassRng((1, 2)).generators()
    >>> first = at(17).random()
    >>> at(18).random() == first, at(17).random() == first
    (False, True)

    Attributes:
        key: Two numbers of 64 bits.
        first: Ordinal of the pass's sample 0 among those of all ranks.
        step: Ordinals from one sample to the next.
    """

    key: tuple[int, int]
    first: int = 0
    step: int = 1

    def generators(self) -> Callable[[int], np.random.Generator]:
        """Return what gives the generator of a sample by its number in the pass; one a worker.

        It is one object, reseated by each call: good until the next sample, on one thread.
        """
        bits = np.random.Philox()
        generator = np.random.Generator(bits)
        # Lists, whose items the setter reads twice as fast as those of arrays.
        counter = [0, 0, 0, 0]
        state: Any = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": list(self.key)},
            # A buffer of which everything was used: the next number comes from the counter.
            "buffer": [0, 0, 0, 0],
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        first, step = self.first, self.step

        def at(number: int) -> np.random.Generator:
            counter[1] = first + number * step
            bits.state = state
            return generator

        return at


def pass_rng(stage: Stage[Any], seed: int, epoch: int) -> PassRng:
    """Return the random numbers of a stage, for pass ``epoch``.

    Stages of one pipeline draw different numbers from one seed, by how many stages that draw stand
    below them.

    Args:
        stage: Those that draw numbers have a parameter ``rng``.
        seed: Its seed, as `rng_seed` returns it.
        epoch: Of the pass.
    """
    num_below = sum("rng" in each.parameters for each in stage.stages()) - 1
    words = np.random.SeedSequence(seed, spawn_key=(epoch, _PURPOSE, max(0, num_below)))
    key = words.generate_state(2, np.uint64).tolist()
    return PassRng((key[0], key[1]), *stage.ordinals())
