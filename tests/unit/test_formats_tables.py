"""Parquet and Arrow files: what holds for all tables, whatever file they are in."""

from __future__ import annotations

import gc
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import WRITERS, write_table

from gpufeed import creator
from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FieldError, FormatError, MissingExtra, MissingFile
from gpufeed.feeder import DataFeeder
from gpufeed.formats import Seekable, Source, resolve, tables
from gpufeed.formats.tables import TableFile
from gpufeed.reader import batch
from gpufeed.tensor import LoDTensor
from gpufeed.testing import assert_resumes_exactly
from gpufeed.variables import Program, data, program_guard

pa = pytest.importorskip("pyarrow")

NAMES = [*WRITERS, *(f"{name}.gz" for name in WRITERS)]
IDS = [[1, 2], [], [3], [4, 5, 6], [], [7], [8]]
LABELS = [1, 0, 1, 1, 0, 0, 1]
WORDS = ["a", "b", "", "ü", "e", "f", "g"]


@pytest.fixture
def table() -> Any:
    ids = pa.array(IDS, pa.list_(pa.int32()))
    return pa.table({"ids": ids, "label": pa.array(LABELS, pa.int8()), "word": WORDS})


def opened(path: Path, *args: Any, **options: Any) -> TableFile:
    form, _ = resolve(path.name)
    file = form.opener(Source(str(path)), *args, **options)
    assert isinstance(file, TableFile)
    assert isinstance(file, Seekable)
    return file


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_tuples_with_arrays_for_lists(tmp_path: Path, name: str, table: Any) -> None:
    rows = list(opened(write_table(tmp_path / name, table, 3)))

    assert [ids.tolist() for ids, _, _ in rows] == IDS
    assert {ids.dtype.name for ids, _, _ in rows} == {"int32"}
    assert [label for _, label, _ in rows] == LABELS
    assert [word for _, _, word in rows] == WORDS


@pytest.mark.parametrize("name", NAMES)
def test_record_batches_are_columns(tmp_path: Path, name: str, table: Any) -> None:
    batches = list(opened(write_table(tmp_path / name, table, 3), columnar=True))

    assert [len(batch) for batch in batches] == [3, 3, 1]
    whole = ColumnarBatch.concat(batches).columns
    assert whole["ids"].to_list() == IDS
    assert whole["label"].tolist() == LABELS
    assert whole["word"].tolist() == WORDS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch_rows", [2, 3, 7])
