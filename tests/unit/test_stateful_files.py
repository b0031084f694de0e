"""`FileReader`, `MultipleReader`, `open_files`: tensors out of files of any registered format."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest

from gpufeed import formats
from gpufeed.errors import EOFException, FieldError, FormatError, MissingFile, ReaderError
from gpufeed.formats.recordio import RecordIOWriter
from gpufeed.stateful import (
    BatchReader,
    FileReader,
    MultiPassReader,
    MultipleReader,
    ShuffleReader,
    open_files,
    open_recordio_file,
)
from gpufeed.tensor import LoDTensor

CSV = [[1], [1]], None, ["float32", "int64"]


def ids_and_label(source):
    """A format of users' own: ``1 2 3|0`` is a sequence of ids and a label."""
    with source.open() as stream:
        for line in stream:
            ids, _, label = line.decode().partition("|")
            yield [int(word) for word in ids.split()], int(label)


def tensors(source):
    """A format of tensors: each number is a tensor of as many rows, one sequence."""
    with source.open() as stream:
        for line in stream:
            rows = np.arange(int(line), dtype=np.int64)[:, None]
            yield (LoDTensor(rows, [[0, len(rows)]]),)


@pytest.fixture(autouse=True)
def own_formats(monkeypatch):
    monkeypatch.setattr(formats, "_formats", dict(formats._formats))
    formats.register("h7_ids", ids_and_label, endings=[".ids"])
    formats.register("h7_tensors", tensors, endings=[".tensors"])


def write_csv(folder, num_files, num_rows=5):
    paths = []
    for file in range(num_files):
        path = folder / f"part-{file}.csv"
        rows = [f"{file}.5,{file * num_rows + row}" for row in range(num_rows)]
        path.write_text("\n".join(["x,label", *rows]))
        paths.append(path)
    return paths


def labels(reader):
    """Read to the end, one sample at a time, and return the labels."""
    found = []
    while reader.has_next():
        found.append(reader.read_next()[-1].to_list()[0][0])
    return found


def test_a_file_of_columns(tmp_path):
    (path,) = write_csv(tmp_path, 1, 2)
    reader = FileReader(path, *CSV)
    x, label = reader.read_next()
    assert (x.to_list(), x.dtype, label.to_list(), label.dtype) == (
        [[0.5]],
        np.float32,
        [[0]],
        np.int64,
    )
    assert labels(reader) == [1]
    reader.reinit()
    assert labels(reader) == [0, 1]


def test_options_of_the_format(tmp_path):
    path = tmp_path / "table.dat"
    path.write_text("7;left;0.5\n8;out;1.5\n")
    reader = FileReader(f"csv:{path}", *CSV, header=False, delimiter=";", columns=[2, 0])
    assert [[t.to_list() for t in row] for row in reader()] == [[[[0.5]], [[7]]], [[[1.5]], [[8]]]]


def test_a_file_of_one_array(tmp_path):
    path = tmp_path / "images.idx"
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 4, 2, 3) + bytes(range(24)))
    (batch,) = BatchReader(FileReader(path, [[2, 3]], [0], ["uint8"]), 3).read_next()
    assert (batch.shape, batch.dtype) == ((3, 2, 3), np.uint8)
    np.testing.assert_array_equal(batch.data.ravel(), np.arange(18))


def test_samples_by_name_need_their_columns(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"label": 1, "ids": [7, 8]}\n{"label": 0, "ids": []}\n')
    declared = [[1], [1]], [1, 0], ["int64", "int64"]
    ids, label = BatchReader(open_files(path, *declared, columns=["ids", "label"]), 2).read_next()
    assert (ids.to_list(), label.to_list()) == ([[[7], [8]], []], [[1], [0]])
    with pytest.raises(FieldError, match="expected a field 'field_0', got label, ids"):
        open_files(path, *declared).read_next()


def test_the_rows_of_a_numpy_file(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "rows.npy", rows)
    (batch,) = BatchReader(
        open_files(tmp_path / "rows.npy", [[3]], [0], ["float32"]), 4
    ).read_next()
    np.testing.assert_array_equal(batch.data, rows)


def test_a_format_of_one_s_own(tmp_path):
    path = tmp_path / "train.ids"
    path.write_text("1 2 3|0\n|1\n4|1\n")
    ids, label = BatchReader(
        FileReader(path, [[1], [1]], [1, 0], ["int64", "int64"]), 8
    ).read_next()
    assert ids.recursive_sequence_lengths() == [[3, 0, 1]]
    assert label.to_list() == [[0], [1], [1]]


