from __future__ import annotations

from pathlib import Path

import pytest
from support.compressed import COMPRESS
from support.recordio import chunk

from gpufeed.errors import FormatError, MissingFile
from gpufeed.inspection import inspect_files


def test_a_recordio_file_in_a_few_lines(tmp_path: Path) -> None:
    content = chunk(b"abc", b"") + chunk(b"x" * 1000, dialect="go", compressor="gzip")
    (tmp_path / "a.rec").write_bytes(content)

    (report,) = inspect_files(tmp_path / "a.rec")

    stored = len(content) - 40
    assert str(report).splitlines() == [
        f"{tmp_path / 'a.rec'}: recordio, {len(content)} bytes",
        "  chunks: 1 (fluid, none); 1 (go, gzip)",
        "  records: 3",
        "  bytes a record: 0 to 1,000",
        f"  bytes in all: 1,003, stored in {stored}",
        "  damage: none",
    ]


def test_damage_is_told_and_gone_behind(tmp_path: Path) -> None:
    content = chunk(b"a") + chunk(b"b", checksum=1) * 12 + chunk(b"c")
    (tmp_path / "a.rec").write_bytes(content)

    (report,) = inspect_files(tmp_path / "a.rec")

    assert report.facts["records"] == "2"
    assert report.num_faults == 12
    lines = str(report).splitlines()
    assert "chunk 1, byte 45: expected a payload with CRC" in lines[-11]
    assert lines[-1] == "  damage: 2 more places"


def test_a_file_without_records(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(chunk())

    (report,) = inspect_files(tmp_path / "a.rec")

    assert report.facts == {"chunks": "1 (fluid, none)", "records": "0"}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_other_formats_are_read_to_their_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESS[suffix](b"name,age\nAda,36\nBob,1\n"))

    (report,) = inspect_files(str(path))

    assert ": csv" in report.title
    assert (f" in {suffix}," in report.title) == bool(suffix)
    assert report.facts == {"samples": "2", "first": "('Ada', '36')"}
    assert report.faults == []


def test_what_was_read_before_the_damage_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"name,age\nAda,36\nBob\n")

    (report,) = inspect_files(tmp_path / "a.csv")

    assert report.facts["samples"] == "1"
    assert len(report.faults) == report.num_faults == 1


def test_a_long_first_sample_is_one_short_line(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 " + " ".join(f"{i}:1" for i in range(1, 2000)))

    (report,) = inspect_files(tmp_path / "a.svm")

    assert "\n" not in report.facts["first"]
    assert len(report.facts["first"]) < 200


def test_a_tag_and_a_pattern_name_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"line\n")

    reports = inspect_files(f"text:{tmp_path}/*")

    titles = [f"{tmp_path / name}: text, 5 bytes" for name in "ab"]
    assert [report.title for report in reports] == titles


def test_missing_and_unknown_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        list(inspect_files(tmp_path / "none.rec"))
    with pytest.raises(FormatError, match="unknown format"):
        list(inspect_files(tmp_path / "none"))
