"""The package root: every public name is there, found where it lives, and costs nothing unused."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpufeed


@pytest.mark.parametrize("name", gpufeed.__all__)
def test_every_public_name_is_there(name):
    assert getattr(gpufeed, name) is getattr(gpufeed, name)
    assert name in dir(gpufeed)


def test_names_are_sorted_and_listed_once():
    assert gpufeed.__all__ == sorted(set(gpufeed.__all__))


def test_type_checkers_see_the_names_that_run():
    """The imports for type checkers, name for name, are what `__getattr__` looks up."""
    tree = ast.parse(Path(gpufeed.__file__).read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in guarded.body for alias in node.names}
    run = {name: gpufeed._MODULE_OF.get(name, "gpufeed") for name in gpufeed.__all__}
    assert seen == run


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'gpufeed' has no attribute 'no_such_name'"):
        gpufeed.no_such_name  # noqa: B018 - raises


def test_the_root_alone_imports_nothing_of_its_own_and_no_numpy():
    code = "import sys, gpufeed; print([m for m in sys.modules if m.startswith('gpufeed.')])"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; assert 'numpy' not in sys.modules"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"
