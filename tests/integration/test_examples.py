"""The examples: each runs by itself, learns, and is a page long."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import gpufeed as gf
import gpufeed.examples

DATA = Path(__file__).parents[2] / "../shared/data"
FOLDER = Path(gpufeed.examples.__file__).parent

# What each prints of every pass.
EXAMPLES = {
    "ads": ["loss", "accuracy"],
    "gan_inputs": ["loss"],
    "mnist": ["loss", "accuracy"],
    "multi_gpu": ["loss"],
    "open_files": ["loss"],
    "provider_mnist": ["loss", "accuracy"],
    "provider_sentiment": ["loss", "accuracy"],
    "sentiment": ["accuracy"],
}


def run(name, *argv):
    """Run an example in programs of its own."""
    with gf.program_guard(gf.Program(), gf.Program()):
        importlib.import_module(f"gpufeed.examples.{name}").main(list(argv))


def printed(output, what):
    return [float(found) for found in re.findall(rf"\b{what} (\d+\.\d+)", output)]


# "present" is the first device there is: a GPU, or without one the host.
@pytest.mark.parametrize("devices", ["present", 2])
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_learns(name, devices, capsys):
    with nullcontext() if devices == "present" else gf.virtual_devices(devices):
        run(name)
    output = capsys.readouterr().out
    assert "made-up files; --data DIR" in output
    if "loss" in EXAMPLES[name]:
        first, *_, last = printed(output, "loss")
        assert last < first / 1.3
    if "accuracy" in EXAMPLES[name]:
        assert printed(output, "accuracy")[-1] > 80


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}")
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_reads_real_files(name, capsys):
    with gf.virtual_devices(2):
        run(name, "--data", str(DATA), "--passes", "1", "--batch-size", "256")
    output = capsys.readouterr().out
    assert "made-up" not in output
    found = printed(output, "accuracy")
    assert all(accuracy > 55 for accuracy in found)
    assert found or printed(output, "loss")


def test_it_is_run_as_a_module(tmp_path):
    environment = {**os.environ, "GPUFEED_VIRTUAL_DEVICES": "2"}
    command = [sys.executable, "-W", "error", "-m", "gpufeed.examples.multi_gpu", "--passes", "1"]
    done = subprocess.run(
        command, env=environment, cwd=FOLDER.parents[1], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "training on cuda:0, cuda:1" in done.stdout


@pytest.mark.parametrize("option", ["--passes", "--batch-size"])
def test_counts_are_positive(option, capsys):
    with pytest.raises(SystemExit):
        run("open_files", option, "0")
    assert f"argument {option}: must be a whole number >= 1, got '0'" in capsys.readouterr().err


def test_they_are_listed():
    command = [sys.executable, "-W", "error", "-m", "gpufeed.examples"]
    done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"    {name} " in done.stdout for name in EXAMPLES)


def test_each_is_a_page_long_and_listed():
    tutorials = set()
    for path in FOLDER.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' in text:
            tutorials.add(path.stem)
            assert f"python -m gpufeed.examples.{path.stem}" in text
            assert len(text.splitlines()) <= 80, path
    assert tutorials == set(EXAMPLES)
    listed = re.findall(r"^    (\w+)  ", gpufeed.examples.__doc__, flags=re.M)
    assert set(listed) == tutorials


def test_a_folder_without_the_files_is_named(tmp_path):
    with pytest.raises(gf.FormatError, match=f"{tmp_path}/mnist/t10k-images-idx3-ubyte: no such"):
        run("mnist", "--data", str(tmp_path))
