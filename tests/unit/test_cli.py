from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from gpufeed import cli

REPOSITORY = Path(__file__).parents[2]


def test_info_names_the_extras_that_are_missing(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    assert cli.main(["info"]) == 0
    said = capsys.readouterr().out
    assert "virtual devices: 0" in said
    assert "not installed: pip install 'gpufeed[arrow]'" in said
    assert "gpufeed[scipy]" not in said


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
