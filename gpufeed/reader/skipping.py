"""Samples that fail and are left out: the policy ``on_error``, and the record of what it cost.

    "raise"                   the first failure ends the pass (the default)
    "skip"                    failures are left out, however many
    Skip(max=10, rate=1e-3)   failures are left out until there are too many

Nothing is left out in silence: every stage that skips keeps a `Skipped`, which its reader's state
and stats report, and logs the first failure of a pass, the tenth, the hundredth and so on.

A skipped sample moves all that follow it one place forward. So a stage that may skip cannot be
resumed in the middle of its source: it runs again from the beginning of the pass, as a filter does.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError

__all__ = ["NUM_ORDINALS", "OnError", "Skip", "SkipLog", "Skipped", "skip_policy"]

NUM_ORDINALS = 16  # kept of all that were skipped: a state stays small

log = logging.getLogger("gpufeed")


@dataclass(frozen=True)
class Skip:
    """Leave out samples that fail, up to a limit.

    >>> from gpufeed.reader import map_readers
    >>> list(map_readers(int, lambda: ["1", "two", "3"], on_error=Skip(max=1)))
    [1, 3]

    Limits hold for each pass. When one is passed, the error of the sample that did it is raised.

    Args:
        max: Most samples skipped; None is any number.
        rate: Most of them for each sample seen so far, the result rounded up; None is any. So
            with 1e-3 one may fail among the first 1,000, a second only after these.

    Raises:
        FieldError: ``max`` is not a whole number >= 0, or ``rate`` not between 0 and 1.
    """

    max: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.max is not None:
            object.__setattr__(self, "max", whole_number("Skip.max", self.max, minimum=0))
        rate = self.rate
        if rate is not None and (
            isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1
        ):
            raise FieldError(f"Skip.rate must be a number from 0 to 1 or None, got {rate!r}")

    def allows(self, num_skipped: int, num_seen: int) -> bool:
        """Return whether ``num_skipped`` of the first ``num_seen`` samples may be skipped."""
        return (self.max is None or num_skipped <= self.max) and (
            self.rate is None or num_skipped <= math.ceil(self.rate * num_seen)
        )


OnError = Literal["raise", "skip"] | Skip


def skip_policy(name: str, on_error: OnError) -> Skip | None:
    """Return what an argument ``on_error`` means: a `Skip`, or None for ``"raise"``.

    >>> skip_policy("map_readers.on_error", "skip")
    Skip(max=None, rate=None)

    Args:
        name: ``owner.argument``, for the message.
        on_error: What the user gave.

    Raises:
        FieldError: It is something else.
    """
    if isinstance(on_error, Skip):
        return on_error
    if on_error == "raise":
        return None
    if on_error == "skip":
        return Skip()
    raise FieldError(f"{name} must be 'raise', 'skip' or a Skip, got {on_error!r}")


@dataclass
class Skipped:
    """How many samples a stage has skipped, and the ordinals of the last of them.

    Attributes:
        count: Samples left out.
        ordinals: Their numbers among the samples that the stage has read in its pass, from 0.
    """

    is_of_pass: ClassVar[bool] = True

    count: int = 0
    ordinals: deque[int] = field(default_factory=lambda: deque(maxlen=NUM_ORDINALS))

    def add(self, ordinal: int, num_samples: int = 1) -> None:
        """Count samples that failed together; ``ordinal`` is the first one's."""
        self.count += num_samples
        last = range(ordinal, ordinal + num_samples)[-NUM_ORDINALS:]
        self.ordinals.extend(last)

    def copy(self) -> Skipped:
        """Return what is counted by now."""
        return Skipped(self.count, self.ordinals.copy())

    def go_back_to(self, before: Skipped) -> None:
        """Forget what was counted since `before` was copied."""
        self.count = before.count
        self.ordinals.clear()
        self.ordinals.extend(before.ordinals)

    def totals(self) -> tuple[int, ...]:
        """Return the count, as a `Counter`."""
        return (self.count,)

    def since(self, totals: tuple[int, ...]) -> tuple[int, ...]:
        """Return by how much it has grown, and the ordinals that came with that."""
        num = self.count - totals[0]
        return (num, *list(self.ordinals.copy())[-num:]) if num else ()

    def count_also(self, change: tuple[int, ...]) -> None:
        """Count what another has."""
        num, *ordinals = change
        self.count += num
        self.ordinals.extend(ordinals)


class SkipLog:
    """What one pass of one stage leaves out, held against the limits of its policy.

    Made by `Stage.start_skipping`, which connects it to the reader's state.

    >>> log = SkipLog("csv", Skip(max=1), Skipped())
    >>> log.skip(17, ValueError("no number"))
    >>> log.skip(40, ValueError("no number"))
    Traceback (most recent call last):
        ...
    ValueError: no number
    csv: sample 40 failed, and 1 before it was skipped; Skip(max=1, rate=None) allows no more

    Args:
        stage: Named in messages.
        policy: How many may be skipped.
        skipped: Where they are counted.
    """

    def __init__(self, stage: str, policy: Skip, skipped: Skipped) -> None:
        self._stage = stage
        self._policy = policy
        self._skipped = skipped
        self.count = 0

    def skip(self, ordinal: int, error: Exception, num_samples: int = 1) -> None:
        """Leave a sample out, or raise its error because too many were left out before.

        Args:
            ordinal: Number of the sample in the stage's pass, from 0; the samples before it are
                the ones that were seen.
            error: Why it is left out.
            num_samples: How many samples are lost together, from ``ordinal`` on.

        Raises:
            Exception: ``error`` itself, with a note, where the policy allows no more.
        """
        num_skipped = self.count + num_samples
        if not self._policy.allows(num_skipped, ordinal + num_samples):
            error.add_note(
                f"{self._stage}: sample {ordinal} failed, and {self.count} before it "
                f"{'was' if self.count == 1 else 'were'} skipped; {self._policy} allows no more"
            )
            raise error
        is_told = _num_digits(num_skipped) > _num_digits(self.count)
        level = logging.WARNING if is_told else logging.DEBUG
        if log.isEnabledFor(level):
            # As text: who keeps the record would keep the error, and every frame it came through.
            told = self._stage, ordinal, num_skipped, repr(error)
            log.log(level, "%s: skipped sample %d (%d so far in this pass): %s", *told)
        self.count = num_skipped
        self._skipped.add(ordinal, num_samples)


def _num_digits(count: int) -> int:
    return len(str(count)) if count else 0
