from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import write_table

from gpufeed import creator
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Source
from gpufeed.formats.parquet import read_parquet
from gpufeed.formats.tables import TableFile

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten rows in row groups of 4, 4 and 2."""
    table = pa.table({"number": range(10), "word": list("abcdefghij")})
    return write_table(tmp_path / "a.parquet", table, 4)


def opened(path: Path, **options: Any) -> TableFile:
    return read_parquet(Source(str(path)), **options)


@pytest.mark.parametrize(
    ("batch_rows", "sizes"),
    [(1, [1] * 10), (3, [3, 1, 3, 1, 2]), (4, [4, 4, 2]), (100, [4, 4, 2])],
)
def test_record_batches_end_with_row_groups(path: Path, batch_rows: int, sizes: list[int]) -> None:
    file = opened(path, columnar=True, batch_rows=batch_rows)

    assert [len(batch) for batch in file] == sizes
    assert file.count() == len(sizes)
    for skip in range(12):
        rows = opened(path, columns=["number"], batch_rows=batch_rows).tail(skip)
        assert [number for (number,) in rows] == list(range(skip, 10))


@pytest.mark.parametrize("batch_rows", [0, -1, 1.5, "all"])
def test_batch_rows_are_checked_at_once(batch_rows: Any) -> None:
    for make in (creator.parquet, creator.open):
        with pytest.raises(FieldError, match=r"parquet.batch_rows must be a whole number >= 1"):
            make("a.parquet", batch_rows=batch_rows)


def test_skipped_row_groups_are_not_read(path: Path) -> None:
    # Damage in the first row group is met by who reads it, and by nobody else.
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start - 12 : start + 12] = b"\xff" * 24
    path.write_bytes(content)

    assert [number for number, _ in opened(path).tail(5)] == [5, 6, 7, 8, 9]
    with pytest.raises(FormatError, match=r"a.parquet: cannot be read"):
        next(opened(path).tail(2))


def test_a_checksum_that_is_wrong_is_a_format_error(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**60, 1000)
    path = write_table(
        tmp_path / "a.parquet",
        pa.table({"number": numbers}),
        1000,
        write_page_checksum=True,
        compression="none",
        use_dictionary=False,
    )
    content = bytearray(path.read_bytes())
    content[content.index(numbers[500].tobytes())] ^= 1
    path.write_bytes(content)

    with pytest.raises(FormatError, match=r"cannot be read: .*[Cc][Rr][Cc]"):
        next(opened(path).tail(0))


class _Metadata:
    """The metadata of a good file, with one number changed."""

    def __init__(self, good: Any, **changed: Any) -> None:
        self._good = good
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._good, name)


@pytest.mark.parametrize("rows", [-4, 5])
def test_row_groups_must_add_up(path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    class Damaged(pq.ParquetFile):
        @property
        def metadata(self) -> Any:
            good = super().metadata
            first = _Metadata(good.row_group(0), num_rows=rows)
            return _Metadata(good, row_group=lambda k: good.row_group(k) if k else first)

    monkeypatch.setattr(pq, "ParquetFile", Damaged)

    with pytest.raises(FormatError, match=f"expected 10 rows in all, got {rows}, 4, 2"):
        opened(path).count()


def test_memory_follows_the_record_batch_and_not_the_file(tmp_path: Path) -> None:
    # 16 MB in row groups of 1 MB, of which a sixteenth is decoded at once.
    numbers = np.random.default_rng(0).integers(0, 2**40, 2_000_000)
    path = write_table(tmp_path / "a.parquet", pa.table({"number": numbers}), 125_000)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()

    most = total = 0
    for batch in opened(path, columnar=True, batch_rows=8_000):
        total += int(batch.columns["number"].sum())
        del batch
        most = max(most, pool.bytes_allocated() - before)

    assert total == numbers.sum()
    assert most < 4_000_000
