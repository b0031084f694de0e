"""One worker process, as its parent sees it: started, told what to do, ended and reaped."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from gpufeed.errors import ReaderError
from gpufeed.workers.ending import end_session, exit_status
from gpufeed.workers.payload import Payload
from gpufeed.workers.segment import Segment
from gpufeed.workers.worker import STATUS_HUNG_UP, Setup, pack_setup

__all__ = ["Worker", "cannot_start"]

# What the user's own environment does not say. Where NumPy brings OpenBLAS, a thread a core waits
# for work in a busy loop first, for tens of milliseconds: all of them, in each worker that starts.
_ENVIRONMENT = {"OPENBLAS_THREAD_TIMEOUT": "4"}
_ROOT = str(Path(__file__).parents[2])


class Worker:
    """One worker, from outside.

    Args:
        stage: Named in errors.
        number: Of the worker in its pool.
        results: The end of the pipe to send records of frames through.
        returns: The pipe by which slots come back to it.
        tasks: For a worker that maps: the pipe that tells of samples, the segment they are in, and
            the pipe to give their slots back.

    Raises:
        OSError: The system refuses to start one more.
    """

    def __init__(
        self,
        stage: str,
        number: int,
        results: int,
        returns: tuple[int, int],
        tasks: tuple[int, int, int] | None,
    ) -> None:
        self.number = number
        self.num_frames = 0
        self.is_done = False
        returns_end, self.returns = returns
        self.inherited = [returns_end]
        self._results_end = results
        self._tasks = tasks
        with ExitStack() as undo:
            self._control, theirs = map(undo.enter_context, socket.socketpair())
            self.segment = Segment.create(stage)
            undo.callback(self.segment.close)
            shared = [theirs.fileno(), self.segment.fileno(), results, returns_end]
            shared += () if tasks is None else tasks
            self.process = _start(theirs.fileno(), shared)
            undo.callback(self.process.wait)
            undo.callback(self.process.kill)
            # Where there are no pidfds, the end of the socket that nobody else holds does.
            has_pidfd = hasattr(os, "pidfd_open")
            self._pidfd = os.pidfd_open(self.process.pid) if has_pidfd else -1
            self.sentinel = self._pidfd if has_pidfd else self._control.fileno()
            undo.pop_all()
            theirs.close()

    def begin(self, payload: Payload, max_entries: int, max_views: int) -> None:
        """Tell it what to do."""
        setup = Setup(
            argv=list(sys.argv),
            sender=self.number,
            segment=self.segment.fileno(),
            records=self._results_end,
            returns=self.inherited[0],
            tasks=self._tasks,
            max_entries=max_entries,
            payload=payload.data,
            modules=payload.modules,
            max_views=max_views,
        )
        with suppress(BrokenPipeError, ConnectionResetError):  # dead already, as `receive` will see
            self._control.sendall(pack_setup(setup))

    def is_starting(self) -> bool:
        """Whether it has not yet said that it is ready."""
        return self.segment.status().number == -2

    def doing(self) -> str:
        """Say what it is doing, as it said itself."""
        status = self.segment.status()
        if status.number < 0:
            return "starting" if status.number == -2 else "before its first sample"
        return f"{'at' if status.is_making else 'after'} sample {status.number}"

    def obituary(self) -> str:
        """Say how it ended, once it has."""
        code = self._reap()
        if code is None:
            how = "ended, how is not known where SIGCHLD is ignored"
        elif code >= 0:
            how = f"exited with status {code}"
        else:
            how = f"was killed by {signal.Signals(-code).name}"
            how += " (as the system does when memory runs out)" if code == -signal.SIGKILL else ""
        return f"worker {self.process.pid} {how}, {self.doing()}"

    def hang_up(self) -> None:
        """Close what it waits for."""
        with suppress(OSError):  # it has hung up itself
            self._control.shutdown(socket.SHUT_WR)  # its own end stays: it is how its end is seen

    def end(self, deadline: float) -> None:
        """Wait until it has ended, and from ``deadline`` on make it."""
        if self.process.returncode is not None:
            return
        poll = select.poll()
        poll.register(self.sentinel, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self.process.kill()
        self._reap()

    def _reap(self) -> int | None:
        end_session(self.process, unless=(0, STATUS_HUNG_UP))
        return exit_status(self.process)

    def release(self) -> None:
        """Close what is left; idempotent."""
        self._control.close()
        self.segment.close()
        if self._pidfd >= 0:
            pidfd, self._pidfd = self._pidfd, -1
            os.close(pidfd)


_REMEDIES = {
    errno.EMFILE: "let this process open more files (ulimit -n)",
    errno.ENFILE: "let the system open more files",
    errno.EAGAIN: "allow more processes (ulimit -u, or the limit of the container)",
    errno.ENOMEM: "free some memory",
}


def cannot_start(stage: str, error: OSError) -> ReaderError:
    """Return what to say when the system refuses to start a worker."""
    remedy = _REMEDIES.get(error.errno or 0)
    return ReaderError(
        f"{stage}: its workers cannot be started: {error}"
        + (f"; {remedy}, or use fewer processes" if remedy else "")
    )


def _start(control_fd: int, shared: Sequence[int]) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise ReaderError("worker processes need sys.executable to be a Python, got none")
    path = [_ROOT, *(entry or os.getcwd() for entry in sys.path)]
    code = (
        f"__import__('sys').path[:] = {path!r}; "
        f"__import__('gpufeed.workers.worker', fromlist=['main']).main({control_fd})"
    )
    flags: Any = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(
        [sys.executable, *flags, "-c", code],
        stdin=subprocess.DEVNULL,
        pass_fds=shared,
        start_new_session=True,
        env={**_ENVIRONMENT, **os.environ},
    )
