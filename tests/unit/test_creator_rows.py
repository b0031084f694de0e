"""Files of record batches under `batch`: rows are cut, skipped unread, and shared by ranks."""

from __future__ import annotations

from itertools import islice

import pytest

from gpufeed import creator
from gpufeed.creator.files import FilesReader, each_file
from gpufeed.formats.parquet import read_parquet
from gpufeed.formats.tables import TableFile
from gpufeed.reader import batch

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

NUM_ROWS = 23


@pytest.fixture
def paths(tmp_path):
    """Two files of 10 and 13 rows, in row groups of 4."""
    ends = [0, 10, NUM_ROWS]
    paths = [tmp_path / f"{part}.parquet" for part in range(2)]
    for path, begin, end in zip(paths, ends[:-1], ends[1:], strict=True):
        rows = range(begin, end)
        table = pyarrow.table({"ids": [[row] * (row % 3) for row in rows], "row": list(rows)})
        parquet.write_table(table, path, row_group_size=4)
    return paths


def numbers(batches):
    return [rows.columns["row"].tolist() for rows in batches]


def blocks(rows, size=5):
    return [list(rows[at : at + size]) for at in range(0, len(rows), size)]


@pytest.mark.parametrize("skip", range(7))
def test_rows_are_cut_and_skipped_over_files_and_row_groups(paths, skip):
    reader = batch(creator.parquet(paths, columnar=True), 5)
    assert numbers(reader.open(0, skip)) == blocks(range(NUM_ROWS))[skip:]


def test_what_is_skipped_is_not_read(paths, monkeypatch):
    read = []
    record_batches = TableFile.record_batches
    monkeypatch.setattr(
        TableFile,
        "record_batches",
        lambda self, skip_rows: read.append(skip_rows) or record_batches(self, skip_rows),
    )
    reader = batch(creator.parquet(paths, columnar=True), 5)
    assert numbers(reader.open(0, 3)) == [[15, 16, 17, 18, 19], [20, 21, 22]]
    assert read == [10, 5]


def test_a_format_that_cannot_find_rows_reads_them(paths):
    def opener(source, columnar):
        yield from read_parquet(source, columnar=columnar)

    reader = FilesReader("mine", each_file("mine.path", paths, opener), {"columnar": True})
    assert numbers(batch(reader, 5).open(0, 3)) == [[15, 16, 17, 18, 19], [20, 21, 22]]


@pytest.mark.parametrize("skip", range(4))
def test_a_rank_skips_rows_of_its_own_files(paths, skip):
    reader = batch(creator.parquet(paths, columnar=True, shard=(2, 1)), 5)
    assert numbers(reader.open(0, skip)) == blocks(range(10, NUM_ROWS))[skip:]


@pytest.mark.parametrize("skip", range(4))
def test_ranks_that_share_a_file_share_its_record_batches(paths, skip):
    reader = batch(creator.parquet(paths[:1], columnar=True, batch_rows=2, shard=(2, 1)), 3)
    assert numbers(reader.open(0, skip)) == [[2, 3, 6], [7]][skip:]


def test_a_state_resumes_at_the_row(paths):
    def pipeline():
        return batch(creator.parquet(paths, columnar=True), 5)

    everything = numbers(pipeline())
    reader = pipeline()
    assert numbers(islice(reader(), 3)) == everything[:3]
    again = pipeline()
    again.load_state_dict(reader.state_dict())
    assert numbers(again) == everything[3:]


def test_rows_and_record_batches_make_the_same_batches(paths):
    options = {"max_tokens": 6, "sort_window": 7}
    as_rows = batch(creator.parquet(paths), **options)
    as_columns = batch(creator.parquet(paths, columnar=True), **options)
    assert numbers(as_columns) == [[int(row) for _, row in rows] for rows in as_rows]
    assert as_columns.stats() == as_rows.stats()
