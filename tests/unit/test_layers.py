"""The architecture, enforced: which module may import which, and what importing gpufeed may cost.

Imports are read from the source, those inside functions and ``if TYPE_CHECKING`` included.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

# Bottom up, and within a layer from left to right: an entry may import what stands before it. An
# entry is a module, or a package with all of it that has no entry of its own.
LAYERS = {
    "base": ["errors", "checks", "places", "lod"],
    "kernels": ["kernels"],
    "device": ["device", "workers"],
    "data": [
        *(
            "split",
            "interop",
            "ragged",
            "serialize",
            "sequences",
            "tensor",
            "sparse",
            "columnar",
            "create",
        ),
        *("variables", "feed"),
    ],
    "readers": ["compression", "reader", "formats", "creator", "dataset"],
    "feeding": [
        *("observe.stats", "observe.record"),
        *(
            "strict",
            "loose",
            "writing",
            "columns",
            "whole",
            "fields",
            "grouping",
            "layout",
            "narrowing",
            "sized",
            "planned",
            "collate",
            "isolation",
            "warm",
            "static",
            "feed_options",
            "prefetch",
            "feeder",
            "buffering",
        ),
    ],
    "faces": [
        "provider",
        "stateful",
        "layers",
        "executor",
        "observe",
        "training",
        "testing",
        "pytest_plugin",
        "demo",
        "convert",
        "inspection",
        "compat",
        "cli",
        "__main__",
    ],
    "root": [""],
    "users": ["examples"],  # written as users write, against the root
}
ENTRIES = [entry for layer in LAYERS.values() for entry in layer]


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name, the kernels through their symlink."""
    found = {}
    for folder, _, files in os.walk(REPOSITORY / "gpufeed", followlinks=True):
        for file in (file for file in files if file.endswith(".py")):
            path = Path(folder, file)
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> list[tuple[str, str, int]]:
    """Return (module, name or "", line) of every import in a file; relative ones start with "."."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            found += [(source, alias.name, node.lineno) for alias in node.names]
    return found


def own_imports(path: Path) -> list[tuple[str, int]]:
    """Return (module of this package, line) of every import in a file."""
    found = []
    for source, name, line in imports(path):
        if source.partition(".")[0] == "gpufeed":
            deeper = f"{source}.{name}"
            found.append((deeper if deeper in modules() else source, line))
    return found


def rank(module: str) -> int:
    """Return the place of the module's entry among all."""
    name = module.removeprefix("gpufeed").removeprefix(".")
    while name not in ENTRIES:
        if not name:
            break
        name = name.rpartition(".")[0]
    if not name and module != "gpufeed":
        raise LookupError(f"{module} stands in no layer: give it a place in LAYERS")
    return ENTRIES.index(name)


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_only_what_stands_below_or_to_its_left(module):
    wrong = [
        f"line {line}: {target}"
        for target, line in own_imports(modules()[module])
        if rank(target) > rank(module)
    ]
    assert not wrong


def test_every_entry_has_a_module():
    ranks = {rank(module) for module in modules()}
    assert [entry for i, entry in enumerate(ENTRIES) if i not in ranks] == []


def test_there_are_no_import_cycles():
    graph = {
        module: {target for target, _ in own_imports(path)} for module, path in modules().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_names_are_imported_from_where_they_live():
    wrong = [
        f"{module}, line {line}: from {source} import {name}"
        for module, path in modules().items()
        for source, name, line in imports(path)
        if (source == "gpufeed" and name) or source.startswith(".")
        if module != "gpufeed"
    ]
    assert not wrong


def test_cupy_is_imported_in_one_place_only():
    wrong = [
        f"{module}, line {line}"
        for module, path in modules().items()
        for source, _, line in imports(path)
        if source.partition(".")[0] in ("cupy", "cupyx")
        if not fnmatch(module, "gpufeed.device.cuda*")
    ]
    assert not wrong


def test_every_package_is_listed_in_pyproject():
    # One left out works in an editable install and is missing from the wheel.
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    assert packages == set(settings["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("module", ["gpufeed", "gpufeed.kernels"])
def test_importing_brings_in_no_heavy_library(module):
    heavy = {"cupy", "cupyx", "numba", "torch", "tqdm"}
    code = f"import sys, {module}; print({heavy} & {{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