def test_files_of_tensors(tmp_path):
    for name, lengths in (("a", "2\n0\n"), ("b", "1\n3\n")):
        (tmp_path / f"{name}.tensors").write_text(lengths)
    reader = open_files(str(tmp_path / "*.tensors"), [[1]], [1], ["int64"], is_test=True)
    (one,) = reader.read_next()
    assert (one.to_list(), one.lod()) == ([[[0], [1]]], [[0, 2]])
    (merged,) = BatchReader(reader, 4).read_next()
    assert merged.lod() == [[0, 2, 2, 3, 6]]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (([[2]], [1], ["int64"]), r"FileReader: field 'field_0': expected shape \(-1, 2\)"),
        (([[1]], [0], ["int64"]), "field 'field_0': expected lod_level 0, got 1"),
        (([[1]], [1], ["int32"]), "field 'field_0': expected dtype int32, got int64"),
        (([[1], [1]], [1, 0], ["int64"] * 2), "FileReader: expected 2 tensors a sample, got 1"),
    ],
)
def test_the_dims_of_each_field_are_checked(tmp_path, declared, message):
    (tmp_path / "a.tensors").write_text("2\n")
    with pytest.raises(FieldError, match=message):
        FileReader(tmp_path / "a.tensors", *declared).read_next()


def test_the_dims_of_rows_are_checked(tmp_path):
    (tmp_path / "a.ids").write_text("1 2|0\n")
    with pytest.raises(FieldError, match="field_0"):
        FileReader(tmp_path / "a.ids", [[3], [1]], [0, 0], ["float32", "int64"]).read_next()


@pytest.mark.parametrize("is_test", [True, False])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("form", ["csv", "tensors"])
def test_what_does_not_fit_is_told_with_its_file(tmp_path, form, batch_size, is_test):
    (tmp_path / "a.csv").write_text("x\n7\n")
    (tmp_path / "a.tensors").write_text("2\n")
    reader = open_files(str(tmp_path / f"a.{form}"), [[2]], [0], ["int64"], is_test=is_test)
    if batch_size is not None:
        reader = BatchReader(reader, batch_size)
    with pytest.raises(FieldError, match="field_0") as caught:
        reader.read_next()
    reader.close()
    assert caught.value.__notes__ == [f"while reading {tmp_path}/a.{form}"]


