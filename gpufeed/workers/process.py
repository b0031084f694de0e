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
from gpufeed.workers.surroundings import surroundings
from gpufeed.workers.worker import CLOSE_GRACE_S, STATUS_HUNG_UP, Ends, Setup, send_setup

__all__ = ["Process", "Worker", "cannot_start", "end_all"]

# What the user's own environment does not say. Where NumPy brings OpenBLAS, a thread a core waits
# for work in a busy loop first, for tens of milliseconds: all of them, in each worker that starts.
_ENVIRONMENT = {"OPENBLAS_THREAD_TIMEOUT": "4"}
_ROOT = str(Path(__file__).parents[2])

# Those that nobody has released: of a pass that is collected as part of a cycle, they would come to
# their own finalizers before it comes to the one that ends them.
_kept: set[Process] = set()


class Process:
    """One worker process, from outside; it starts at once, and waits for `Worker.begin`.

    Attributes:
        pid: Its process id.
        sentinel: A descriptor that is readable once it has ended.

    Raises:
        OSError: The system refuses to start one more.
    """

    def __init__(self) -> None:
        self._surroundings = surroundings()
        with ExitStack() as undo:
            self._control, theirs = map(undo.enter_context, socket.socketpair())
            self._popen = _start(theirs.fileno())
            undo.callback(self._popen.wait)
            undo.callback(self._popen.kill)
            # Where there are no pidfds, the end of the socket that nobody else holds does.
            has_pidfd = hasattr(os, "pidfd_open")
            self._pidfd = os.pidfd_open(self._popen.pid) if has_pidfd else -1
            self.sentinel = self._pidfd if has_pidfd else self._control.fileno()
            undo.pop_all()
            theirs.close()
        self.pid = self._popen.pid
        _kept.add(self)

    def is_usable(self, now: tuple[object, ...]) -> bool:
        """Whether it goes on, and would be the same if it were started in surroundings ``now``."""
        has_ended = self._popen.returncode is not None or _is_readable(self.sentinel, 0)
        return not has_ended and self._surroundings == now

    def tell(self, setup: Setup, ends: Ends) -> None:
        """Tell it what to do in a pass."""
        with suppress(BrokenPipeError, ConnectionResetError):  # dead already, as `Pool` will see
            send_setup(self._control, setup, ends)

    def obituary(self) -> str:
        """Say how it ended, once it has."""
        code = self._reap()
        if code is None:
            return "ended, how is not known where SIGCHLD is ignored"
        if code >= 0:
            return f"exited with status {code}"
        how = f"was killed by {signal.Signals(-code).name}"
        how += " (as the system does when memory runs out)" if code == -signal.SIGKILL else ""
        return how

    def hang_up(self) -> None:
        """Close what it waits for."""
        with suppress(OSError):  # it has hung up itself
            self._control.shutdown(socket.SHUT_WR)  # its own end stays: it is how its end is seen

    def end(self, deadline: float) -> None:
        """Wait until it has ended, and from ``deadline`` on make it."""
        if self._popen.returncode is not None:
            return
        if not _is_readable(self.sentinel, max(0.0, deadline - time.monotonic()) * 1000):
            self._popen.kill()
        self._reap()

    def _reap(self) -> int | None:
        end_session(self._popen, unless=(0, STATUS_HUNG_UP))
        return exit_status(self._popen)

    def let_go(self) -> None:
        """Close what is left, in a process whose child it is not; idempotent."""
        self._popen.returncode = 0  # it is not for us to wait for
        self.release()

    def release(self) -> None:
        """Close what is left; idempotent."""
        _kept.discard(self)
        self._control.close()
        if self._pidfd >= 0:
            pidfd, self._pidfd = self._pidfd, -1
            os.close(pidfd)


def end_all(processes: Sequence[Process]) -> None:
    """End processes, by closing what they wait for, and `CLOSE_GRACE_S` later by SIGKILL."""
    deadline = time.monotonic() + CLOSE_GRACE_S
    # All of it, also where Ctrl-C is pressed while one of them is awaited.
    with ExitStack() as rest:
        for process in processes:
            rest.callback(process.end, deadline)
        for process in processes:
            process.hang_up()


def _let_go() -> None:
    """Close, in a fork, what it has of the parent's processes: they end when that does."""
    for process in list(_kept):
        process.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Worker:
    """A process at work in one pass.

    Args:
        stage: Named in errors.
        number: Of the worker in its pool.
        process: That waits for work.
        returns: Both ends of the pipe by which slots come back to it.
    """

    def __init__(self, stage: str, number: int, process: Process, returns: tuple[int, int]) -> None:
        self.number = number
        self.process = process
        self.num_frames = 0
        self.is_done = False
        self.returns_end, self.returns = returns
        self.segment = Segment.create(stage)

    def begin(
        self,
        payload: Payload,
        *,
        max_entries: int,
        max_views: int,
        results: int,
        tasks: Sequence[int] = (),
    ) -> None:
        """Tell it what to do.

        Args:
            payload: What to run.
            max_entries: Most samples that it sends at once.
            max_views: Most slots of tasks that what it makes of them may keep.
            results: The end of the pipe to send records of frames through.
            tasks: See `Ends`.
        """
        setup = Setup(
            list(sys.argv), self.number, max_entries, payload.data, payload.modules, max_views
        )
        self.process.tell(setup, Ends(self.segment.fileno(), results, self.returns_end, tasks))

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
        return f"worker {self.process.pid} {self.process.obituary()}, {self.doing()}"


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


def _start(control_fd: int) -> subprocess.Popen[bytes]:
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
        pass_fds=[control_fd],
        start_new_session=True,
        env={**_ENVIRONMENT, **os.environ},
    )


def _is_readable(fd: int, wait_ms: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(wait_ms))
