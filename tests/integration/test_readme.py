"""The README's Python blocks, run as doctests in one session, in order."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import gpufeed as gf

README = Path(__file__).parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


def test_there_are_blocks():
    assert len(blocks()) >= 3


def test_blocks_print_what_they_say():
    with gf.program_guard(gf.Program()):
        text = "\n".join(blocks())
        test = doctest.DocTestParser().get_doctest(text, {}, "README.md", str(README), 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        output: list[str] = []
        runner.run(test, out=output.append)
    if runner.failures:
        pytest.fail("".join(output))
