"""The parent's side: workers that are started, heard, and ended.

The consumer's own thread waits for results, on one pipe and on the end of every worker, so there is
no thread between a worker and who takes its samples, and the death of a worker is seen as soon as
the system knows of it. What a dead worker had made and not yet sent is still there, in its segment.

Lifetime: a `Pool` belongs to the frame of a generator. `Pool.finish`, at the end of the data, lets
the processes wait for the next pass. `Pool.close` ends them, where there is an error, when a loop
is left, when the generator is collected and at interpreter exit; by closing what they wait for, and
`CLOSE_GRACE_S` later by SIGKILL. `Pool.release` then closes what is left.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import cycle

from gpufeed.errors import ReaderTimeout, WorkerDied
from gpufeed.workers.boxes import Inbox, Outbox
from gpufeed.workers.frames import Entry, Kind
from gpufeed.workers.interrupts import uninterrupted
from gpufeed.workers.payload import Payload
from gpufeed.workers.process import Process, Worker, cannot_start, end_all
from gpufeed.workers.records import RECORD_NBYTES, Record, Returns
from gpufeed.workers.segment import MAX_SLOTS, Segment, require_free
from gpufeed.workers.standby import Standby

__all__ = ["Arrival", "Pool"]

# From which worker (-1: from this process), what, and how many bytes, said with a frame's last.
Arrival = tuple[int, Entry, int]

_SELF = -1
# A process may have to import a lot, from a slow disk, before it can be late with a sample.
START_TIMEOUT_S = 60.0
# Enough for a worker to start with; its segment grows as it needs.
_MIN_FREE_NBYTES = 4 << 20


class Pool:
    """Workers of one pass, started by ``with``.

    Args:
        stage: What the user calls the stage; named in errors.
        num_workers: How many there are; those to start do so at once, and wait for `give_work`.
        standby: Where processes come from, and go to.
        max_entries: Most samples that they send at once.
        has_tasks: Whether samples are sent to them.

    Raises:
        ReaderError: There is not enough shared memory; on entry also: no Python to start, or
            nothing to start it with: open files, processes, memory.
    """

    def __init__(
        self,
        stage: str,
        num_workers: int,
        standby: Standby,
        *,
        max_entries: int,
        has_tasks: bool = False,
    ) -> None:
        require_free(stage, (num_workers + has_tasks) * _MIN_FREE_NBYTES)
        self.stage = stage
        self.tasks: Outbox | None = None
        self._num_workers, self._has_tasks, self._max_entries = num_workers, has_tasks, max_entries
        # Workers share the slots of tasks, half of them: what is on its way must have room, too.
        # And each slot that samples keep here is a mapping, and a descriptor, of this process.
        self._max_views = MAX_SLOTS // 2 // num_workers
        self._begin_s = time.monotonic()
        self._is_closed = False
        self._owner = os.getpid()
        # Reentrant: the garbage collector may close a pool anywhere, also while it is closed.
        self._ending = threading.RLock()
        self._tasks: _Tasks | None = None
        self._fds: list[int] = []
        self._standby = standby
        self._processes: list[Process] = []
        self._workers: list[Worker] = []
        self._inbox = Inbox([], [])
        self._local: deque[Entry] = deque()
        self._poll = select.poll()

    def _build(self) -> None:
        self._standby.take(self._num_workers, self._processes)
        self._results, self._results_end = self._pipe()
        self._notices, self._notify = self._pipe()
        os.set_blocking(self._results, False)
        self._poll.register(self._results, select.POLLIN)
        self._poll.register(self._notices, select.POLLIN)
        if self._has_tasks:
            self._tasks = _Tasks(self.stage, self._pipe(), self._pipe())
        for number, process in enumerate(self._processes):
            self._workers.append(Worker(self.stage, number, process, self._pipe()))
            self._poll.register(process.sentinel, select.POLLIN)
        self._inbox = Inbox(
            [worker.segment for worker in self._workers],
            [worker.returns for worker in self._workers],
            max_views=self._max_views,
            max_together=self._max_entries,
        )

    def give_work(self, payloads: Sequence[Payload]) -> None:
        """Let the workers begin, each with its own payload, or all with the only one."""
        for worker, payload in zip(self._workers, cycle(payloads), strict=False):
            worker.begin(
                payload,
                max_entries=self._max_entries,
                max_views=self._max_views,
                results=self._results_end,
                tasks=() if self._tasks is None else self._tasks.ends,
            )
        with self._ending:
            if self._is_closed:
                return
            if self._tasks is not None:
                self.tasks = self._tasks.outbox(self._max_entries, payloads[0])
                self._close_fds(self._tasks.of_workers)
        self._close_fds([worker.returns_end for worker in self._workers])

    def tell(self, entry: Entry) -> None:
        """Deliver an entry of this process to the consumer; from any thread."""
        with self._ending:
            if not self._is_closed:
                self._local.append(entry)
                os.write(self._notify, b"!")

    def end_tasks(self) -> None:
        """Say that no more samples come, so that workers end when they have mapped the rest."""
        if self.tasks is None or self._tasks is None:
            return
        self.tasks.send()
        with self._ending:
            if not self._is_closed:
                self._tasks.end(len(self._workers))

    def took(self, number: int, num_samples: int, nbytes: int) -> None:
        """Let a worker that reads go on for so many samples more."""
        self._inbox.say(number, num_samples=num_samples, nbytes=nbytes)

    def receive(self, timeout_s: float | None = None) -> list[Arrival]:
        """Return what has arrived, after waiting for something; empty once the pool is closed.

        A worker that died is an entry too: a FAILURE behind all that it had made.

        Args:
            timeout_s: How long to wait; what processes take to start does not count, up to
                `START_TIMEOUT_S`.

        Raises:
            ReaderTimeout: Nothing arrived in ``timeout_s``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._inbox.give_back()
            ready = self._wait(deadline)
            if self._is_closed:
                return []
            arrived = self._take_results() if self._results in ready else []
            if arrived:
                return arrived
            if not ready and timeout_s is not None and self._is_starting():
                deadline = time.monotonic() + timeout_s
            elif not ready:
                raise ReaderTimeout(
                    f"{self.stage}: no sample arrived in {timeout_s} s; {self._doing()}"
                )
            elif self._results not in ready:
                # All that was sent by those who have ended is in the pipe by now.
                arrived = [*self._take_results(), *self._take_notices(ready)]
                if arrived:
                    return arrived

    def describe(self) -> str:
        """Return what each worker is doing, by its process id."""
        return f"{self.stage}: {self._doing()}"

    def _doing(self) -> str:
        workers = [worker for worker in self._workers if not worker.is_done]
        told = [f"worker {worker.process.pid} is {worker.doing()}" for worker in workers]
        return ", ".join(told) or "every worker has ended"

    def finish(self) -> None:
        """Let the processes wait for the next pass, once all that they were to send has arrived."""
        with self._ending:
            if not self._is_closed and os.getpid() == self._owner:
                if self.tasks is not None and self._tasks is not None:
                    self.tasks.close()
                    # Said, and not left to the closing of a pipe that a fork may hold open, too.
                    self._tasks.end(len(self._workers))
                self._standby.put(self._processes)
                self._is_closed = True

    def close(self) -> None:
        """End the workers; idempotent, from any thread. Whoever waits for them is woken."""
        with self._ending:
            if self._is_closed:
                return
            self._is_closed = True
            if os.getpid() != self._owner:
                return  # a fork: the workers go on for the process that started them
            with ExitStack() as rest:
                if self.tasks is not None:
                    rest.callback(self.tasks.close)
                rest.callback(end_all, self._processes)
                self._inbox.say_over()
                if self._tasks is not None:
                    self._tasks.end(len(self._workers))

    def release(self) -> None:
        """Close everything that `close` left, once no thread uses it; idempotent."""
        with self._ending, uninterrupted():
            self._close_fds(list(self._fds))
            for process in self._processes:
                process.release()
            for worker in self._workers:
                worker.segment.close()
            if self._tasks is not None:
                self._tasks.segment.close()

    def __enter__(self) -> Pool:
        try:
            with uninterrupted():  # what nobody knows of yet, nobody would close
                self._build()
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError):
                raise cannot_start(self.stage, error) from error
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self.close()
        finally:
            self.release()

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._fds += ends
        return ends

    def _close_fds(self, fds: Sequence[int]) -> None:
        for fd in fds:
            if fd in self._fds:
                self._fds.remove(fd)
                os.close(fd)

    def _take_results(self) -> list[Arrival]:
        try:
            records = os.read(self._results, RECORD_NBYTES * 64)
        except BlockingIOError:
            return []
        return [arrival for record in Record.unpack(records) for arrival in self._open(record)]

    def _take_notices(self, ready: set[int]) -> Iterator[Arrival]:
        """Yield what else there is to know: of workers that have ended, and of this process."""
        for worker in self._workers:
            if worker.process.sentinel in ready:
                yield from self._bury(worker)
        if self._notices in ready:
            for _ in os.read(self._notices, 64):
                yield _SELF, self._local.popleft(), 0

    def _wait(self, deadline: float | None) -> set[int]:
        wait_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        return {fd for fd, _ in self._poll.poll(wait_ms)}

    def _is_starting(self) -> bool:
        is_early = time.monotonic() < self._begin_s + START_TIMEOUT_S
        return is_early and any(worker.is_starting() for worker in self._workers)

    def _open(self, record: Record) -> list[Arrival]:
        worker = self._workers[record.sender]
        worker.num_frames = record.frame
        entries = self._inbox.open(record)
        if entries[-1].kind == Kind.DONE:
            worker.is_done = True
            entries.pop()
        arrivals = [(record.sender, entry, 0) for entry in entries]
        if arrivals:
            arrivals[-1] = record.sender, entries[-1], record.nbytes
        return arrivals

    def _bury(self, worker: Worker) -> Iterator[Arrival]:
        """Yield what a worker that has ended left behind, and why it ended if it should not have.

        It may have ended in the middle of filling a frame; every complete entry counts.
        """
        self._poll.unregister(worker.process.sentinel)
        status = worker.segment.status()
        for frame, num_entries, slot in worker.segment.frames(worker.num_frames + 1):
            yield from self._open(Record(worker.number, frame, num_entries, 0, *slot))
        if not worker.is_done:
            number = status.number if status.is_making else -1
            error = WorkerDied(f"{self.stage}: {worker.obituary()}")
            worker.is_done = True
            yield worker.number, Entry(number, Kind.FAILURE, error), 0


class _Tasks:
    """The way to the workers: two pipes and a segment, shared by all of them."""

    def __init__(self, stage: str, records: tuple[int, int], returns: tuple[int, int]) -> None:
        records_end, self.records = records
        self._returns, returns_end = returns
        self.segment = Segment.create(stage)
        self.ends = records_end, self.segment.fileno(), returns_end
        self.of_workers = [records_end, returns_end]

    def end(self, num_workers: int) -> None:
        """Tell every worker that nothing more comes."""
        with suppress(BrokenPipeError):  # all have ended
            for _ in range(num_workers):
                os.write(self.records, Record.end().pack())

    def outbox(self, max_entries: int, payload: Payload) -> Outbox:
        return Outbox(
            self.segment,
            self.records,
            Returns(self._returns),
            sender=0,
            max_entries=max_entries,
            encode=payload.encode,
        )
