"""Cases that mostly wait for processes, run side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["at_once"]


def at_once(check: Callable[..., object], cases: Iterable[tuple[object, ...]]) -> None:
    """Call ``check`` with the arguments of every case, and say which has failed."""
    with ThreadPoolExecutor(4) as pool:
        running = [(case, pool.submit(check, *case)) for case in cases]
        for case, future in running:
            if (error := future.exception()) is not None:
                error.add_note(f"with {case!r}")
                raise error
