"""Ctrl-C, put off for the moment in which a process is started.

`subprocess.Popen` forks, and then says whom: interrupted in between, it leaves a child that nobody
knows of, to run on or to stay a zombie.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C be handled at the end of a ``with``, if it is pressed within.

    Only the main thread is ever interrupted; on others nothing is done.

    >>> try:
    ...     with uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("to the end")
    ... except KeyboardInterrupt:
    ...     print("and then")
    to the end
    and then
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    pressed = []
    signal.signal(signal.SIGINT, lambda *where: pressed.append(where))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed:
            handler(*pressed[0])
