"""What arrives, and what is left behind, when something goes wrong?

Method: each cell is a process of its own. It runs a pass without a fault first, so that what a
library starts once is not counted, and then takes 64 samples, of which number 20 is a fault. Told
are the samples before the fault, what ended the pass and how long the consumer had waited for it,
and, once the consumer has dropped everything, what is there that was not before: threads, child
processes (zombies among them), shared memory, and file descriptors. The consumer of "sleeps, and
the loop is left" takes 20 samples and leaves; told is how long that took. What has not come to an
end `LIMIT_S` after the pass without a fault is killed, and run once more. gpufeed, torch and
multiprocessing run here; `QUOTED` holds what was measured of others in the same way, elsewhere.

Not measured: speed, and faults of two samples at once.

Command: ``python benchmarks faults``

Last result: ``benchmarks/results/faults-*.json``.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gpufeed as gf
from gpufeed import reader as rd

NUM, AT = 64, 20
TIMEOUT_S = 1.0
LIMIT_S = 15.0
HUGE_NBYTES = 64 << 20


class BrokenError(Exception):
    """What the user's own code raises here."""


def _raises() -> Any:
    raise BrokenError(AT)


def _is_killed() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _crashes() -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _exits() -> Any:
    os._exit(3)


def _sleeps() -> Any:
    threading.Event().wait()


def _is_huge() -> Any:
    return np.ones(HUGE_NBYTES, np.uint8)


def _is_none() -> Any:
    return None


def _is_a_word() -> Any:
    return "a word"


def _is_no_iterable() -> Any:
    return 5


class Fault(NamedTuple):
    """A row: what goes wrong at sample `AT`, and who is told.

    Attributes:
        make: Called instead of making the sample.
        where: "sample", "call" (the reader fails when it is called) or "iterable" (it returns
            something else).
        timeout_s: Given to the stage.
        is_left: Whether the consumer leaves before the fault.
        is_fed: Whether a feeder reads the stage, in batches of 4.
        needs_process: Whether it would end the whole program where there are only threads.
    """

    make: Callable[[], Any]
    where: str = "sample"
    timeout_s: float | None = None
    is_left: bool = False
    is_fed: bool = False
    needs_process: bool = False


FAULTS = {
    "raises": Fault(_raises),
    "killed by SIGKILL": Fault(_is_killed, needs_process=True),
    "killed by SIGSEGV": Fault(_crashes, needs_process=True),
    "os._exit(3)": Fault(_exits, needs_process=True),
    "sleeps for ever, timeout 1 s": Fault(_sleeps, timeout_s=TIMEOUT_S),
    "sleeps for ever, loop is left": Fault(_sleeps, is_left=True),
    "sample of 64 MiB": Fault(_is_huge),
    "sample is None": Fault(_is_none),
    "wrong dtype, to a feeder": Fault(_is_a_word, is_fed=True),
    "reader returns no iterable": Fault(_is_no_iterable, where="iterable"),
    "reader raises when called": Fault(_raises, where="call"),
}


def _sample(fault: Fault | None, number: int) -> Any:
    if fault is not None and fault.where == "sample" and number == AT:
        return fault.make()
    return number


def _read(fault: Fault | None) -> Iterable[Any]:
    """The reader with the fault, for stages that read."""
    if fault is not None and fault.where != "sample":
        return fault.make()  # type: ignore[no-any-return]
    return map(partial(_sample, fault), range(NUM))


def _numbers(fault: Fault | None) -> Iterable[int]:
    """The reader without it, for stages that map; but for faults of readers."""
    return _read(fault) if fault is not None and fault.where != "sample" else range(NUM)


def _xmap(fault: Fault | None, *, processes: bool) -> Any:
    return rd.xmap_readers(
        partial(_sample, fault),
        partial(_numbers, fault),
        2,
        8,
        order=True,
        processes=processes,
        timeout_s=None if fault is None else fault.timeout_s,
    )


def _read_in(stage: Callable[..., Any], fault: Fault | None) -> Any:
    return stage(partial(_read, fault), timeout_s=None if fault is None else fault.timeout_s)