def test_tail_equals_dropping_the_first(
    tmp_path: Path, name: str, table: Any, batch_rows: int
) -> None:
    path = write_table(tmp_path / name, table, batch_rows)
    rows, batches = opened(path, ["word"]), opened(path, ["word"], columnar=True)

    assert rows.count() == 7
    assert batches.count() == -(-7 // batch_rows)
    words = [batch.columns["word"].tolist() for batch in batches]
    for skip in range(10):
        assert [word for (word,) in rows.tail(skip)] == WORDS[skip:]
        assert [batch.columns["word"].tolist() for batch in batches.tail(skip)] == words[skip:]
        parts = list(batches.record_batches(skip))
        assert all(map(len, parts))
        assert [row["word"] for part in parts for row in part] == WORDS[skip:]


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_picked_and_ordered(tmp_path: Path, name: str, table: Any) -> None:
    path = write_table(tmp_path / name, table, 3)

    assert list(opened(path, ["word", "label"])) == list(zip(WORDS, LABELS, strict=True))
    (first, *_) = opened(path, ["word", "label"], columnar=True)
    assert list(first.columns) == ["word", "label"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_column_is_named(tmp_path: Path, name: str, table: Any) -> None:
    path = write_table(tmp_path / name, table, 3)

    with pytest.raises(
        FormatError, match=f"{name}: expected one column 'no', got columns ids, label, word$"
    ):
        next(opened(path, ["ids", "no"]).tail(0))


@pytest.mark.parametrize("name", WRITERS)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, name: str, table: Any) -> None:
    path = write_table(tmp_path / name, table.rename_columns(["x", "x", "y"]), 3)

    with pytest.raises(FormatError, match="expected one column 'x', got columns x, x, y"):
        next(opened(path).tail(0))


@pytest.mark.parametrize("name", NAMES)
def test_nulls_name_column_and_row_of_the_file(tmp_path: Path, name: str) -> None:
    table = pa.table({"a": [1, 2, 3, 4, None], "b": [[1], [2], None, [4, None], []]})
    path = write_table(tmp_path / name, table, 2)

    with pytest.raises(
        FormatError, match=f"{name}, column 'b' must hold no nulls, got 1, the first in row 2$"
    ):
        list(opened(path, ["b"]))
    with pytest.raises(FormatError, match=r"column 'a' must hold no nulls, .* in row 4$"):
        list(opened(path, ["a"]).tail(3))
    filled = [(a, b.tolist()) for a, b in opened(path, fill_null={"a": -1, "b": 0})]
    assert filled == [(1, [1]), (2, [2]), (3, []), (4, [4, 0]), (-1, [])]


@pytest.mark.parametrize("name", WRITERS)
def test_columns_of_other_things_are_refused(tmp_path: Path, name: str) -> None:
    table = pa.table({"x": [1], "s": [[{"a": 1}]]})
    path = write_table(tmp_path / name, table, 1)

    with pytest.raises(FormatError, match=f"{name}, column 's' must hold .* got struct<a: int64>"):
        list(opened(path))
    assert list(opened(path, ["x"])) == [(1,)]


@pytest.mark.parametrize("name", WRITERS)
def test_nested_lists_are_lod_levels(tmp_path: Path, name: str) -> None:
    nested = [[[1], [2, 3]], [], [[]], [[4, 5]]]
    pairs = [[1, 2], [3, 4], [5, 6], [7, 8]]
    table = pa.table({"nested": nested, "pair": pa.array(pairs, pa.list_(pa.float32(), 2))})
    path = write_table(tmp_path / name, table, 4)

    (batch,) = opened(path, columnar=True)

    assert batch.columns["nested"].lod() == [[0, 2, 2, 3, 4], [0, 1, 3, 3, 5]]
    assert batch.columns["pair"].shape == (4, 2)
    rows = [([part.tolist() for part in parts], pair.tolist()) for parts, pair in opened(path)]
    assert rows == list(zip(nested, pairs, strict=True))


@pytest.mark.parametrize("name", WRITERS)
def test_columns_outlive_the_pass(tmp_path: Path, name: str, table: Any) -> None:
    batches = opened(write_table(tmp_path / name, table, 3), columnar=True).tail(0)
    first = next(batches)
    batches.close()
    gc.collect()

    ids = first.columns["ids"]
    assert isinstance(ids, LoDTensor)
    assert ids.to_list() == IDS[:3]
    assert not ids.data.flags.writeable


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_no_rows_has_no_samples(tmp_path: Path, name: str, table: Any) -> None:
    path = write_table(tmp_path / name, table[:0], 3)

    assert opened(path).count() == 0
    assert list(opened(path)) == []
    assert sum(map(len, opened(path, columnar=True))) == 0


@pytest.mark.parametrize("name", WRITERS)
def test_half_a_file_is_a_format_error(tmp_path: Path, name: str, table: Any) -> None:
    path = write_table(tmp_path / name, table, 3)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(FormatError, match=f"{name}: cannot be read: "):
        list(opened(path))


@pytest.mark.parametrize("name", WRITERS)
def test_other_files_are_format_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"something else that is no table at all")

    with pytest.raises(FormatError, match=f"{name}: cannot be read: "):
        opened(tmp_path / name).count()
    with pytest.raises(MissingFile):
        opened(tmp_path / f"no-{name}").count()


@pytest.mark.parametrize("make", ["parquet", "arrow"])
def test_options_are_checked_at_once(make: str) -> None:
    for create in (getattr(creator, make), lambda path, **options: creator.open(path, **options)):
        with pytest.raises(FieldError, match=rf"{make}.columns must be a list of different names"):
            create(f"a.{make}", columns="ids")
        with pytest.raises(FieldError, match=rf"{make}.fill_null must map columns to what stands"):
            create(f"a.{make}", fill_null=0)
        with pytest.raises(FieldError, match=rf"{make}.fill_null must be for .* got \['b'\]"):
            create(f"a.{make}", columns=["a"], fill_null={"a": 0, "b": 1})


