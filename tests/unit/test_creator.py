from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpufeed import creator, formats
from gpufeed.errors import FieldError, FormatError, MissingFile, ReaderError
from gpufeed.formats.csv import read_csv
from gpufeed.reader.base import Reader


def idx_vector(*values: int) -> bytes:
    return b"\0\0\x08\x01" + struct.pack(">I", len(values)) + bytes(values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"4\n5\n"))
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1 3:1\n")
    (tmp_path / "a.idx").write_bytes(idx_vector(7, 8, 9))
    (tmp_path / "b.idx").write_bytes(idx_vector(1, 2, 3))
    return tmp_path


def test_np_array_gives_rows_as_views() -> None:
    array = np.arange(6).reshape(3, 2)

    rows = list(creator.np_array(array)())

    assert [row.tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]
    assert all(np.shares_memory(row, array) for row in rows)


def test_np_array_of_a_vector_gives_scalars() -> None:
    assert [type(item) for item in creator.np_array([1.5, 2.5])()] == [np.float64] * 2


def test_np_array_needs_an_axis() -> None:
    with pytest.raises(FieldError, match=r"np_array.x must have a first axis"):
        creator.np_array(5)


def test_every_pass_reads_afresh(folder: Path) -> None:
    reader = creator.text_file(folder / "a.txt")

    assert list(reader()) == list(reader()) == ["1", "2", "3"]


def test_files_follow_each_other(folder: Path) -> None:
    both = [folder / "b.txt.gz", folder / "a.txt"]

    assert list(creator.text_file(both)()) == ["4", "5", "1", "2", "3"]
    assert list(creator.text_file(str(folder / "*.txt*"))()) == ["1", "2", "3", "4", "5"]


def test_csv(folder: Path) -> None:
    reader = creator.csv(folder / "a.csv", ["y", "x"], {"y": "int64"})

    assert list(reader()) == [(2, "1"), (4, "3")]


def test_svmlight(folder: Path) -> None:
    binary = creator.svmlight(folder / "a.svm", 3, binary=True)
    full = creator.svmlight(folder / "a.svm", 3)

    assert [(row.tolist(), label) for row, label in binary()] == [([0], 1), ([1, 2], -1)]
    assert [row[1].tolist() for row, _ in full()] == [[1.0], [1.0, 1.0]]


@pytest.mark.parametrize("dim", [0, -1, 1.5, "12", True])
def test_svmlight_dim_is_checked_at_once(dim: Any) -> None:
    for make in (creator.svmlight, creator.open):
        with pytest.raises(FieldError, match=r"svmlight.dim must be a whole number >= 1, got"):
            make("a.svm", dim=dim)


def test_csv_options_are_checked_at_once() -> None:
    for make in (creator.csv, creator.open):
        with pytest.raises(FieldError, match=r"csv.delimiter must be one character, got 'ab'"):
            make("a.csv", delimiter="ab")
        with pytest.raises(FieldError, match=r"csv.dtypes must be"):
            make("a.csv", dtypes={"x": "complex64"})


def test_open_refuses_options_that_the_format_does_not_have() -> None:
    with pytest.raises(TypeError, match="columns"):
        creator.open("a.svm", columns=["x"])


def test_idx_alone_gives_items_and_together_tuples(folder: Path) -> None:
    assert list(creator.idx(folder / "a.idx")()) == [7, 8, 9]
    assert list(creator.idx(folder / "a.idx", folder / "b.idx")()) == [(7, 1), (8, 2), (9, 3)]


def test_idx_files_side_by_side_hold_equally_many_items(folder: Path) -> None:
    (folder / "b.idx").write_bytes(idx_vector(1, 2))

    with pytest.raises(FormatError, match=r"equally many items, got .*a.idx: 3, .*b.idx: 2"):
        list(creator.idx(folder / "a.idx", folder / "b.idx")())


def test_idx_files_side_by_side_are_all_checked_to_their_end(folder: Path) -> None:
    (folder / "b.idx.gz").write_bytes(gzip.compress(idx_vector(1, 2, 3) + b"more"))

    with pytest.raises(FormatError, match=r"b.idx.gz, byte 11: expected the end of the file"):
        list(creator.idx(folder / "a.idx", folder / "b.idx.gz")())


def test_an_array_must_be_one() -> None:
    with pytest.raises(FieldError, match=r"np_array.x must be an array, got \[\[1\], \[1, 2\]\]: "):
        creator.np_array([[1], [1, 2]])


def test_idx_needs_a_path() -> None:
    with pytest.raises(FieldError, match=r"idx.paths must be a path or a list of one or more"):
        creator.idx()


