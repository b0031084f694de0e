"""What every benchmark here is measured with.

A benchmark is a file ``bench_<name>.py`` whose docstring holds its question, method, what it does
not measure, command and last result, and whose ``cases()`` yields `Case` objects. Of each case,

1. every contestant runs once, untimed (which compiles and warms what there is), and must give the
   same checksum as the first, or there is no measurement at all;
2. then all of them run in turn, round after round, in random order, so that a slow moment of the
   machine, and what the one before has left in the caches, falls on each of them and not on one;
3. reported are the median of the rounds, the distance between their quartiles, and, against the
   first contestant (the floor), the median of the per-round ratios and the ratio of the minima;
4. of contestants that say when each unit is done (`Case.is_stepped`), each unit is timed by itself.
   A unit's median and least time in all rounds are added up over the units, which leaves next to
   nothing of what other work on the machine does to single ones.
"""

from __future__ import annotations

import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

NUM_ROUNDS = 9


class Skip(Exception):  # noqa: N818 - a fact about the machine, not a failure
    """Raised by ``cases()`` where the machine lacks what the benchmark needs; says what."""


@dataclass(frozen=True)
class Timed:
    """What a contestant returns that has measured itself: by GPU events, or a part of its work.

    Attributes:
        us: How long it took.
        result: What it would have returned otherwise.
    """

    us: float
    result: Any


@dataclass(frozen=True)
class Case:
    """One comparison: the same work, done by several contestants.

    Attributes:
        name: Of the comparison.
        contestants: Name to a function that does the work; the first is the floor.
        num_units: How much work it is, in ``unit``.
        unit: What times are divided by: "sample", "batch", "MB".
        checksum: Of a contestant's result; equal for all contestants.
        finish: What is timed besides the contestant, given its result: draining an iterator.
        target: What is hoped for, in words, printed beside the numbers.
        is_stepped: Contestants take a function, and call it behind each unit.
        clock: What times are taken by, in seconds. ``time.process_time`` asks what all threads of
            the process cost, and less what else the machine had to do.
    """

    name: str
    contestants: Mapping[str, Callable[..., Any]]
    num_units: int
    unit: str
    checksum: Callable[[Any], object]
    finish: Callable[[Any], object] | None = None
    target: str = ""
    is_stepped: bool = False
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Measurement:
    """One contestant's result.

    Attributes:
        contestant: Its name.
        us_per_unit: Median of the rounds.
        iqr_us_per_unit: Distance of the quartiles of the rounds.
        over_floor_us: Median of what a round took longer than the floor's, per unit.
        ratio_to_floor: Median of the rounds' ratios to the floor's.
        ratio_of_minima: The least of the rounds over the least of the floor's.
        rounds_us: Every round, per unit.
    """

    contestant: str
    us_per_unit: float
    iqr_us_per_unit: float
    over_floor_us: float
    ratio_to_floor: float
    ratio_of_minima: float
    rounds_us: list[float]


def repeated(work: Callable[[], Any], times: int) -> Callable[[], Any]:
    """Return ``work`` done so many times, so that it finds the caches as it left them itself."""

    def run() -> Any:
        for _ in range(times - 1):
            work()
        return work()

    return run


def measure(case: Case, num_rounds: int = NUM_ROUNDS) -> list[Measurement]:
    """Check that all contestants do the same work, then time them in turn.

    Raises:
        AssertionError: Two contestants differ in their checksum.
    """
    _check(case)
    time_us = _time_each_us if case.is_stepped else _time_us
    rounds: dict[str, list[Any]] = {name: [] for name in case.contestants}
    draw = Random(0)
    for _ in range(num_rounds):
        for name in draw.sample(list(rounds), len(rounds)):
            rounds[name].append(time_us(case, case.contestants[name]))
    floor = next(iter(rounds.values()))
    summarize = _summarize_steps if case.is_stepped else _summarize
    return [summarize(name, times, floor) for name, times in rounds.items()]


def _check(case: Case) -> None:
    sums = {
        name: case.checksum(_untimed(contestant(*[_nothing] * case.is_stepped)))
        for name, contestant in case.contestants.items()
    }
    (first, expected), *others = sums.items()
    for name, got in others:
        if got != expected:
            raise AssertionError(
                f"{case.name}: {name} gives {got!r} where {first} gives {expected!r}"
            )


def _nothing() -> None:
    pass


def _untimed(result: Any) -> Any:
    return result.result if isinstance(result, Timed) else result


def _time_us(case: Case, contestant: Callable[[], Any]) -> float:
    gc.collect()
    begin = case.clock()
    result = contestant()
    if isinstance(result, Timed):
        return result.us / case.num_units
    if case.finish is not None:
        case.finish(result)
    del result  # results are dropped as in a training loop, and the time it takes is theirs
    return (case.clock() - begin) * 1e6 / case.num_units


def _time_each_us(case: Case, contestant: Callable[[Callable[[], None]], Any]) -> list[float]:
    """Return what each unit took, and last what came behind them."""
    gc.collect()
    clock = case.clock
    times = [clock()]
    contestant(lambda: times.append(clock()))
    times.append(clock())
    return [(end - begin) * 1e6 for begin, end in pairwise(times)]


def _summarize_steps(name: str, rounds: list[list[float]], floor: list[list[float]]) -> Measurement:
    """Say what a pass takes whose every unit takes its median, or its least, of all rounds."""
    num_units = len(rounds[0]) - 1
    usual, least, floor_usual, floor_least = (
        sum(map(choose, zip(*steps, strict=True))) / num_units
        for steps in (rounds, floor)
        for choose in (median, min)
    )
    means = [sum(steps) / num_units for steps in rounds]
    low, _, high = quantiles(means, n=4)
    return Measurement(
        contestant=name,
        us_per_unit=usual,
        iqr_us_per_unit=high - low,
        over_floor_us=usual - floor_usual,
        ratio_to_floor=usual / floor_usual,
        ratio_of_minima=least / floor_least,
        rounds_us=means,
    )


def _summarize(name: str, times: list[float], floor: list[float]) -> Measurement:
    low, _, high = quantiles(times, n=4)
    pairs = list(zip(times, floor, strict=True))
    return Measurement(
        contestant=name,
        us_per_unit=median(times),
        iqr_us_per_unit=high - low,
        over_floor_us=median(mine - base for mine, base in pairs),
        ratio_to_floor=median(mine / base for mine, base in pairs),
        ratio_of_minima=min(times) / min(floor),
        rounds_us=times,
    )


def report(case: Case, measurements: Iterable[Measurement]) -> str:
    """Return a table of one case."""
    head = f"{case.name}" + (f"  (target: {case.target})" if case.target else "")
    titles = f"{'us/' + case.unit:>12}{'spread':>10}{'- floor':>10}{'/ floor':>9}{'of minima':>11}"
    lines = [head, f"  {'':34}{titles}"]
    lines += [
        f"  {row.contestant:34}{row.us_per_unit:12.4g}{row.iqr_us_per_unit:10.2g}"
        f"{row.over_floor_us:10.3g}{row.ratio_to_floor:9.2f}{row.ratio_of_minima:11.2f}"
        for row in measurements
    ]
    return "\n".join(lines)


def as_json(case: Case, measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Return one case and what was measured, as JSON values."""
    return {
        "case": case.name,
        "unit": case.unit,
        "num_units": case.num_units,
        "target": case.target,
        "measurements": [asdict(row) for row in measurements],
    }


def environment() -> dict[str, Any]:
    """Return what the numbers depend on besides the code."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "num_cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "packages": {name: _version(name) for name in ("gpufeed", "numpy", "numba", "cupy")},
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
