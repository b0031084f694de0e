"""What numbers and readers among the arguments must be, said and checked in one way everywhere.

A whole number is one of any numeric type: ``2``, ``2.0`` and ``numpy.int64(2)``, but no bool and no
text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any, TypeGuard, TypeVar

from gpufeed.errors import FieldError, GpufeedError, PlaceError

__all__ = [
    "number_in_environment",
    "positive_s",
    "require_callable",
    "require_readers",
    "samples_of",
    "whole_number",
]

T = TypeVar("T")


def whole_number(
    name: str,
    value: object,
    *,
    minimum: int | None = None,
    error: type[GpufeedError] = FieldError,
) -> int:
    """Return ``value`` as an int if it is a whole number of any numeric type.

    >>> whole_number("batch.batch_size", 32.0, minimum=1)
    32

    Args:
        name: ``owner.argument``, for the message.
        value: What the user gave.
        minimum: Smallest legal value; None for any.
        error: Raised otherwise.
    """
    if _is_number(value) and value // 1 == value and (minimum is None or value >= minimum):
        return int(value)
    bound = "" if minimum is None else f" >= {minimum}"
    raise error(f"{name} must be a whole number{bound}, got {value!r}")


def positive_s(name: str, value: float | None) -> float | None:
    """Return ``value`` if one can wait for so many seconds; None is for ever.

    >>> positive_s("decorate_reader.timeout_s", 1.5)
    1.5

    Raises:
        FieldError: It is no number, not above 0, or more than the system can wait for.
    """
    if value is None:
        return None
    if _is_number(value) and 0 < value <= TIMEOUT_MAX:
        return float(value)
    raise FieldError(f"{name} must be a finite number of seconds > 0 or None, got {value!r}")


def number_in_environment(variable: str, default: int, *, minimum: int = 0) -> int:
    """Return the whole number that an environment variable holds; unset or empty, ``default``.

    Raises:
        PlaceError: It is something else: the variables that are read say which devices to use.
    """
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or int(text) < minimum:
        raise PlaceError(f"{variable} must be a whole number >= {minimum}, got {text!r}")
    return int(text)


def require_callable(name: str, given: object, remedy: str = "") -> None:
    """Refuse what is not callable, as the argument that it was given for."""
    if not callable(given):
        raise TypeError(f"{name} must be callable, got {given!r}{remedy}")


def require_readers(owner: str, readers: Sequence[object]) -> None:
    """Refuse to join none."""
    if not readers:
        raise TypeError(f"{owner}.readers must be at least one reader, got none")


def samples_of(reader: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Call a reader, and return an iterator over what it returns.

    >>> list(samples_of(lambda: "ab"))
    ['a', 'b']

    Raises:
        TypeError: It cannot be called, or that is no iterable, as when a function has forgotten its
            ``yield``.
    """
    if not callable(reader):
        raise TypeError(f"reader must be callable, got {reader!r:.80}")
    samples: Any = reader()
    try:
        return iter(samples)
    except TypeError as error:
        if isinstance(samples, Iterable):  # the error is of its own making
            raise
        name = getattr(reader, "__qualname__", None) or type(reader).__name__
        remedy = "; is it a function that makes a reader? then call it" * callable(samples)
        raise TypeError(
            f"reader {name} must return an iterable of samples, got {samples!r:.80}{remedy}"
        ) from error


def _is_number(value: object) -> TypeGuard[Any]:
    return not isinstance(value, bool) and isinstance(value, Real)