def _torch(fault: Fault | None) -> Any:
    import torch

    class Mapped(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return NUM

        def __getitem__(self, number: int) -> Any:
            return _sample(fault, number)

    class Read(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return _read(fault)

    return torch.utils.data.DataLoader(
        Mapped() if fault is None or fault.where == "sample" else Read(),
        batch_size=4 if fault is not None and fault.is_fed else None,
        num_workers=2,
        timeout=0 if fault is None else fault.timeout_s or 0,
    )


class _PoolImap:
    """``multiprocessing.Pool.imap``, as one would write it by hand."""

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault
        self._timeout_s = None if fault is None else fault.timeout_s

    def __iter__(self) -> Iterator[Any]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            samples = pool.imap(partial(_sample, self._fault), _numbers(self._fault))
            while True:
                try:
                    yield samples.next(self._timeout_s)
                except StopIteration:
                    return


STAGES: dict[str, Callable[[Fault | None], Any]] = {
    "xmap_readers, threads": partial(_xmap, processes=False),
    "xmap_readers, processes": partial(_xmap, processes=True),
    "isolate": partial(_read_in, rd.isolate),
    "multiprocess_reader": partial(
        _read_in, lambda reader, timeout_s: rd.multiprocess_reader([reader], timeout_s=timeout_s)
    ),
    "torch DataLoader": _torch,
    "Pool.imap": _PoolImap,
}
PEERS = ("torch DataLoader", "Pool.imap")
NO_FEEDER = "Pool.imap"  # which makes no batches

# Measured in the same way (64 samples, fault at number 20, on two cores) and killed after 25 s.
QUOTED = {
    "Paddle 3.3.1, mapper or buffered reader raises": "blocked for ever (killed after 5 s)",
    "Paddle 3.3.1, xmap_readers left early 20 times": "100 threads left",
    "torchdata.nodes 0.11, raises": "the error, 0.03 s",
    "torchdata.nodes 0.11, process killed by SIGKILL": "blocked at 25 s",
    "SPDL 0.8, stage raises": "ends as if complete, with 63 samples",
    "SPDL 0.8, process killed by SIGKILL": "ends as if complete, with 26 samples",
    "Grain 0.2.18, raises": "the error, 0.8 s",
    "Grain 0.2.18, process killed by SIGKILL": "RuntimeError that names exit code -9, 1.2 s",
    "Grain 0.2.18, main process ended by SIGTERM": "66 shared-memory segments left",
}


def _feeds(stage: Any, name: str) -> Any:
    """A stage's samples as training gets them: fields checked and collated."""
    if name in PEERS:
        return stage
    feeder = gf.DataFeeder([gf.data("x", [1], dtype="int64")], place=gf.CPUPlace())
    return feeder.decorate_reader(gf.batch(stage, 4), multi_devices=False)


def run_cell(stage: str, row: str) -> dict[str, Any]:
    """Run one cell in this process; return what became of it."""
    fault = FAULTS[row]
    for _ in _consumed(stage, None if not fault.is_fed else Fault(int, is_fed=True)):
        pass
    gc.collect()
    before = _present()
    print("ready", flush=True)
    told: dict[str, Any] = {"num_before": 0, "error": None, "message": ""}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        told |= _outcome(stage, fault)
        gc.collect()
    told["warnings"] = [str(warning.message) for warning in warned]
    now = _present()
    told["left"] = {kind: n - before[kind] for kind, n in now.items() if n > before[kind]}
    return told


def _consumed(stage: str, fault: Fault | None) -> Any:
    samples = STAGES[stage](fault)
    return _feeds(samples, stage) if fault is not None and fault.is_fed else samples


def _outcome(stage: str, fault: Fault) -> dict[str, Any]:
    samples = iter(_consumed(stage, fault))
    num, error, message = 0, None, ""
    begin = time.perf_counter()
    try:
        for _ in islice(samples, AT if fault.is_left else None):
            num += 1
            begin = time.perf_counter()
    except Exception as raised:  # noqa: BLE001 - what is asked for
        # The first line: further ones are another process's traceback, with the paths of a machine.
        error, message = type(raised).__name__, str(raised).partition("\n")[0]
    waited_s = time.perf_counter() - begin
    del samples
    gc.collect()
    dropped_s = time.perf_counter() - begin
    told = {"num_before": num * (4 if fault.is_fed else 1), "error": error, "message": message}
    return told | {"waited_s": dropped_s if fault.is_left else waited_s}


def _present() -> dict[str, int]:
    """Count what a pass may leave behind in this process, and below it."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task").glob("*/children")
    pids = {int(pid) for file in children for pid in file.read_text().split()}
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
    return {
        "thread": threading.active_count(),
        "process": sum(state != "Z" for state in states),
        "zombie": states.count("Z"),
        "segment": len(list(Path("/dev/shm").iterdir())),
        "descriptor": len(os.listdir("/proc/self/fd")),
    }


def table(show: Callable[[str], None]) -> list[dict[str, Any]]:
    """Run every cell, show the table as Markdown, and return what it was made of."""
    stages = [name for name in STAGES if name != "torch DataLoader" or _has_torch()]
    rows = []
    show("| fault at sample 20 | " + " | ".join(stages) + " |")
    show("|---" * (len(stages) + 1) + "|")
    for row in FAULTS:
        cells = {stage: _run_again_if_blocked(stage, row) for stage in stages}
        rows.append({"fault": row, "cells": cells})
        show(f"| {row} | " + " | ".join(_text(cells[stage], row) for stage in stages) + " |")
    show(
        "\nEach cell: samples before, what ended the pass, how long the consumer had waited for it."
    )
    show("A thread that sleeps for ever in the user's own code ends when that call returns.")
    for stage, cell in rows[list(FAULTS).index("killed by SIGKILL")]["cells"].items():
        if cell is not None and cell.get("message"):
            show(f"- {stage}, killed by SIGKILL: `{cell['message']}`")
    show("\n| quoted, not run here | what came of it |\n|---|---|")
    for case, result in QUOTED.items():
        show(f"| {case} | {result} |")
    kept = [
        _keeps_promise(cell, FAULTS[row["fault"]])
        for row in rows
        for stage, cell in row["cells"].items()
        if stage not in PEERS and cell is not None
    ]
    show(f"\ngpufeed: {sum(kept)} of {len(kept)} cells end within 2 s, and leave nothing behind")
    return [*rows, {"quoted": QUOTED}]


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _run_again_if_blocked(stage: str, row: str) -> dict[str, Any] | None:
    """Return one cell; of two runs, the first having blocked, what became of the second."""
    cell = _run(stage, row)
    if cell is None or "blocked_s" not in cell:
        return cell
    again = _run(stage, row)
    return cell if again is None or "blocked_s" in again else again | {"blocked_before": True}


def _run(stage: str, row: str) -> dict[str, Any] | None:
    """Return one cell, from a process of its own; None where the row does not apply."""
    fault = FAULTS[row]
    if (fault.needs_process and stage.endswith("threads")) or (fault.is_fed and stage == NO_FEEDER):
        return None
    process = subprocess.Popen(
        [sys.executable, __file__, stage, row],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # what a library takes to import does not count against the limit
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"blocked_s": LIMIT_S}
    if process.returncode != 0:
        raise RuntimeError(f"{stage}, {row}: status {process.returncode}\n{err}")
    return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]


def _keeps_promise(cell: dict[str, Any], fault: Fault) -> bool:
    if "blocked_s" in cell or "blocked_before" in cell or cell["left"]:
        return False
    return cell["waited_s"] - (fault.timeout_s or 0) < 2


def _text(cell: dict[str, Any] | None, row: str) -> str:
    """Return a cell of the table."""
    if cell is None:
        return "-"
    if "blocked_s" in cell:
        return f"**blocked** at {cell['blocked_s']:g} s"
    num = cell["num_before"]
    end = "left" if FAULTS[row].is_left else cell["error"] or "ends"
    left = [f"{n} {kind}{'s' * (n > 1)}" for kind, n in cell["left"].items()]
    behind = f"; **leaves {', '.join(left)}**" if left else ""
    warned = "; warns" if cell["warnings"] else ""
    warned += "; blocked in another run" if "blocked_before" in cell else ""
    return f"{num}, {end}, {_time(cell['waited_s'])}{warned}{behind}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"


if __name__ == "__main__":
    print(json.dumps(run_cell(*sys.argv[1:])), flush=True)
    os._exit(0)  # a thread that sleeps for ever is not waited for
