"""Where the time of a pass went: added up for `stats()`, and span by span for a trace."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Literal

from gpufeed.observe.stats import FeedStats

__all__ = ["Recorder", "Span"]

Span = Literal["read", "stage", "blocked", "wait", "compute"]


class Recorder:
    """Adds spans of time to a `FeedStats`, and keeps them if a trace is wanted.

    ``read``, ``stage`` and ``blocked`` are recorded by the producer and ``wait`` and ``compute`` by
    the consumer, so no two threads of a pass add to the same number.

    Args:
        stats: Added to.
        trace: File for a trace in Chrome's JSON format, which Perfetto opens; None keeps none.
    """

    def __init__(self, stats: FeedStats, trace: str | None = None) -> None:
        self.stats = stats
        self._path = None if trace is None else Path(trace)
        if self._path is not None:
            self._path.write_text("")  # a path that cannot be written is said before the pass
        self._events: list[dict[str, Any]] = []

    def add(self, span: Span, since_s: float, minus_s: float = 0.0) -> float:
        """Record a span that began at ``since_s`` and ends now, and return now.

        Args:
            span: What the thread did.
            since_s: `time.perf_counter` at its beginning.
            minus_s: Part of it that is recorded as something else.
        """
        now_s = time.perf_counter()
        name = f"{span}_s"
        setattr(self.stats, name, getattr(self.stats, name) + now_s - since_s - minus_s)
        if self._path is not None:
            self._events.append(
                {
                    "name": span,
                    "ph": "X",
                    "ts": since_s * 1e6,
                    "dur": (now_s - since_s) * 1e6,
                    "pid": os.getpid(),
                    "tid": threading.get_native_id(),
                }
            )
        return now_s

    def write(self) -> None:
        """Write the trace, if one is wanted; a later pass's replaces it."""
        if self._path is not None:
            self._path.write_text(json.dumps({"traceEvents": self._events}))
