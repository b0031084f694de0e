"""``fluid.unique_name``: numbered names, for scripts; readers are numbered by their programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["generate", "guard"]

_used = [Counter[str]()]


def generate(key: str) -> str:
    """Return ``key`` with the next number behind it.

    >>> with guard():
    ...     generate("reader"), generate("reader")
    ('reader_0', 'reader_1')
    """
    number = _used[-1][key]
    _used[-1][key] += 1
    return f"{key}_{number}"


@contextmanager
def guard(new_generator: object = None) -> Iterator[None]:
    """Count from 0 inside the ``with``."""
    _used.append(Counter())
    try:
        yield
    finally:
        _used.pop()
