"""How a reader of feeds runs: what `DataFeeder.decorate_reader` was asked for, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpufeed.checks import positive_s, whole_number
from gpufeed.errors import FieldError
from gpufeed.grouping import Remainder

__all__ = ["FeedOptions", "feed_options", "grouping_options"]

_OWNER = "decorate_reader"


@dataclass(frozen=True)
class FeedOptions:
    """How a feed reader runs; `DataFeeder.decorate_reader` says what each means.

    Attributes:
        stage: Its name, in messages and of its threads.
    """

    prefetch: int
    streams: Sequence[object | None]
    max_bytes_ahead: int | None = None
    timeout_s: float | None = None
    stall_warning_s: float | None = 30
    progress: bool = False
    trace: str | None = None
    stage: str = _OWNER


def feed_options(
    num_places: int,
    *,
    prefetch: int,
    stream: object | None,
    max_bytes_ahead: int | None,
    timeout_s: float | None,
    stall_warning_s: float | None,
    progress: bool,
    trace: str | None,
) -> FeedOptions:
    """Return the options of a feed reader of so many places.

    Raises:
        FieldError: One is out of range.
    """
    if max_bytes_ahead is not None:
        max_bytes_ahead = whole_number(f"{_OWNER}.max_bytes_ahead", max_bytes_ahead, minimum=1)
    prefetch = whole_number(f"{_OWNER}.prefetch", prefetch, minimum=0)
    timeout_s = positive_s(f"{_OWNER}.timeout_s", timeout_s)
    if timeout_s is not None and prefetch == 0:
        raise FieldError(
            f"{_OWNER}.timeout_s must be None with prefetch=0, where the loop's own thread reads "
            f"and nobody can stop it, got {timeout_s:g}; use prefetch=1"
        )
    return FeedOptions(
        prefetch,
        _one_each(stream, num_places),
        max_bytes_ahead,
        timeout_s,
        positive_s(f"{_OWNER}.stall_warning_s", stall_warning_s),
        progress,
        trace,
    )


def grouping_options(
    num_places: int, *, drop_last: bool, remainder: Remainder | None
) -> dict[str, Any]:
    """Return the arguments of `gpufeed.grouping.group_batches`.

    Raises:
        FieldError: ``remainder`` is none that there is.
    """
    if remainder not in (None, "split", "partial"):
        raise FieldError(
            f"{_OWNER}.remainder must be None, 'split' or 'partial', got {remainder!r}"
        )
    return {"num_places": num_places, "drop_last": bool(drop_last), "remainder": remainder}


def _one_each(stream: object | None, num_places: int) -> list[object | None]:
    if stream is None:
        return [None] * num_places
    streams = list(stream) if isinstance(stream, (list, tuple)) else [stream]
    if len(streams) != num_places:
        raise FieldError(
            f"{_OWNER}.stream must be one stream for each of {num_places} places, "
            f"got {len(streams)}"
        )
    return streams
