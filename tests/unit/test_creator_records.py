from __future__ import annotations

import pickle
from itertools import chain
from pathlib import Path

import pytest
from support.compressed import COMPRESS
from support.readers import taken_until
from support.recordio import chunk

import gpufeed as gf
from gpufeed import creator
from gpufeed.errors import FieldError, FormatError, MissingFile
from gpufeed.testing import assert_resumes_exactly


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, numbers in {"b.rec": range(3, 9), "a.rec": range(3), "c.recordio.gz": [9]}.items():
        chunks = [chunk(b"%d" % number, dialect="go") for number in numbers]
        (tmp_path / name).write_bytes(COMPRESS[".gz" if "gz" in name else ""](b"".join(chunks)))
    return tmp_path


def numbers(count: range) -> list[bytes]:
    return [b"%d" % number for number in count]


def test_files_are_read_in_order_again_and_again(folder: Path) -> None:
    reader = creator.recordio([folder / "*.rec", folder / "c.recordio.gz"])

    assert list(reader()) == list(reader()) == numbers(range(10))


def test_one_text_may_name_several_files(folder: Path) -> None:
    assert list(creator.recordio(f"{folder}/a.rec,{folder}/c.*")) == [*numbers(range(3)), b"9"]
    (folder / "with,comma.rec").write_bytes(chunk(b"x"))
    assert list(creator.recordio(f"{folder}/with,comma.rec")) == [b"x"]


@pytest.mark.parametrize("spec", ["recordio:{}/[ab].rec", "{}/a.rec,{}/b.rec"])
def test_open_knows_the_format(folder: Path, spec: str) -> None:
    parts = spec.format(folder, folder).split(",")

    assert list(creator.open(parts)) == numbers(range(9))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_every_position_can_be_resumed(folder: Path, batch_size: int) -> None:
    paths = [folder / "*.rec", folder / "c.recordio.gz"]

    assert_resumes_exactly(lambda: gf.batch(creator.recordio(paths), batch_size))


@pytest.mark.parametrize("num_shards", [1, 2, 3])
def test_shards_divide_the_records(folder: Path, num_shards: int) -> None:
    parts = [
        list(creator.recordio(folder / "*.rec", shard=(num_shards, index)))
        for index in range(num_shards)
    ]

    assert sorted(chain(*parts)) == numbers(range(9))


def test_damage_ends_a_pass_or_is_left_out_and_counted(folder: Path) -> None:
    damaged = [chunk(b"0", b"1"), chunk(b"2", b"3", b"4", checksum=1), chunk(b"5")]
    (folder / "d").write_bytes(b"".join(damaged))
    paths = [folder / "d", folder / "c.recordio.gz"]

    found, error = taken_until(creator.recordio(paths))
    assert found == [b"0", b"1"]
    assert isinstance(error, FormatError)

    reader = creator.recordio(paths, on_error="skip")
    assert list(reader) == [b"0", b"1", b"5", b"9"]
    assert reader.state_dict()["skipped"] == {"count": 3, "ordinals": [2, 3, 4]}

    reader = creator.recordio(paths, on_error=gf.Skip(max=2))
    found, error = taken_until(reader)
    assert found == [b"0", b"1"]
    assert isinstance(error, FormatError)


def test_a_pass_with_damage_resumes_where_it_was(folder: Path) -> None:
    damaged = [chunk(b"0", b"1"), chunk(b"2", checksum=1), chunk(b"3"), chunk(b"4")]
    (folder / "d").write_bytes(b"".join(damaged))

    assert_resumes_exactly(lambda: creator.recordio(folder / "[ad]*", on_error="skip"))


def test_what_records_hold_is_said_by_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(chunk(pickle.dumps(("a", 1))))

    assert list(creator.recordio(path)) == [pickle.dumps(("a", 1))]
    assert list(creator.recordio(path, allow_pickle=True)) == [("a", 1)]
    assert list(creator.open(str(path), allow_pickle=True)) == [("a", 1)]
    with pytest.raises(FormatError, match="record 0: cannot be decoded"):
        list(creator.recordio(path, tensors=True))


def test_how_it_is_read_is_part_of_its_identity(folder: Path) -> None:
    plain = creator.recordio(folder / "a.rec")
    pickled = creator.recordio(folder / "a.rec", allow_pickle=True)

    assert plain.identity() != pickled.identity()
    assert "recordio" in repr(plain)


def test_wrong_options_are_refused_before_there_is_a_file() -> None:
    for make in (creator.recordio, creator.open):
        with pytest.raises(FieldError, match=r"recordio.tensors must be False"):
            make("none.rec", allow_pickle=True, tensors=True)
    with pytest.raises(FieldError, match=r"recordio.on_error must be"):
        creator.recordio("none.rec", on_error="ignore")


def test_missing_files_are_named_when_read(tmp_path: Path) -> None:
    for path in ("none.rec", "*.rec"):
        reader = creator.recordio(tmp_path / path)
        with pytest.raises(MissingFile):
            list(reader)
