"""What do columnar files cost on top of the library that decodes them?

Method: a table of 1,000,000 rows, a list column of 0 to 39 int64 each (19.5 million in all) and an
int64 label, in row groups of 100,000, Snappy; the same label as an npy file, and as an Arrow file.

- "list column": every row group of the list column, read by pyarrow alone (the floor), and made a
  tensor with its LoD by gpufeed.
- "skip": the first sample behind 999,000 others, in a reader made for it, against the shortest way
  to the same row by hand: ``read_row_group`` of the last row group; an open memory map.
- "rows": every row of both columns as a tuple, against whole record batches, and against rows of
  Python objects.

Sums of what was read are compared before anything is timed. Files are in the page cache.

Not measured: disks, remote files, other encodings and compressions, threads that compete with
pyarrow's own.

Command: ``python benchmarks columnar``

Last result (virtual machine, 2 cores of an AMD EPYC under a load of 6 to 9 by other work, Python
3.11, pyarrow 26, two runs): list column 1.14 and 1.51 times pyarrow's own read, 1.19 times in CPU
time. First sample behind 999,000: npy 1 to 2 ms, Arrow 14 to 24 ms, Parquet 92 to 157 ms, which is
0.7 to 1.1 times reading the row group by hand (26 to 44 ms both, where the cores were free). Rows:
Parquet 2.0 to 2.3 times whole record batches, a fifth to a sixth of what Python objects cost; Arrow
0.7 to 1.3 us a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from harness import Case, Skip

from gpufeed import creator
from gpufeed.columnar import ColumnarBatch
from gpufeed.tensor import LoDTensor

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ModuleNotFoundError:
    pa = None

NUM_ROWS = 1_000_000
ROW_GROUP = 100_000
SKIPPED = 999_000


def cases() -> Iterator[Case]:
    """Yield the comparisons."""
    if pa is None:
        raise Skip("pyarrow is not installed")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        _write(root)
        yield _list_column(root)
        yield from _skips(root)
        yield from _rows(root)


def _write(root: Path) -> None:
    rng = np.random.default_rng(0)
    offsets = np.zeros(NUM_ROWS + 1, np.int32)
    np.cumsum(rng.integers(0, 40, NUM_ROWS), out=offsets[1:])
    ids = pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(rng.integers(0, 50_000, offsets[-1]))
    )
    label = rng.integers(0, 1000, NUM_ROWS)
    table = pa.table({"ids": ids, "label": label})
    pq.write_table(table, root / "a.parquet", row_group_size=ROW_GROUP)
    with pa.ipc.new_file(str(root / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=ROW_GROUP)
    np.save(root / "label.npy", label)


def _list_column(root: Path) -> Case:
    file = pq.ParquetFile(root / "a.parquet")

    def bare() -> int:
        groups = (file.read_row_group(k, ["ids"]) for k in range(file.num_row_groups))
        return sum(_sum(group["ids"].chunk(0).values.to_numpy()) for group in groups)

    def gpufeed() -> int:
        total = 0
        for batch in creator.parquet(root / "a.parquet", ["ids"], columnar=True):
            ids = batch.columns["ids"]
            assert isinstance(ids, LoDTensor)
            total += _sum(ids.data)
        return total

    return Case(
        name="parquet list column, 10 row groups of 100,000 rows",
        contestants={"pyarrow, read_row_group (floor)": bare, "gpufeed, LoDTensor": gpufeed},
        num_units=NUM_ROWS,
        unit="row",
        checksum=lambda total: total,
        target="at most 1.5 times the floor",
    )


def _skips(root: Path) -> Iterator[Case]:
    def by_hand() -> int:
        file = pq.ParquetFile(root / "a.parquet")
        return int(file.read_row_group(NUM_ROWS // ROW_GROUP - 1)["label"][-1000].as_py())

    def by_map() -> int:
        return int(np.load(root / "label.npy", mmap_mode="r")[SKIPPED])

    def label_of(make: Callable[[], Any]) -> Callable[[], int]:
        def first() -> int:
            rows = make().open(0, SKIPPED)
            sample = next(rows)
            rows.close()
            return int(sample[-1] if isinstance(sample, tuple) else sample)

        return first

    parquet = label_of(lambda: creator.parquet(root / "a.parquet"))
    arrow = label_of(lambda: creator.arrow(root / "a.arrow"))
    npy = label_of(lambda: creator.npy(root / "label.npy"))
    for name, contestants in (
        ("parquet, arrow", {"read_row_group by hand": by_hand, "parquet": parquet, "arrow": arrow}),
        ("npy", {"memory map by hand": by_map, "npy": npy}),
    ):
        yield Case(
            name=f"first sample behind {SKIPPED:,}: {name}",
            contestants=contestants,
            num_units=1,
            unit="skip",
            checksum=lambda label: label,
            target="at most 50,000 us",
        )


def _rows(root: Path) -> Iterator[Case]:
    def of_batches(make: Callable[[], Any]) -> Callable[[], int]:
        return lambda: sum(_sum(_label(batch)) for batch in make())

    def of_rows(make: Callable[[], Any]) -> Callable[[], int]:
        return lambda: sum(int(label) for _, label in make())

    parquet, arrow = root / "a.parquet", root / "a.arrow"
    yield Case(
        name="both columns of all rows",
        contestants={
            "parquet, columnar (floor)": of_batches(
                lambda: creator.parquet(parquet, columnar=True)
            ),
            "parquet, rows": of_rows(lambda: creator.parquet(parquet)),
            "arrow, columnar": of_batches(lambda: creator.arrow(arrow, columnar=True)),
            "arrow, rows": of_rows(lambda: creator.arrow(arrow)),
            "pyarrow, to_pylist": lambda: _through_lists(parquet),
        },
        num_units=NUM_ROWS,
        unit="row",
        checksum=lambda total: total,
    )


def _through_lists(path: Path) -> int:
    """What one would write by hand: every value becomes a Python object."""
    batches = pq.ParquetFile(path).iter_batches()
    return sum(row["label"] for batch in batches for row in batch.to_pylist())


def _label(batch: ColumnarBatch) -> np.ndarray[Any, Any]:
    label = batch.columns["label"]
    assert isinstance(label, np.ndarray)
    return label


def _sum(values: np.ndarray[Any, Any]) -> int:
    return int(values.sum())
