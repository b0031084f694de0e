from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from gpufeed.errors import FieldError, FormatError, MissingFile
from gpufeed.formats import Source, locate, register, resolve

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def read(path: Path) -> bytes:
    with Source(str(path)).open() as stream:
        return stream.read()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_files_are_decompressed_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix.upper()}"
    path.write_bytes(COMPRESS[suffix](b"hello\n" * 1000))

    assert read(path) == b"hello\n" * 1000
    assert Source(str(path)).stem == str(tmp_path / "a")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b""))

    with pytest.raises(FormatError, match=f"a{suffix}: expected data, got an empty file"):
        read(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_damaged_compression_is_a_format_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    whole = COMPRESS[suffix](bytes(range(256)) * 1000)
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(FormatError, match=f"a{suffix} near byte [0-9]+: cannot be read"):
        read(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_plain_file_under_a_compressed_name_is_a_format_error(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"plain")

    with pytest.raises(FormatError, match=f"a{suffix} near byte"):
        read(path)


def test_a_missing_file_is_also_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="no such file") as caught:
        read(tmp_path / "none.txt")

    assert isinstance(caught.value, FormatError)
    assert isinstance(caught.value, FileNotFoundError)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be opened"):
        read(tmp_path)


def test_patterns_are_sorted_and_must_match(tmp_path: Path) -> None:
    for name in ["b.txt", "a.txt", "c.csv"]:
        (tmp_path / name).touch()

    found = [Path(source.path).name for source in locate(tmp_path / "*.txt")]

    assert found == ["a.txt", "b.txt"]
    with pytest.raises(MissingFile, match="no file matches"):
        locate(tmp_path / "*.svm")


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "a[1].txt"
    path.touch()

    assert locate(path) == [Source(str(path))]


@pytest.mark.parametrize(
    ("spec", "tag"),
    [
        ("a.txt", "text"),
        ("a.CSV.gz", "csv"),
        ("train-images-idx3-ubyte.gz", "idx"),
        ("a.libsvm", "svmlight"),
        ("svmlight:a9a", "svmlight"),
        ("text:c:/a.csv", "text"),
    ],
)
def test_formats_are_resolved_by_tag_or_ending(spec: str, tag: str) -> None:
    assert resolve(spec)[0].tag == tag


@pytest.mark.parametrize("spec", ["a9a", "a.parquet", "c:/a", "nosuch:a.txt", ""])
def test_unknown_formats_name_the_known_ones(spec: str) -> None:
    with pytest.raises(FormatError, match=r"unknown format.*text, csv, idx, svmlight"):
        resolve(spec)


@pytest.mark.parametrize("tag", ["", "a", "A1", "a b", "1a"])
def test_tags_are_checked(tag: str) -> None:
    with pytest.raises(FieldError, match=r"register.tag must be"):
        register(tag, iter)
