from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Source
from gpufeed.formats.csv import read_csv

TABLE = "name,age,score\nAda,36,0.5\n\n'Bo',7,1e3\n"


def read(tmp_path: Path, text: str, *args: Any, **options: Any) -> list[tuple[Any, ...]]:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return list(read_csv(Source(str(path)), *args, **options))


def test_without_dtypes_fields_are_text(tmp_path: Path) -> None:
    assert read(tmp_path, TABLE) == [("Ada", "36", "0.5"), ("'Bo'", "7", "1e3")]


def test_columns_are_chosen_ordered_and_converted(tmp_path: Path) -> None:
    rows = read(tmp_path, TABLE, ["score", "age", 0], {"age": "int64", "score": "float32"})

    assert rows == [(0.5, 36, "Ada"), (1000.0, 7, "'Bo'")]


def test_one_dtype_serves_all_chosen_columns(tmp_path: Path) -> None:
    assert read(tmp_path, TABLE, ["age"], "int8") == [(36,), (7,)]


def test_without_header_columns_are_positions(tmp_path: Path) -> None:
    rows = read(tmp_path, "1\t2\n3\t4\n", [1], int, header=False, delimiter="\t")

    assert rows == [(2,), (4,)]


def test_quoted_fields_keep_delimiters_quotes_and_line_breaks(tmp_path: Path) -> None:
    rows = read(tmp_path, 'a,b\r\n"x,""y""\r\nz",2\r\n')

    assert rows == [('x,"y"\r\nz', "2")]


def test_bools(tmp_path: Path) -> None:
    rows = read(tmp_path, "0,1,True,false\n", dtypes=bool, header=False)

    assert rows == [(False, True, True, False)]


@pytest.mark.parametrize(
    ("row", "dtype", "message"),
    [
        ("1,x", "int64", r"line 3, column 'b': expected a whole number in \[.*\], got 'x'"),
        ("1,1.0", "int64", "expected a whole number"),
        ("1,1_0", "int64", "expected a whole number"),
        ("1,300", "uint8", r"expected a whole number in \[0, 255\], got '300'"),
        ("1,1_0", "float32", "expected a number that fits float32, got '1_0'"),
        ("1,", "float32", "expected a number that fits float32, got ''"),
        ("1,-1e99", "float32", "expected a number that fits float32, got '-1e99'"),
        ("1,1e400", "float64", "expected a number that fits float64, got '1e400'"),
        ("1,2", "bool", "expected 0, 1, true or false, got '2'"),
    ],
)
def test_a_field_that_does_not_convert(tmp_path: Path, row: str, dtype: str, message: str) -> None:
    with pytest.raises(FormatError, match=f"a.csv, .*{message}"):
        read(tmp_path, f"a,b\n1,1\n{row}\n", dtypes=dtype)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2,3\n", {}, "line 2: expected 2 fields, got 3"),
        ('a,b\n"1\n2', {}, "line 3: unexpected end of data"),
        ("a,b\n", {"columns": ["c"]}, "expected one column 'c', got columns a, b"),
        ("a,a\n", {"columns": ["a"]}, "expected one column 'a', got columns a, a"),
        ("a,b\n", {"columns": [2]}, "expected one column 2"),
    ],
)
def test_damage_and_missing_columns(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        read(tmp_path, text, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtypes": "complex64"}, "csv.dtypes must be of text, bool, integers or floats"),
        ({"dtypes": "no such"}, "csv.dtypes must be NumPy dtypes, got 'no such'"),
        ({"delimiter": "ab"}, "csv.delimiter must be one character, got 'ab'"),
        ({"delimiter": '"'}, "csv.delimiter must be one character, got '\"'"),
        ({"delimiter": "\n"}, r"csv.delimiter must be one character, got '\\n'"),
        ({"columns": "ab"}, "csv.columns must be a list of names, or of positions .*, got 'ab'"),
        ({"columns": []}, r"csv.columns must be a list .*, got \[\]"),
        ({"columns": [-1]}, r"csv.columns must be a list .*, got \[-1\]"),
        ({"columns": [True]}, r"csv.columns must be a list .*, got \[True\]"),
        ({"columns": 1}, "csv.columns must be a list .*, got 1"),
        ({"header": 0}, "csv.header must be True or False, got 0"),
        ({"header": ["x", "y"]}, "csv.header must be True or False, got "),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        read(tmp_path, "a\n", **options)


def test_infinity_is_read_where_it_is_written_and_the_largest_number_as_itself(
    tmp_path: Path,
) -> None:
    [row] = read(tmp_path, "-inf,Infinity,3.4028235e38\n", dtypes="float32", header=False)

    assert row == (-math.inf, math.inf, 3.4028235e38)
