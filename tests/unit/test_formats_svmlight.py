from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpufeed.errors import FormatError
from gpufeed.formats import Source
from gpufeed.formats.svmlight import read_svmlight


def read(tmp_path: Path, text: str, dim: int | None = None, **options: bool) -> list[Any]:
    path = tmp_path / "a.svm"
    path.write_text(text)
    return list(read_svmlight(Source(str(path)), dim, **options))


def test_indices_count_from_zero_and_values_are_float32(tmp_path: Path) -> None:
    [((indices, values), label)] = read(tmp_path, "1 1:0.5 3:-2e3 7:1\n", dim=7)

    assert indices.tolist() == [0, 2, 6]
    assert indices.dtype == np.int64
    assert values.tolist() == [0.5, -2000.0, 1.0]
    assert values.dtype == np.float32
    assert label == 1


def test_binary_rows_are_indices_alone(tmp_path: Path) -> None:
    samples = read(tmp_path, "-1 3:1 11:1\n+1 2:1.0\n", dim=11, binary=True)

    assert [(row.tolist(), label) for row, label in samples] == [([2, 10], -1), ([1], 1)]


def test_zero_based_files_keep_their_indices(tmp_path: Path) -> None:
    [((indices, _), _)] = read(tmp_path, "1 0:1 4:1", dim=5, zero_based=True)

    assert indices.tolist() == [0, 4]


def test_comments_blank_lines_and_rows_without_features(tmp_path: Path) -> None:
    samples = read(tmp_path, "# header\n\n  \n3 1:1 # a:b 2:x\r\n-0.5\n", dim=2)

    assert [(row[0].tolist(), label) for row, label in samples] == [([0], 3), ([], -0.5)]


def test_labels_are_integers_where_they_are_written_so(tmp_path: Path) -> None:
    labels = [label for _, label in read(tmp_path, "1\n+2\n-3\n4.0\n0.1\n1e300\n")]

    assert labels == [1, 2, -3, 4.0, 0.1, 1e300]
    assert [type(label) for label in labels] == [int, int, int, float, float, float]


def test_query_ids_are_read_or_left_out(tmp_path: Path) -> None:
    text = "2 qid:7 1:1\n1 1:1\n"

    assert [len(sample) for sample in read(tmp_path, text)] == [2, 2]
    assert [query for *_, query in read(tmp_path, text, query_id=True)] == [7, None]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("1 1:1 0:2", "0:2"),
        ("1 0:1 1:2", "0:1"),
        ("1 3:1 10:1 11:1", "11:1"),
        ("1 2:1 1:1", "1:1"),
        ("1 2:1 2:1", "2:1"),
        ("1 2:1 x:1 3:1", "x:1"),
        ("1 2:1 3:x", "3:x"),
        ("1 2:1 3", "3"),
        ("1 2:1 :3", ":3"),
        ("1 2:1 3:", "3:"),
        ("1 2:1 3:4:5", "3:4:5"),
        ("1 -1:1 3:1", "-1:1"),
        ("1 +1:1", "+1:1"),
        ("1 1_0:1", "1_0:1"),
        ("1 1:1_0", "1:1_0"),
        ("1 1:1e300", "1:1e300"),
        ("1 99999999999999999999:1", "99999999999999999999:1"),
    ],
)
def test_a_bad_feature_is_named(tmp_path: Path, line: str, got: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(tmp_path, f"1 1:1\n{line}\n", dim=10)

    assert str(caught.value) == (
        f"{tmp_path / 'a.svm'}, line 2: expected index:value with index >= 1 and <= 10, "
        f"above the one before, and value a float32, got '{got}'"
    )


@pytest.mark.parametrize("label", ["x", "1,2", "1_0", "1:1"])
def test_a_label_must_be_a_number(tmp_path: Path, label: str) -> None:
    with pytest.raises(FormatError, match=f"line 1: expected a number as label, got '{label}'"):
        read(tmp_path, f"{label} 1:1\n")


@pytest.mark.parametrize("query", ["qid:", "qid:x", "qid:+-3", "qid:1.5"])
def test_a_query_id_must_be_a_whole_number(tmp_path: Path, query: str) -> None:
    with pytest.raises(FormatError, match=r"line 1: expected qid:\(whole number\)"):
        read(tmp_path, f"1 {query} 1:1\n")


def test_a_value_other_than_one_does_not_become_binary(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"and value 1, got '2:0.5'"):
        read(tmp_path, "1 1:1 2:0.5\n", binary=True)


def test_without_dim_indices_are_bounded_by_int64_alone(tmp_path: Path) -> None:
    [((indices, _), _)] = read(tmp_path, f"1 {2**63 - 1}:1")

    assert indices.tolist() == [2**63 - 2]


def test_samples_before_the_bad_line_arrive(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("1 1:1\n2 2:1\n3 zebra\n")
    samples = read_svmlight(Source(str(path)))

    assert [next(samples)[1], next(samples)[1]] == [1, 2]
    with pytest.raises(FormatError, match=r"line 3: .* got 'zebra'"):
        next(samples)


def test_an_untypable_word_is_shown_escaped_and_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(b"1 \xff" + b"9" * 5000 + b":1\n")

    with pytest.raises(FormatError, match=r"got '\\xff9{59}'$"):
        list(read_svmlight(Source(str(path))))


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 5000])
def test_numbers_beyond_floats_are_refused_and_not_read_as_infinite(
    tmp_path: Path, number: str
) -> None:
    with pytest.raises(FormatError, match=", and value a float32, got '1:"):
        read(tmp_path, f"1 1:{number} 2:1\n")
    with pytest.raises(FormatError, match="line 1: expected a number as label, got '"):
        read(tmp_path, f"{number} 1:1\n")


def test_infinity_is_read_where_it_is_written(tmp_path: Path) -> None:
    [((_, values), label)] = read(tmp_path, "-Infinity 1:inf 2:1\n")

    assert (values.tolist(), label) == ([np.inf, 1.0], -np.inf)
