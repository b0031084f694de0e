from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.readers import BrokenError, failing

import gpufeed as gf
from gpufeed import creator
from gpufeed.errors import FieldError
from gpufeed.formats import Source
from gpufeed.formats.recordio import RecordIOFile

SAMPLES = [([1, 2, 3], 0.5), ([], 1.5), ([4], 2.5), ([5, 6], 3.5), ([7], 4.5)]


def a_feeder(**options: Any) -> gf.DataFeeder:
    program = gf.Program()
    with gf.program_guard(program):
        words = gf.data("words", [1], dtype="int64", lod_level=1)
        score = gf.data("score", [1])
    return gf.DataFeeder([words, score], "cpu", program, **options)


def convert(path: Path, reader: Any, *arguments: Any, **options: Any) -> int:
    options = {"compressor": "none", **options}
    return gf.convert_reader_to_recordio_file(path, reader, *arguments, **options)


def test_bytes_are_records_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"

    assert convert(path, lambda: [b"a", bytearray(b"b"), memoryview(b"")]) == 3
    assert list(creator.recordio(path)) == [b"a", b"b", b""]


def test_other_samples_are_pickles(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    samples = [("a", 1), None, b"bytes too", {"x": [1.5]}]

    assert convert(path, lambda: samples) == 4
    assert list(creator.recordio(path, allow_pickle=True)) == samples


def test_bytes_and_others_do_not_mix(tmp_path: Path) -> None:
    message = r"convert_.*_file, sample 2: must be bytes as those before it, got str"
    with pytest.raises(FieldError, match=message):
        convert(tmp_path / "a.recordio", lambda: [b"a", b"b", "c"])
    assert os.listdir(tmp_path) == []


def test_no_samples_are_a_file_of_no_records(tmp_path: Path) -> None:
    assert convert(tmp_path / "a.recordio", list) == 0
    assert list(creator.recordio(tmp_path / "a.recordio")) == []


def test_a_feeder_makes_a_record_of_each_batch(tmp_path: Path) -> None:
    path, feeder = tmp_path / "a.recordio", a_feeder()
    batches = list(gf.batch(lambda: SAMPLES, 2))

    assert convert(path, gf.batch(lambda: SAMPLES, 2), feeder) == 3

    records = list(creator.recordio(path, tensors=True))
    assert len(records) == 3
    for (words, score), batch in zip(records, batches, strict=True):
        feed = feeder.feed(batch)
        assert words.lod() == feed["words"].lod()
        np.testing.assert_array_equal(words.data, feed["words"].data)
        np.testing.assert_array_equal(score.data, feed["score"].data)


@pytest.mark.parametrize("order", [["score", "words"], ["words"], []])
def test_tensors_come_in_the_order_asked_for(tmp_path: Path, order: list[str]) -> None:
    path = tmp_path / "a.recordio"

    convert(path, lambda: [SAMPLES], a_feeder(), feed_order=order)

    (record,) = creator.recordio(path, tensors=True)
    dtypes = {"words": "int64", "score": "float32"}
    assert [tensor.dtype.name for tensor in record] == [dtypes[name] for name in order]


def test_an_order_names_variables_of_the_feeder(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match=r"feed_order must name variables of words, score, got"):
        convert(tmp_path / "a", lambda: [SAMPLES], a_feeder(), feed_order=["words", "label"])
    with pytest.raises(FieldError, match=r"feed_order must be None without a feeder, got"):
        convert(tmp_path / "a", lambda: [b""], feed_order=["words"])


def test_sparse_rows_are_refused_with_the_remedy(tmp_path: Path) -> None:
    program = gf.Program()
    with gf.program_guard(program):
        gf.data("ids", [10], layout="sparse_binary")
    feeder = gf.DataFeeder(["ids"], "cpu", program)

    with pytest.raises(FieldError, match=r"variable 'ids' must be dense .* densify=True"):
        convert(tmp_path / "a", lambda: [[([1, 2],)]], feeder)
    assert os.listdir(tmp_path) == []


def test_feeds_of_a_device_are_written_from_the_host(tmp_path: Path) -> None:
    program = gf.Program()
    with gf.virtual_devices(1), gf.program_guard(program):
        feeder = gf.DataFeeder([gf.data("x", [2])], gf.CUDAPlace(0), program)
        convert(tmp_path / "a", lambda: [[([1, 2],), ([3, 4],)]], feeder)

    ((tensor,),) = creator.recordio(tmp_path / "a", tensors=True)
    assert tensor.to_list() == [[1, 2], [3, 4]]


def test_chunks_dialect_and_compressor_are_the_callers(tmp_path: Path) -> None:
    path = tmp_path / "a"
    options = {"compressor": "gzip", "max_num_records": 2, "dialect": "go"}

    convert(path, lambda: [b"a"] * 5, **options)

    chunks = [chunk.header for chunk, _ in RecordIOFile(Source(str(path))).chunks()]
    assert [chunk.num_records for chunk in chunks] == [2, 2, 1]
    assert {(chunk.dialect, chunk.compressor) for chunk in chunks} == {("go", "gzip")}


def test_an_error_of_the_reader_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    with pytest.raises(BrokenError):
        convert(tmp_path / "a", failing(3))

    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_may_be_converted_into_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    convert(path, lambda: [b"a", b"b"])

    convert(path, creator.recordio(path), max_num_records=1)

    assert list(creator.recordio(path)) == [b"a", b"b"]


@pytest.mark.parametrize("num", range(8))
@pytest.mark.parametrize("per_file", [1, 2, 3, 10])
def test_every_batch_is_written(tmp_path: Path, num: int, per_file: int) -> None:
    written = gf.convert_reader_to_recordio_files(
        tmp_path / "a.recordio", per_file, lambda: range(num), compressor="none"
    )

    assert written == num
    names = sorted(os.listdir(tmp_path))
    assert names == [f"a-{number:05d}.recordio" for number in range(-(-num // per_file))]
    files = [list(creator.recordio(tmp_path / name, allow_pickle=True)) for name in names]
    assert [len(file) for file in files[:-1]] == [per_file] * (len(files) - 1)
    assert [sample for file in files for sample in file] == list(range(num))


def test_batches_of_a_feeder_fill_files(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    reader = gf.batch(lambda: SAMPLES, 1)

    assert (
        gf.convert_reader_to_recordio_files(path, 2, reader, a_feeder(), "none", 1, ["score"]) == 5
    )

    parts = creator.recordio(tmp_path / "*.recordio", tensors=True)
    assert [score.to_list() for (score,) in parts] == [[[score]] for _, score in SAMPLES]


def test_an_error_leaves_the_files_before_it(tmp_path: Path) -> None:
    with pytest.raises(BrokenError):
        gf.convert_reader_to_recordio_files(
            tmp_path / "a.recordio", 2, failing(5), compressor="none"
        )

    assert sorted(os.listdir(tmp_path)) == ["a-00000.recordio", "a-00001.recordio"]


@pytest.mark.parametrize(
    ("filename", "per_file", "message"),
    [
        ("a.rec", 2, r"filename must end in .recordio, got 'a.rec'"),
        ("a", 2, r"filename must end in .recordio"),
        ("a.recordio", 0, r"batch_per_file must be a whole number >= 1, got 0"),
    ],
)
def test_arguments_of_many_files_are_checked(filename, per_file, message) -> None:
    with pytest.raises(FieldError, match=f"convert_reader_to_recordio_files.{message}"):
        gf.convert_reader_to_recordio_files(filename, per_file, list, compressor="none")
