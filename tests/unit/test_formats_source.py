from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from support.compressed import COMPRESS

from gpufeed.errors import FieldError, FormatError, MissingFile
from gpufeed.formats import Source, locate, register, resolve
from gpufeed.formats.source import PIECE_NBYTES, SUFFIXES, read_up_to

PACKED = sorted(COMPRESS.keys() - {""})


def read(path: Path) -> bytes:
    with Source(str(path)).open() as stream:
        return stream.read()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_files_are_decompressed_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix.upper()}"
    path.write_bytes(COMPRESS[suffix](b"hello\n" * 1000))

    assert read(path) == b"hello\n" * 1000
    assert Source(str(path)).stem == str(tmp_path / "a")


@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_files_may_be_joined_end_to_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n"))

    assert read(path) == b"one\ntwo\n"


def test_every_suffix_is_tested() -> None:
    assert set(PACKED) == set(SUFFIXES)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b""))

    with pytest.raises(FormatError, match=f"a{suffix}: expected data, got an empty file"):
        read(path)


@pytest.mark.parametrize("suffix", PACKED)
def test_damaged_compression_is_a_format_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    whole = COMPRESS[suffix](bytes(range(256)) * 1000)
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(FormatError, match=f"a{suffix} near byte [0-9]+: cannot be read"):
        read(path)


@pytest.mark.parametrize("suffix", PACKED)
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


@pytest.mark.parametrize("suffix", COMPRESS)
def test_only_a_plain_file_is_measured(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b"hello"))

    with (source := Source(str(path))).open() as stream:
        assert stream.read(1) == b"h"
        assert source.measure(stream) == (None if suffix else 5)
        assert stream.read() == b"ello"


def test_a_pipe_is_read_and_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"hello",))
    writer.start()

    with (source := Source(str(path))).open() as stream:
        assert source.measure(stream) is None
        assert stream.read() == b"hello"
    writer.join()


@pytest.mark.parametrize("held", [0, 3, PIECE_NBYTES, PIECE_NBYTES + 1])
def test_read_up_to_stops_at_the_end(tmp_path: Path, held: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(held))

    with path.open("rb") as stream:
        assert read_up_to(stream, PIECE_NBYTES) == bytes(min(held, PIECE_NBYTES))
        assert read_up_to(stream, 1 << 40) == bytes(max(0, held - PIECE_NBYTES))


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
        ("a.csv.zst", "csv"),
        ("text:c:/a.csv", "text"),
        ("http://host/a.csv", "csv"),
        ("https://host/a.csv.gz?signature=b.txt", "csv"),
        ("text:s3://bucket/a", "text"),
        ("simplecache::s3://bucket/a.csv", "csv"),
    ],
)
def test_formats_are_resolved_by_tag_or_ending(spec: str, tag: str) -> None:
    assert resolve(spec)[0].tag == tag


@pytest.mark.parametrize("spec", ["a9a", "a.nosuch", "http://host/", "c:/a", "nosuch:a.txt", ""])
def test_unknown_formats_name_the_known_ones(spec: str) -> None:
    with pytest.raises(FormatError, match=r"unknown format.*text, csv, idx, svmlight"):
        resolve(spec)


@pytest.mark.parametrize("tag", ["", "a", "A1", "a b", "1a"])
def test_tags_are_checked(tag: str) -> None:
    with pytest.raises(FieldError, match=r"register.tag must be"):
        register(tag, iter)


def test_openers_and_endings_are_checked() -> None:
    with pytest.raises(TypeError, match=r"register.opener must be callable, got None"):
        register("broken", None)
    with pytest.raises(TypeError, match=r"register.check must be callable or None, got 3"):
        register("broken", iter, check=3)
    for endings in (".words", 5, [5], [""]):
        with pytest.raises(FieldError, match=r"register.endings must be a list of texts, got "):
            register("broken", iter, endings=endings)
    with pytest.raises(FormatError, match="unknown format"):
        resolve("broken:a.words")


def test_endings_are_found_in_any_case() -> None:
    register("shouting", iter, endings=[".LOUD"])
    assert resolve("a.LOUD.gz")[0].tag == resolve("b.loud")[0].tag == "shouting"


def test_a_path_that_no_system_has_is_told() -> None:
    with pytest.raises(FormatError, match="cannot be opened: embedded null"), Source("\0").open():
        pass
