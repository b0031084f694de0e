"""Files of a pass: which rank reads them, what is left out of them, what a state knows of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpufeed import creator, formats
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats.csv import read_csv
from gpufeed.reader import Shard, Skip, chain, repeat


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in {"a": "01", "b": "234", "c": "5"}.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        np.save(tmp_path / f"{name}.npy", np.array([int(line) for line in lines]))
    return tmp_path


@pytest.fixture
def damaged(tmp_path: Path) -> dict[str, Path]:
    """Files of five samples, of which the second and the fourth are damaged."""
    contents = {
        "text": b"1\n\xff\n3\n\xfe\n5\n",
        "csv": b"x\n1\n2,2\n3\nfour\n5\n",
        "jsonl": b"1\n{\n3\n\xff\n5\n",
        "svmlight": b"1 1:1\n2 a:1\n3 1:1\n4 1\n5 1:1\n",
    }
    paths = {}
    for tag, content in contents.items():
        paths[tag] = tmp_path / tag
        paths[tag].write_bytes(content)
    return paths


def read_damaged(paths: dict[str, Path], tag: str, **options: Any) -> Any:
    more = {"dtypes": "int64"} if tag == "csv" else {}
    return creator.open(f"{tag}:{paths[tag]}", **more, **options)


def first_number(sample: Any) -> int:
    if isinstance(sample, tuple):
        return int(sample[1] if len(sample) == 2 else sample[0])
    return int(sample)


def test_ranks_read_whole_files_where_there_are_enough(folder: Path) -> None:
    parts = [list(creator.text_file(folder / "*.txt", shard=(2, k))) for k in range(2)]
    assert parts == [["0", "1", "5"], ["2", "3", "4"]]


def test_ranks_take_samples_where_files_are_too_few(folder: Path) -> None:
    parts = [list(creator.text_file(folder / "*.txt", shard=(4, k))) for k in range(4)]
    assert parts == [["0", "4"], ["1", "5"], ["2"], ["3"]]


def test_ranks_take_samples_where_all_must_get_equally_many(folder: Path) -> None:
    path = str(folder / "*.npy")
    parts = [list(creator.open(path, shard=Shard(2, k, equal=True))) for k in range(2)]
    assert parts == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("name", ["text_file", "csv", "jsonl", "svmlight", "idx", "npy", "open"])
def test_every_creator_of_file_readers_can_divide_a_pass(name: str, folder: Path) -> None:
    path = f"text:{folder}/a.txt" if name == "open" else folder / "a.txt"
    assert getattr(creator, name)(path, shard=(3, 2)).world_size() == 3
    with pytest.raises(FieldError, match=rf"{name}.shard must be \(num_shards, index\), 'auto'"):
        getattr(creator, name)(path, shard=2)


def test_arrays_are_divided_by_rows() -> None:
    assert [int(row) for row in creator.np_array([5, 6, 7], shard=(2, 0))] == [5, 7]
    with pytest.raises(FieldError, match=r"np_array.shard must be"):
        creator.np_array([1], shard="all")  # type: ignore[arg-type]


def test_a_launcher_is_asked_when_the_caller_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(creator.text_file(folder / "*.txt", shard="auto")) == ["2", "3", "4"]
    assert len(list(creator.text_file(folder / "*.txt"))) == 6


def test_every_number_of_ranks_may_load_the_state_of_one(folder: Path) -> None:
    alone = creator.text_file(folder / "*.txt")
    next(samples := alone())
    state = alone.state_dict()
    del samples
    ranks = [creator.text_file(folder / "*.txt", shard=(2, k)) for k in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    assert [list(rank) for rank in ranks] == [["1", "3", "5"], ["2", "4"]]


def test_files_that_tell_their_counts_are_skipped_unread(folder: Path) -> None:
    whole = creator.npy([folder / "a.npy", folder / "b.npy"])
    assert whole.count() == 5
    assert creator.text_file(folder / "a.txt").count() is None
    assert creator.npy(folder / "*.npy", shard=(2, 0)).count() is None
    (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:-8])
    with pytest.raises(FormatError):
        list(whole)
    rest = creator.npy(folder / "c.npy")
    assert list(repeat(rest, 5).open(0, 4)) == [5]
    assert list(chain(rest, rest).open(0, 1)) == [5]


@pytest.mark.parametrize("tag", ["text", "csv", "jsonl", "svmlight"])
def test_damaged_lines_may_be_left_out(tag: str, damaged: dict[str, Path]) -> None:
    reader = read_damaged(damaged, tag, on_error="skip")
    assert [first_number(sample) for sample in reader] == [1, 3, 5]
    assert reader.skipped() == {"count": 2, "ordinals": [1, 3]}
    assert [first_number(sample) for sample in reader.open(0, 1)] == [3, 5]
    assert reader.count() is None


@pytest.mark.parametrize("tag", ["text", "csv", "jsonl", "svmlight"])
def test_there_may_be_too_many(tag: str, damaged: dict[str, Path]) -> None:
    with pytest.raises(FormatError) as caught:
        list(read_damaged(damaged, tag, on_error=Skip(max=1)))
    assert "1 before it was skipped; Skip(max=1, rate=None) allows no more" in str(
        caught.value.__notes__
    )
    with pytest.raises(FormatError):
        list(read_damaged(damaged, tag))


def test_line_numbers_count_what_was_left_out(damaged: dict[str, Path]) -> None:
    damaged["jsonl"].write_bytes(b"\xff\n2\n{\n")
    with pytest.raises(FormatError, match="jsonl, line 3, column 2"):
        list(read_damaged(damaged, "jsonl", on_error=Skip(max=1)))


def test_skipping_counts_over_files(damaged: dict[str, Path]) -> None:
    reader = creator.text_file([damaged["text"], damaged["text"]], on_error="skip")
    assert len(list(reader)) == 6
    assert reader.skipped() == {"count": 4, "ordinals": [1, 3, 6, 8]}


@pytest.mark.parametrize("path", [None, 5, [], (), "", b"a.txt", ["a.txt", None], [""]])
def test_there_must_be_a_path(path: Any) -> None:
    for make in (creator.text_file, creator.npy, creator.parquet, creator.recordio):
        with pytest.raises(FieldError, match=rf"{make.__name__}.paths? must be a path or a list"):
            make(path)
    with pytest.raises(FieldError, match=r"open.spec must be a path or a list of one or more, got"):
        creator.open(path)
    with pytest.raises(FieldError, match=r"idx.paths must be a path or a list of one or more, got"):
        creator.idx(path)


def test_options_that_a_format_does_not_have_are_told() -> None:
    with pytest.raises(TypeError, match=r"open of a.csv: format csv: got an unexpected .*'dtype'"):
        creator.open("a.csv", dtype="int64")
    with pytest.raises(TypeError, match=r"open of a.txt: format text: got an unexpected .*'dim'"):
        creator.open("a.txt", dim=3)


def test_formats_that_cannot_go_on_say_so(folder: Path) -> None:
    with pytest.raises(FieldError, match=r"open.on_error must be 'raise': the format of .*a.npy"):
        creator.open(folder / "a.npy", on_error="skip")
    with pytest.raises(FieldError, match=r"open.on_error must be 'raise', 'skip' or a Skip"):
        creator.open(folder / "a.txt", on_error="ignore")  # type: ignore[arg-type]


def test_what_skips_is_another_pipeline(damaged: dict[str, Path]) -> None:
    state = creator.text_file(damaged["text"], on_error="skip").state_dict()
    creator.text_file(damaged["text"], on_error=Skip(max=3)).load_state_dict(state)
    with pytest.raises(RuntimeError, match="fingerprint"):
        creator.text_file(damaged["text"]).load_state_dict(state)


def test_a_pipeline_shows_its_part_of_the_files() -> None:
    reader = creator.text_file("a.txt", shard=(2, 1), on_error=Skip(max=3))
    assert repr(reader) == (
        "text_file(paths=['a.txt'], options={}, shard=(2, 1), on_error=Skip(max=3, rate=None))"
    )


def test_a_bound_function_is_known_by_what_it_binds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "_formats", dict(formats._formats))
    formats.register("picked", lambda source, pick: map(pick, read_csv(source)))

    def identity(pick: Any) -> str:
        return creator.open(f"picked:{folder / 'a.txt'}", pick=pick).identity()

    assert identity(partial(max, default=0)) == identity(partial(max, default=0))
    assert (
        len(
            {
                identity(partial(max, default=0)),
                identity(partial(max, default=1)),
                identity(partial(min, default=0)),
                identity(partial(max, key=len)),
                identity(partial(max, key=str)),
                identity(partial(max, 0)),
            }
        )
        == 6
    )
