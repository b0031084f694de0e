"""Places: where an array lives.

A place is a plain value: making one touches no device. Whether a device exists is asked when
something is sent there (`gpufeed.device`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import local
from typing import Any, ClassVar, final

from gpufeed.checks import number_in_environment, whole_number
from gpufeed.errors import PlaceError

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Place",
    "PlaceLike",
    "as_place",
    "cpu_places",
    "local_place",
]


class _Entered(local):
    """The contexts this thread is inside of; places themselves hold no state."""

    def __init__(self) -> None:
        self.contexts: list[AbstractContextManager[object]] = []


_entered = _Entered()


class Place:
    """Base of all places. Use as a context manager to make the device current.

    ``with place:`` switches CuPy's (and, where torch is imported, torch's) current device; on
    `CPUPlace` and on virtual devices it changes nothing.
    """

    # Filled in by gpufeed.device, which knows the libraries that have a current device.
    make_current: ClassVar[Callable[[Place], AbstractContextManager[object]]] = lambda place: (
        nullcontext()
    )

    def __enter__(self) -> Place:
        context = type(self).make_current(self)
        context.__enter__()
        _entered.contexts.append(context)
        return self

    def __exit__(self, *raised: Any) -> None:
        _entered.contexts.pop().__exit__(*raised)


@final
@dataclass(frozen=True, eq=False)
class CPUPlace(Place):
    """Pageable host memory.

    >>> CPUPlace() is as_place("cpu")
    True
    """

    _only: ClassVar[CPUPlace]

    def __new__(cls) -> CPUPlace:
        """Return the one there is, as places are compared all the time."""
        return cls._only

    def __reduce__(self) -> tuple[type[CPUPlace], tuple[()]]:
        return CPUPlace, ()  # the two oldest pickle protocols would make another one

    def __str__(self) -> str:
        return "cpu"


CPUPlace._only = object.__new__(CPUPlace)


@dataclass(frozen=True)
class CUDAPinnedPlace(Place):
    """Page-locked host memory, which a device can read by itself."""

    def __str__(self) -> str:
        return "cuda_pinned"


@dataclass(frozen=True)
class CUDAPlace(Place):
    """The memory of CUDA (or virtual) device number ``device_id``.

    >>> str(CUDAPlace(1))
    'cuda:1'

    Raises:
        PlaceError: ``device_id`` is not a whole number >= 0.
    """

    device_id: int = 0

    def __post_init__(self) -> None:
        number = whole_number("CUDAPlace.device_id", self.device_id, minimum=0, error=PlaceError)
        object.__setattr__(self, "device_id", number)

    def __str__(self) -> str:
        return f"cuda:{self.device_id}"


PlaceLike = Place | str


def as_place(place: PlaceLike) -> Place:
    """Return the place that ``place`` names.

    >>> as_place("cuda:1")
    CUDAPlace(device_id=1)

    Args:
        place: A `Place`, or one of ``"cpu"``, ``"cuda"``, ``"cuda:N"``, ``"cuda_pinned"``.

    Raises:
        PlaceError: It is none of these.
    """
    if isinstance(place, Place):
        return place
    if isinstance(place, str):
        if place == "cpu":
            return CPUPlace()
        if place == "cuda_pinned":
            return CUDAPinnedPlace()
        found = re.fullmatch(r"cuda(?::(\d+))?", place)
        if found:
            return CUDAPlace(int(found[1] or 0))
    raise PlaceError(f"place must be a Place, 'cpu', 'cuda:N' or 'cuda_pinned', got {place!r}")


def cpu_places(n: int | None = None) -> list[Place]:
    """Return ``n`` times `CPUPlace`; ``None`` reads ``CPU_NUM``, else 1.

    >>> cpu_places(2)
    [CPUPlace(), CPUPlace()]

    Raises:
        PlaceError: ``n`` (or ``CPU_NUM``) is not a whole number >= 1.
    """
    if n is None:
        count = number_in_environment("CPU_NUM", 1, minimum=1)
    else:
        count = whole_number("cpu_places.n", n, minimum=1, error=PlaceError)
    return [CPUPlace() for _ in range(count)]


def local_place() -> Place:
    """Return this process's device: ``CUDAPlace(LOCAL_RANK)``, as launchers number them.

    Raises:
        PlaceError: ``LOCAL_RANK`` is set and not a whole number.
    """
    return CUDAPlace(number_in_environment("LOCAL_RANK", 0))
