"""How a process has ended, and what it leaves behind.

A worker that is killed runs nothing of its own any more, so the commands that it waits for would
outlive it. It leads a session, by which they are found.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["end_session", "exit_status"]

# What is started while others are killed is found next time.
_MAX_SWEEPS = 3


def exit_status(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the end of a process; return its status, below 0 the signal that killed it.

    None where nobody knows: a program that ignores SIGCHLD is told of no status, nor is one that
    waits for all of its children elsewhere. `subprocess` says 0 then, as of one that went well.
    """
    if process.returncode is not None or not hasattr(os, "waitid"):  # which macOS has not
        return process.wait()
    ended = _ended(process)
    status = process.wait()
    return None if ended is None else status


def end_session(leader: subprocess.Popen[bytes], *, unless: Collection[int]) -> None:
    """Kill what is left of a session, once its leader has ended and before it is waited for.

    Until then its number cannot be given to another. Where there is no ``/proc``, what is left is
    left alone.

    Args:
        leader: Of the session.
        unless: Exit statuses with which it has seen to this itself.
    """
    ended = _ended(leader) if leader.returncode is None and hasattr(os, "waitid") else None
    if ended is None or (ended.si_code == os.CLD_EXITED and ended.si_status in unless):
        return
    with suppress(OSError):  # no descriptor may be left to look with
        for _ in range(_MAX_SWEEPS):
            members = list(_members(leader.pid))
            for pid in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not members:
                return


def _ended(process: subprocess.Popen[bytes]) -> os.waitid_result | None:
    """Wait for the end of a process, and leave its status to be asked for; None if it has gone."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return None


def _members(session: int) -> Iterator[int]:
    """Yield the processes of a session that have not ended."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone meanwhile
            # After the name, which may hold anything: state, parent, group, session.
            state, _, _, its_session, *_ = file.read_bytes().rpartition(b")")[2].split()
            if int(its_session) == session and state not in (b"Z", b"X"):
                yield int(file.parent.name)