@pytest.mark.parametrize("make", ["parquet", "arrow"])
def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    def missing(module: str, extra: str) -> None:
        raise MissingExtra(f"{module} is not installed: pip install 'gpufeed[{extra}]'")

    monkeypatch.setattr(tables, "import_extra", missing)
    monkeypatch.setattr("gpufeed.formats.parquet.import_extra", missing)
    monkeypatch.setattr("gpufeed.formats.arrow_ipc.import_extra", missing)
    (tmp_path / f"a.{make}").write_bytes(b"some bytes")

    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[arrow\]'"):
        list(getattr(creator, make)(tmp_path / f"a.{make}"))


def test_files_behind_urls_are_read(tmp_path: Path, table: Any) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in NAMES:
        memory.pipe(f"/tables/{name}", write_table(tmp_path / name, table, 3).read_bytes())
        rows = list(opened_url(f"memory://tables/{name}").tail(5))
        assert [(label, word) for _, label, word in rows] == [(0, "f"), (1, "g")]
    memory.rm("/tables", recursive=True)


def opened_url(url: str) -> TableFile:
    file = resolve(url)[0].opener(Source(url))
    assert isinstance(file, TableFile)
    return file


def test_a_reader_of_files_resumes_and_is_columnar(tmp_path: Path, table: Any) -> None:
    path = write_table(tmp_path / "a.parquet", table, 3)
    reader = creator.parquet([path, path], ["word"])
    rows = list(reader)
    assert len(rows) == 14
    for delivered in range(15):
        list(islice(reader(), delivered))
        again = creator.open([path, path], columns=["word"])
        assert list(again.open(0, delivered)) == rows[delivered:]
    assert not reader.is_columnar
    assert creator.parquet(path, columnar=True).is_columnar
    assert creator.arrow(path, columnar=True).is_columnar


@pytest.mark.parametrize("name", NAMES)
def test_an_abandoned_pass_closes_its_files(tmp_path: Path, name: str, table: Any) -> None:
    samples = opened(write_table(tmp_path / name, table, 3)).tail(1)

    assert next(samples)[2] == "b"
    samples.close()  # an open file would be a ResourceWarning, which is an error here


def test_record_batches_are_cut_as_columns(tmp_path: Path, table: Any) -> None:
    path = write_table(tmp_path / "a.parquet", table, 3)
    batches = list(batch(creator.parquet(path, ["ids", "label"], columnar=True), 2))

    assert [type(samples) for samples in batches] == [ColumnarBatch] * 4
    assert [len(samples) for samples in batches] == [2, 2, 2, 1]
    joined = ColumnarBatch.concat(batches).columns
    assert joined["ids"].to_list() == IDS
    np.testing.assert_array_equal(joined["label"], LABELS)


@pytest.mark.parametrize("name", WRITERS)
def test_rows_and_record_batches_feed_alike(tmp_path: Path, name: str, table: Any) -> None:
    path = write_table(tmp_path / name, table, 3)
    with program_guard(Program()):
        variables = [data("ids", [1], "int32", lod_level=1), data("label", [1], "int8")]
        feeder = DataFeeder(variables, "cpu")

    def feeds(**options: Any) -> list[Any]:
        rows = creator.open(path, columns=["ids", "label"], **options)
        return [feeder.feed(samples) for samples in batch(rows, 4)]

    for by_rows, by_columns in zip(feeds(), feeds(columnar=True), strict=True):
        assert by_rows["ids"].to_list() == by_columns["ids"].to_list()
        assert by_rows["label"].data.tolist() == by_columns["label"].data.tolist()
        assert by_rows["ids"].shape == by_columns["ids"].shape


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_passes_resume_exactly(tmp_path: Path, name: str, table: Any, columnar: bool) -> None:
    path = write_table(tmp_path / name, table, 3)

    assert_resumes_exactly(lambda: creator.open([path, path], columnar=columnar))
    assert_resumes_exactly(lambda: batch(creator.open([path, path], columnar=columnar), 4))
