"""Run the benchmarks: ``python benchmarks [name ...] [--json out.json]``.

A name is a file's, without ``bench_``; no name runs them all. ``name:GPU`` runs only those of its
cases whose own names begin so. What the machine cannot run is reported as skipped, and is no
failure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from harness import NUM_ROUNDS, Skip, as_json, environment, measure, report


def main() -> None:
    """Parse the command line, run, print and save."""
    names = sorted(path.stem.removeprefix("bench_") for path in _folder().glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="also write every round's time to this file")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="default %(default)s")
    arguments = parser.parse_args()
    wanted = dict(each.partition(":")[::2] for each in arguments.names or names)
    if unknown := set(wanted) - set(names):
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {names}")
    if arguments.rounds < 2:
        parser.error("--rounds must be at least 2, to have a spread")

    results: dict[str, Any] = {"environment": environment(), "benchmarks": {}}
    failed = []
    for name, only in wanted.items():
        try:
            results["benchmarks"][name] = _run(name, only, arguments.rounds)
        except Exception:  # noqa: BLE001 - said here, and by the exit code, when the others have run
            traceback.print_exc()
            failed.append(name)
        if arguments.json:  # each time, so that a run that is cut short leaves what it has
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _run(name: str, only: str, num_rounds: int) -> list[dict[str, Any]] | str:
    module = importlib.import_module(f"bench_{name}")
    print(f"== {name}: {(module.__doc__ or '').splitlines()[0]}")
    results = []
    try:
        if hasattr(
            module, "table"
        ):  # of what happens, where that is asked and not how long it takes
            return list(module.table(partial(print, flush=True)))
        for case in module.cases():
            if not case.name.startswith(only):
                continue
            measurements = measure(case, num_rounds)
            print(report(case, measurements), flush=True)
            results.append(as_json(case, measurements))
    except Skip as reason:
        print(f"skipped: {reason}")
        return results or f"skipped: {reason}"
    return results


def _folder() -> Path:
    return Path(__file__).parent


if __name__ == "__main__":
    main()
