"""A script that PaddlePaddle 1.8.5 has run prints the same here, line for line, once ported.

It goes through batches, reader decorators, LoD tensors and feeders, on random input.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.porting import ported

import gpufeed as gf

SCRIPT = Path(__file__).parents[1] / "support/reference_script.py"
PRINTED = SCRIPT.with_suffix(".txt")
INTERPRETER = os.environ.get("GPUFEED_REFERENCE_PYTHON")


def test_it_prints_the_same(capsys, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    script = ported(SCRIPT.read_text(encoding="utf-8"))
    with gf.program_guard(gf.Program(), gf.Program()):
        exec(compile(script, str(SCRIPT), "exec"), {"__name__": "__main__"})
    lines, expected = capsys.readouterr().out.splitlines(), PRINTED.read_text().splitlines()
    assert len(expected) > 1000
    for number, (line, wanted) in enumerate(zip(lines, expected, strict=False), 1):
        assert line == wanted, f"line {number}"
    assert len(lines) == len(expected)


@pytest.mark.skipif(not INTERPRETER, reason="GPUFEED_REFERENCE_PYTHON names no interpreter")
def test_paddlepaddle_itself_prints_what_is_recorded():
    version = "import paddle; print(paddle.__version__)"
    if not _run("-c", version).startswith("1."):
        pytest.skip("the script is for PaddlePaddle 1.x")
    assert _run(str(SCRIPT)) == PRINTED.read_text()


def _run(*arguments):
    command = [INTERPRETER, "-W", "ignore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
