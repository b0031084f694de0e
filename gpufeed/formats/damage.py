"""What a format does about a damaged sample: refuse it, or tell it and go on with the next.

An opener that can go on takes ``skipped``, and calls it with the error where it would have raised
it. By default that is `refuse`, which raises; `gpufeed.creator` gives it one that counts, and
raises when there were too many.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["OnDamage", "refuse"]


class OnDamage(Protocol):
    """Called with an error and the number of samples that are lost to it."""

    def __call__(self, error: Exception, num_samples: int = 1) -> None:
        """Return to leave them out, or raise ``error``."""


def refuse(error: Exception, num_samples: int = 1) -> None:
    """Raise ``error``: nothing may be left out.

    >>> refuse(ValueError("no number"))
    Traceback (most recent call last):
        ...
    ValueError: no number
    """
    raise error
