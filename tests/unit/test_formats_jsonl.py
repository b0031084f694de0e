from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gpufeed import creator
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Source
from gpufeed.formats.jsonl import read_jsonl

LINES = [{"text": "zwei Wörter", "label": 1}, [1, 2.5, None], "a\n", 7, {}]


def write(path: Path, text: str) -> Source:
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return Source(str(path))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_line_is_a_value(tmp_path: Path, name: str, ending: str) -> None:
    text = ending.join(json.dumps(line, ensure_ascii=False) for line in LINES)

    assert list(read_jsonl(write(tmp_path / name, text))) == LINES


def test_blank_lines_are_skipped_and_a_byte_order_mark_is_none_of_the_data(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", "\ufeff1\n\n  \n2\n\n")

    assert list(read_jsonl(source)) == [1, 2]


def test_what_python_writes_for_no_number_is_read(tmp_path: Path) -> None:
    nan, inf = read_jsonl(write(tmp_path / "a.jsonl", json.dumps(math.nan) + "\nInfinity\n"))

    assert math.isnan(nan)
    assert inf == math.inf


def test_columns_are_picked_in_order(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", '{"a": 1, "b": [2], "c": 3}\n{"b": null, "a": 4}\n')

    assert list(read_jsonl(source, ["b", "a"])) == [([2], 1), (None, 4)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a" 1}', r"line 2, column 6: expected JSON \(.*\), got '1}'"),
        ("nope", r"line 2, column 1: expected JSON \(Expecting value\), got 'nope'"),
        ("[1, 2", r"line 2, column [67]: expected JSON \(.*\), got ''"),
        ("1 2", r"line 2, column 3: expected JSON \(Extra data\), got '2'"),
        ("[" * 100_000, "line 2: maximum recursion depth"),
        ("1" * 5000, "line 2: Exceeds the limit"),
    ],
)
def test_damage_names_line_and_column(tmp_path: Path, line: str, message: str) -> None:
    samples = read_jsonl(write(tmp_path / "a.jsonl", f"1\n{line}\n3\n"))

    assert next(samples) == 1
    with pytest.raises(FormatError, match=f"a.jsonl, {message}"):
        next(samples)


@pytest.mark.parametrize(
    ("line", "got"), [('{"a": 1, "c": 2}', "keys a, c"), ("[1]", "list"), ("{}", "keys ")]
)
def test_a_line_without_a_column_is_named(tmp_path: Path, line: str, got: str) -> None:
    samples = read_jsonl(write(tmp_path / "a.jsonl", line), ["a", "b"])

    with pytest.raises(FormatError, match=rf"line 1: expected an object with a, b, got {got}$"):
        next(samples)


@pytest.mark.parametrize("columns", ["a", [], ["a", "a"], [1], {"a"}])
def test_columns_are_checked_at_once(columns: Any) -> None:
    for make in (creator.jsonl, creator.open):
        with pytest.raises(FieldError, match=r"jsonl.columns must be a list of different names"):
            make("a.jsonl", columns=columns)


def test_the_creator_reads_files_one_after_the_other(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"x": 1}\n{"x": 2}')
    write(tmp_path / "b.jsonl.gz", '{"x": 3}')

    for reader in (
        creator.jsonl(tmp_path / "*.jsonl*", ["x"]),
        creator.open(f"jsonl:{tmp_path}/*.jsonl*", columns=["x"]),
    ):
        assert list(reader()) == [(1,), (2,), (3,)]
    assert list(creator.jsonl(tmp_path / "b.jsonl.gz")()) == [{"x": 3}]
