"""The demo as a whole: which tasks, on which devices, and what is shown of them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from gpufeed.demo.tasks import NAMES, Task, make_task
from gpufeed.demo.train import Trainer
from gpufeed.device import cuda_places, num_cuda_devices, num_virtual_devices, virtual_devices
from gpufeed.errors import PlaceError
from gpufeed.places import CPUPlace, Place

__all__ = ["run"]


def run(
    *,
    folder: Path | None = None,
    num_devices: int = 1,
    num_passes: int = 3,
    batch_size: int = 128,
    seed: int = 0,
    model: str = "all",
) -> None:
    """Train and print.

    Args:
        folder: Holds ``mnist/``, ``rt-polarity/`` and ``a9a/``; None reads Python's own source.
        num_devices: That share each batch; virtual ones where there is no GPU.
        num_passes: Over the training samples.
        batch_size: Of the global batch.
        seed: Of weights and order.
        model: ``"images"``, ``"sentences"``, ``"census"`` or ``"all"``.

    Raises:
        FormatError: A file is missing or damaged.
        PlaceError: More devices than there are.
    """
    with contextlib.ExitStack() as stack:
        if num_devices > 1 and not (num_cuda_devices() or num_virtual_devices()):
            stack.enter_context(virtual_devices(num_devices))
        places = _places(num_devices)
        print(f"training on {', '.join(map(str, places))}, batch {batch_size}, seed {seed}")
        for name in NAMES if model == "all" else [model]:
            task = make_task(name, folder)
            if task is None:
                print(f"\n{name}: skipped; --data DIR brings the files")
            else:
                print(f"\n{name}: {task.title}")
                watched = sys.stderr.isatty()  # a bar in a log file is a line a tenth of a second
                trainer = Trainer(task, places, batch_size=batch_size, seed=seed, progress=watched)
                _train(task, trainer, num_passes)


def _places(num_devices: int) -> list[Place]:
    num_there = num_virtual_devices() or num_cuda_devices()
    if not num_there:
        return [CPUPlace()]
    if num_devices > num_there:
        raise PlaceError(f"--devices {num_devices}: there are {num_there}")
    return cuda_places(list(range(num_devices)))


def _train(task: Task, trainer: Trainer, num_passes: int) -> None:
    for number in range(1, num_passes + 1):
        learned, held_out = trainer.train(), trainer.evaluate()
        print(
            f"  pass {number}: loss {learned.loss:.4f}, "
            f"held-out loss {held_out.loss:.4f}, accuracy {held_out.accuracy:.1%}, "
            f"{learned.samples_per_s:,.0f} samples/s"
        )
    stats = trainer.stats()
    print(f"  guessing the most frequent class: {task.baseline():.1%}")
    print(
        f"  time: loop waited {stats.wait_s:.2f} s and computed {stats.compute_s:.2f} s; "
        f"behind it, {stats.read_s:.2f} s reading and {stats.stage_s:.2f} s collating"
    )
    print(f"  {stats.bottleneck}")