def test_open_finds_the_format(folder: Path) -> None:
    assert list(creator.open(folder / "a.txt")()) == ["1", "2", "3"]
    assert list(creator.open(f"text:{folder}/a.csv")()) == ["x,y", "1,2", "3,4"]
    assert list(creator.open(f"{folder}/*.idx")()) == [7, 8, 9, 1, 2, 3]
    assert list(creator.open([folder / "a.csv"], columns=["x"])()) == [("1",), ("3",)]
    assert len(list(creator.open(f"svmlight:{folder}/a.*vm", dim=3, binary=True)())) == 2


def test_open_refuses_unknown_formats_at_once() -> None:
    with pytest.raises(FormatError, match="unknown format"):
        creator.open("no-such-thing")


def test_registered_formats_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_formats", dict(formats._formats))

    def read_bytes(source: formats.Source, *, size: int) -> Iterable[bytes]:
        with source.open() as stream:
            while block := stream.read(size):
                yield block

    formats.register("blocks", read_bytes, endings=[".bin"])

    assert list(creator.open(f"blocks:{folder}/b.txt.gz", size=3)()) == [b"4\n5", b"\n"]


def every_reader(folder: Path) -> dict[str, Reader[Any]]:
    texts = [folder / "a.txt", folder / "b.txt.gz"]
    return {
        "np_array": creator.np_array([1, 2, 3]),
        "text_file": creator.text_file(texts),
        "csv": creator.csv([folder / "a.csv", folder / "a.csv"]),
        "idx": creator.idx(folder / "a.idx"),
        "idx pair": creator.idx(folder / "a.idx", folder / "b.idx"),
        "idx files": creator.open(f"idx:{folder}/*.idx"),
    }


@pytest.mark.parametrize("name", ["np_array", "text_file", "csv", "idx", "idx pair", "idx files"])
def test_skipping_equals_draining(folder: Path, name: str) -> None:
    reader = every_reader(folder)[name]
    samples = list(reader())

    for skip in range(len(samples) + 2):
        assert list(reader.open(0, skip)) == samples[skip:]


def test_a_whole_idx_file_is_skipped_by_its_header_alone(folder: Path) -> None:
    reader = creator.open([f"idx:{folder}/a.idx", f"idx:{folder}/b.idx"])

    assert next(iter(reader.open(0, 4))) == 2


@pytest.mark.parametrize("name", ["text_file", "csv", "svmlight", "idx", "open"])
def test_a_missing_file_is_met_when_iterated(name: str, tmp_path: Path) -> None:
    make = getattr(creator, name)
    path = tmp_path / "none"
    reader = make(f"text:{path}") if name == "open" else make(path)

    with pytest.raises(MissingFile, match=f"^{path}: no such file$"):
        list(reader())


@pytest.mark.parametrize("name", ["text_file", "csv", "svmlight", "idx"])
def test_an_empty_file_is_a_format_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()

    with pytest.raises(FormatError, match=f"^{path}: expected data, got an empty file$"):
        list(getattr(creator, name)(path)())


def test_an_abandoned_pass_closes_its_file(folder: Path) -> None:
    samples = creator.text_file(folder / "a.txt")()

    assert list(islice(samples, 1)) == ["1"]
    del samples  # an open file would be a ResourceWarning, which is an error here


def test_a_pipeline_shows_its_files() -> None:
    assert repr(creator.text_file("a.txt")) == "text_file(paths=['a.txt'], options={})"
    assert repr(creator.np_array([1.5])) == "np_array(shape=(1,), dtype='float64')"


def test_a_state_resumes_and_belongs_to_its_files(folder: Path) -> None:
    reader = creator.text_file(folder / "a.txt")
    assert next(reader()) == "1"
    state = reader.state_dict()

    resumed = creator.text_file(folder / "a.txt")
    resumed.load_state_dict(state)

    assert list(resumed()) == ["2", "3"]
    with pytest.raises(ReaderError):
        creator.text_file(folder / "b.txt.gz").load_state_dict(state)


def test_states_know_options_by_name_and_not_by_address(folder: Path) -> None:
    formats.register("columns", lambda source, pick: map(pick, read_csv(source)))
    path = f"columns:{folder / 'a.csv'}"

    assert "pick': 'builtins.len'" in creator.open(path, pick=len).identity()
    assert "pick': 'builtins.str.split'" in creator.open(path, pick=str.split).identity()
    assert "0x" not in creator.open(path, pick=lambda row: row[0]).identity()
    assert "0x" not in creator.open(path, pick=partial(max, default=0)).identity()


@pytest.mark.parametrize(
    ("dtypes", "same"),
    [
        ("int32", np.int32),
        ("int32", np.dtype("<i4")),
        ("float64", float),
        ({"x": "int32", "y": "str"}, {"x": np.int32, "y": str}),
    ],
)
def test_states_take_every_spelling_of_a_dtype(folder: Path, dtypes: Any, same: Any) -> None:
    state = creator.csv(folder / "a.csv", dtypes=dtypes).state_dict()

    again = creator.csv(folder / "a.csv", dtypes=same)
    again.load_state_dict(state)
    assert again.state_dict() == state
