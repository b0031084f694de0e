"""Draw what the benchmarks measured: ``python benchmarks/plots.py results.json FOLDER``.

One picture a case: a bar for each contestant's median, a line from its quickest round to its
slowest, and its ratio to the floor. Needs matplotlib (``pip install 'gpufeed[report]'``).
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def main() -> None:
    """Parse the command line and draw every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="that `python benchmarks --json` has written")
    parser.add_argument("folder", type=Path, help="for the pictures, PNG")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, cases in json.loads(arguments.results.read_text())["benchmarks"].items():
        measured = [case for case in cases if "measurements" in case]  # not what was skipped
        for case in measured:
            slug = re.sub(r"\W+", "-", f"{name} {case['case']}".lower()).strip("-")
            draw(case, arguments.folder / f"{slug}.png")


def draw(case: dict[str, Any], path: Path) -> None:
    """Draw one case into a file."""
    rows = case["measurements"][::-1]  # as the tables have them, the floor on top
    labels = [f"{row['contestant']}\n{row['ratio_to_floor']:.2f} of the floor" for row in rows]
    medians = [row["us_per_unit"] for row in rows]
    below = [row["us_per_unit"] - min(row["rounds_us"]) for row in rows]
    above = [max(row["rounds_us"]) - row["us_per_unit"] for row in rows]
    figure = Figure(figsize=(8, 1 + 0.6 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.barh(labels, medians, xerr=[below, above], color="#4878a8", ecolor="#444444")
    axes.set_xlabel(f"µs per {case['unit']}")
    axes.set_title(case["case"] + (f"\ntarget: {case['target']}" if case["target"] else ""))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
