"""Worker processes: plain subprocesses that map or read, and shared memory between them and us.

    parent                                                      worker
    Outbox ──> frames in the parent's segment ──> pipe "tasks" ──> Inbox ──> mapper
    Inbox <── pipe "results" <── frames in the worker's segment <── Outbox <──┘

`segment` is the memory, `frames` what is written into it, `records` what is told of them, `boxes`
the two ends of the way, `payload` what a worker is given to run, `worker` the worker, `process`
what its parent sees of it, `interrupts` how it starts whole or not at all, `ending` what is learnt
of its end, `pool` all workers of a pass, `standby` the processes between two passes, and
`surroundings` what they must not have missed there.

A pipe of records, each smaller than what the system writes at once, is queue, lock and semaphore in
one: any number of workers may read one queue of tasks, and a worker that is killed in the middle of
anything leaves no lock behind.

Nothing is imported here, and a worker imports none of NumPy, `gpufeed.device` and `gpufeed.reader`
unless what it runs does: that is most of the time it would take to start.
"""

from __future__ import annotations