@pytest.mark.parametrize(("num", "named"), [(2, "0, 1"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more")])
def test_of_several_files_the_first_are_named(tmp_path, num, named):
    paths = write_csv(tmp_path, num)
    reader = open_files(paths, [[2], [1]], None, ["float32", "int64"], is_test=True)
    with pytest.raises(FieldError, match="field_0") as caught:
        reader.read_next()
    reader.close()
    (note,) = caught.value.__notes__
    assert note.replace(f"{tmp_path}/part-", "").replace(".csv", "") == f"while reading {named}"


def test_text_is_no_tensor(tmp_path):
    (tmp_path / "a.txt").write_text("word\n")
    with pytest.raises(FieldError, match="field_0"):
        FileReader(tmp_path / "a.txt", [[1]], [0], ["float32"]).read_next()


def write_records(path, num):
    """Write batches of two samples, ``ids`` with a LoD and ``label``, as one record each."""
    with RecordIOWriter(path, compressor="none", max_num_records=2) as writer:
        for number in range(num):
            lengths = [number % 3, 1]
            ids = LoDTensor(np.full((sum(lengths), 1), number))
            ids.set_recursive_sequence_lengths([lengths])
            writer.append_tensor(ids)
            writer.append_tensor(LoDTensor(np.full((2, 1), number / 2, np.float32)))
            writer.complete_append_tensor()


RECORDS = [[-1, 1], [-1, 1]], [1, 0], ["int64", "float32"]


def test_recordio_files_hold_tensors(tmp_path):
    for name in "ab":
        write_records(tmp_path / f"{name}.recordio", 5)
    reader = BatchReader(open_files(f"{tmp_path}/*.recordio", *RECORDS, is_test=True), 4)
    first, second, third = reader()
    assert first[0].recursive_sequence_lengths() == [[0, 1, 1, 1, 2, 1, 0, 1]]
    assert second[1].data.ravel().tolist() == [2, 2, 0, 0, 0.5, 0.5, 1, 1]
    assert [len(instance[0]) for instance in (first, second, third)] == [8, 8, 4]
    reader = open_files(f"{tmp_path}/*.recordio", *RECORDS, thread_num=2)
    assert sum(ids.shape[0] for ids, _ in reader()) == 2 * (1 + 2 + 3 + 1 + 2)


def test_one_recordio_file_in_order(tmp_path):
    path = tmp_path / "train.data"
    write_records(path, 3)
    numbers = [label.data[0, 0] for _, label in open_recordio_file(path, *RECORDS)()]
    assert numbers == [0, 0.5, 1]
    passes = open_recordio_file(path, *RECORDS, pass_num=2)
    assert [label.data[0, 0] for _, label in passes()] == [0, 0.5, 1] * 2


def test_the_dims_of_recordio_tensors_are_checked(tmp_path):
    write_records(tmp_path / "a.recordio", 1)
    declared = [[-1, 1], [-1, 2]], [1, 0], ["int64", "float32"]
    with pytest.raises(
        FieldError, match=r"field 'field_1': expected shape \(-1, 2\), got \(2, 1\)"
    ):
        open_files(tmp_path / "a.recordio", *declared).read_next()


@pytest.mark.parametrize("thread_num", [None, 1, 2, 3, 10])
@pytest.mark.parametrize("buffer_size", [None, 1, 100])
def test_every_sample_of_many_files_comes_once_a_pass(tmp_path, thread_num, buffer_size):
    paths = write_csv(tmp_path, 4)
    reader = MultipleReader(paths, *CSV, thread_num=thread_num, buffer_size=buffer_size)
    for _ in range(3):
        found = labels(reader)
        assert sorted(found) == list(range(20))
        # Inside a file the order is kept.
        assert all(
            [n for n in found if n // 5 == file] == sorted(n for n in found if n // 5 == file)
            for file in range(4)
        )
        with pytest.raises(EOFException):
            reader.read_next()
        reader.reinit()


@pytest.mark.parametrize("buffer_size", [None, 1, 100])
def test_is_test_keeps_the_order(tmp_path, buffer_size):
    paths = write_csv(tmp_path, 4)
    order = [paths[2], paths[0], paths[3]]
    reader = MultipleReader(order, *CSV, thread_num=3, buffer_size=buffer_size, is_test=True)
    assert labels(reader) == [*range(10, 15), *range(5), *range(15, 20)]


@pytest.mark.parametrize("is_test", [True, False])
def test_patterns_tags_and_one_name(tmp_path, is_test):
    write_csv(tmp_path, 3)
    for names in (f"{tmp_path}/*.csv", f"csv:{tmp_path}/part-*", [tmp_path / "part-*.csv"]):
        assert sorted(labels(open_files(names, *CSV, is_test=is_test))) == list(range(15))


def test_several_passes_are_one(tmp_path):
    reader = open_files(write_csv(tmp_path, 2), *CSV, pass_num=3)
    assert isinstance(reader, MultiPassReader)
    assert Counter(labels(reader)) == dict.fromkeys(range(10), 3)


def test_batches_of_many_files(tmp_path):
    reader = BatchReader(open_files(write_csv(tmp_path, 3), *CSV), 4)
    sizes = [len(label) for _, label in reader()]
    assert sizes == [4, 4, 4, 3]


def test_shuffled_batches_resume_when_files_are_in_order(tmp_path):
    paths = write_csv(tmp_path, 3)

    def make():
        return BatchReader(ShuffleReader(open_files(paths, *CSV, is_test=True), 6, seed=1), 4)

    held, again = make(), make()
    held.read_next()
    again.load_state_dict(held.state_dict())
    for mine, other in zip(held_rest(held), held_rest(again), strict=True):
        assert mine[1].to_list() == other[1].to_list()


def held_rest(reader):
    while reader.has_next():
        yield reader.read_next()


def test_files_as_they_arrive_cannot_be_resumed(tmp_path):
    reader = open_files(write_csv(tmp_path, 2), *CSV)
    with pytest.raises(ReaderError, match="open_files delivers files as they are read; pass is_te"):
        reader.state_dict()


def test_a_pass_can_begin_in_the_middle(tmp_path):
    reader = open_files(write_csv(tmp_path, 2), *CSV)
    assert len(list(reader.open(0, 7))) == 3


@pytest.mark.parametrize("is_test", [True, False])
def test_a_missing_file(tmp_path, is_test):
    reader = open_files([*write_csv(tmp_path, 1), tmp_path / "none.csv"], *CSV, is_test=is_test)
    with pytest.raises(MissingFile, match=r"none\.csv"):
        labels(reader)
    assert not reader.has_next()


@pytest.mark.parametrize("is_test", [True, False])
def test_damage_comes_after_the_samples_before_it(tmp_path, is_test):
    (path,) = write_csv(tmp_path, 1)
    path.write_text(path.read_text().replace("0.5,3", "0.5,three"))
    reader = open_files(path, *CSV, is_test=is_test)
    assert [reader.read_next()[1].to_list() for _ in range(3)] == [[[0]], [[1]], [[2]]]
    assert reader.has_next()
    with pytest.raises(FormatError, match="three"):
        reader.read_next()
    with pytest.raises(EOFException):
        reader.read_next()


def test_an_unknown_format():
    with pytest.raises(FormatError, match=r"data\.xyz: unknown format"):
        open_files(["data.xyz"], *CSV)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filenames": []}, "filenames must name at least one file, got none"),
        ({"filenames": None}, "filenames must be a name or a list of them, got None"),
        ({"filenames": b"a.csv"}, "filenames must be a name or a list of them, got b'a.csv'"),
        ({"filenames": ["a.csv", 3]}, "filenames must be a name or a list of them, got 3"),
        ({"thread_num": 0}, "thread_num must be a whole number >= 1, got 0"),
        ({"buffer_size": 0}, "buffer_size must be a whole number >= 1, got 0"),
        ({"shapes": [[1]]}, "dtypes must be as many as shapes, 1, got 2"),
    ],
)
def test_arguments_that_break_a_rule(arguments, message):
    given = dict(zip(("shapes", "lod_levels", "dtypes"), CSV, strict=True))
    with pytest.raises(FieldError, match=f"open_files.{message}"):
        open_files(**{"filenames": "a.csv", **given, **arguments})


def test_passes_are_a_whole_number():
    with pytest.raises(FieldError, match="pass_num must be a whole number >= 1, got 0"):
        open_files("a.csv", *CSV, pass_num=0)
