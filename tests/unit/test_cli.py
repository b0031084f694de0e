from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpufeed import cli, creator

REPOSITORY = Path(__file__).parents[2]
NONE = ["--compressor", "none"]


def test_info_names_the_extras_that_are_missing(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    assert cli.main(["info"]) == 0
    said = capsys.readouterr().out
    assert "virtual devices: 0" in said
    assert re.search(r"CUDA devices: \d+$", said, re.MULTILINE)
    assert "not installed: pip install 'gpufeed[arrow]'" in said
    assert "gpufeed[scipy]" not in said


def test_info_can_compile_all_kernels(capsys, monkeypatch):
    warmed = []
    monkeypatch.setattr("gpufeed.warm.warm_all", lambda place: warmed.append(place) or 1.25)
    assert cli.main(["info", "--warm"]) == 0
    told = capsys.readouterr().out
    assert "kernels for cpu: compiled or loaded in 1.2 s" in told
    folder = Path(told.splitlines()[-1].removeprefix("kernels for cpu are kept in "))
    assert folder.is_dir()
    assert list(map(str, warmed)) == ["cpu"]
    monkeypatch.setattr("gpufeed.kernels.cpu.cache_folder", lambda: None)
    cli.main(["info", "--warm"])
    assert "are kept nowhere: no folder can be written, set NUMBA" in capsys.readouterr().out


def test_info_knows_each_extra_that_the_package_asks_for():
    asked = {"cuda13"}
    for path in (REPOSITORY / "gpufeed").rglob("*.py"):
        asked.update(re.findall(r'import_extra\("[\w.]+", "(\w+)"\)', path.read_text("utf-8")))
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert set(cli._EXTRAS) == asked
    assert set(cli._EXTRAS) <= set(settings["project"]["optional-dependencies"])


@pytest.mark.parametrize("arguments", [[], ["no-such"], ["demo", "--devices", "0"]])
def test_wrong_arguments_end_with_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_convert_and_inspect(tmp_path, capsys):
    source, target = tmp_path / "a.csv", tmp_path / "a.rec"
    source.write_text("name,age\nAda,36\n")

    assert cli.main(["convert", str(source), str(target), "--compressor", "gzip"]) == 0
    said = capsys.readouterr().out
    assert said == f"{target}: 1 records, pickles, to be read with allow_pickle=True\n"
    assert list(creator.recordio(target, allow_pickle=True)) == [("Ada", "36")]

    again = tmp_path / "b.rec"
    assert cli.main(["convert", f"recordio:{target}", str(again), "--compressor", "none"]) == 0
    assert capsys.readouterr().out == f"{again}: 1 records, bytes\n"

    assert cli.main(["inspect", str(tmp_path / "*.rec")]) == 0
    said = capsys.readouterr().out
    assert "chunks: 1 (fluid, gzip)" in said
    assert "chunks: 1 (fluid, none)" in said


def test_inspect_takes_what_a_shell_makes_of_a_pattern(tmp_path, capsys):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        path.write_text("name,age\nAda,36\n")
    assert cli.main(["inspect", *map(str, paths)]) == 0
    assert capsys.readouterr().out.count("samples: 1") == 2


def test_a_reader_of_the_output_may_leave():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-W", "error", "-m", "gpufeed", "info"]
    try:
        done = subprocess.run(command, cwd=REPOSITORY, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_inspect_tells_damage_by_its_exit_status(tmp_path, capsys):
    path = tmp_path / "a.rec"
    path.write_bytes(b"no chunk, no chunk, no chunk")

    assert cli.main(["inspect", str(path)]) == 1
    assert "damage: " in capsys.readouterr().out
    assert cli.main(["inspect", str(tmp_path / "none.rec")]) == 2
    assert "none.rec: no such file" in capsys.readouterr().err
    assert cli.main(["convert", str(tmp_path / "none.csv"), str(tmp_path / "b"), *NONE]) == 2
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("name", ["a.csv", "b.txt", "c.npz.gz"])
def test_convert_writes_no_records_into_a_file_of_another_format(tmp_path, capsys, name):
    source = tmp_path / "a.csv"
    source.write_text("name,age\nAda,36\n")

    assert cli.main(["convert", str(source), str(tmp_path / name), *NONE]) == 2
    assert f"{name} (of the format " in capsys.readouterr().err
    assert source.read_text() == "name,age\nAda,36\n"
    assert list(tmp_path.iterdir()) == [source]
