"""Processes that are not ours: those that a script of a test has left."""

from __future__ import annotations

import os
import select

__all__ = ["assert_ends"]


def assert_ends(pid: int) -> None:
    """Wait until a process that is not ours has ended, if it has not already."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(10_000), f"process {pid} goes on"
    finally:
        os.close(descriptor)
