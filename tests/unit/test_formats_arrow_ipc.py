from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import write_table

from gpufeed.errors import FormatError
from gpufeed.formats import Source
from gpufeed.formats.arrow_ipc import read_arrow
from gpufeed.formats.tables import TableFile
from gpufeed.tensor import LoDTensor

pa = pytest.importorskip("pyarrow")

KINDS = ["file.arrow", "stream.arrow"]


def opened(path: Path, *args: Any, **options: Any) -> TableFile:
    return read_arrow(Source(str(path)), *args, **options)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_bodies_are_read(tmp_path: Path, name: str, compression: str) -> None:
    numbers = np.arange(1000)
    table = pa.table({"number": numbers, "other": numbers})
    path = write_table(tmp_path / name, table, 300, compression=compression)

    assert opened(path).count() == 1000
    assert [number for (number,) in opened(path, ["other"]).tail(990)] == list(range(990, 1000))


@pytest.mark.parametrize("columns", [None, ["ids"]])
@pytest.mark.parametrize("name", KINDS)
def test_columns_of_a_plain_file_are_views_of_its_map(
    tmp_path: Path, name: str, columns: list[str] | None
) -> None:
    table = pa.table({"ids": [[1, 2], [3]] * 5000, "number": range(10_000)})
    path = write_table(tmp_path / name, table, 10_000)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()

    (batch,) = opened(path, columns, columnar=True)

    ids = batch.columns["ids"]
    assert isinstance(ids, LoDTensor)
    assert ids.to_list() == [[1, 2], [3]] * 5000
    assert pool.bytes_allocated() - before < 1000


@pytest.mark.parametrize("name", KINDS)
def test_dictionaries_are_decoded(tmp_path: Path, name: str) -> None:
    words = pa.array(["a", "b", "a", "c"]).dictionary_encode()
    path = write_table(tmp_path / name, pa.table({"word": words, "n": range(4)}), 2)

    assert list(opened(path, ["word"])) == [("a",), ("b",), ("a",), ("c",)]


@pytest.mark.parametrize("name", KINDS)
def test_record_batches_of_no_rows_are_kept_in_count(tmp_path: Path, name: str) -> None:
    schema = pa.schema([("x", pa.int8())])
    make = pa.ipc.new_file if name == "file.arrow" else pa.ipc.new_stream
    with make(str(tmp_path / name), schema) as writer:
        for rows in ([], [1, 2], [], [], [3], []):
            writer.write_batch(pa.record_batch([pa.array(rows, pa.int8())], schema=schema))

    batches = opened(tmp_path / name, columnar=True)
    assert [len(batch) for batch in batches] == [0, 2, 0, 0, 1, 0]
    assert batches.count() == 6
    for skip in range(8):
        assert [len(batch) for batch in batches.tail(skip)] == [0, 2, 0, 0, 1, 0][skip:]
    for skip in range(5):
        assert [x for (x,) in opened(tmp_path / name).tail(skip)] == [1, 2, 3][skip:]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("offsets", [[0, 1000, 3], [0, 2, 1], [-5, 2, 3], [0, 2, 2**31 - 1]])
def test_offsets_outside_of_the_values_are_refused(
    tmp_path: Path, name: str, suffix: str, offsets: list[int]
) -> None:
    path = write_table(tmp_path / name, pa.table({"ids": [[11, 22], [33]]}, ids_schema()), 2)
    content = path.read_bytes()
    good, bad = (np.array(numbers, "i4").tobytes() for numbers in ([0, 2, 3], offsets))
    assert content.count(good) == 1
    content = content.replace(good, bad)
    path = path.with_name(name + suffix)
    path.write_bytes(gzip.compress(content) if suffix else content)

    with pytest.raises(FormatError, match=f"{name}{suffix}: cannot be read: "):
        list(opened(path))


def ids_schema() -> Any:
    return pa.schema([("ids", pa.list_(pa.int64()))])


def test_a_stream_that_is_cut_yields_its_whole_batches_first(tmp_path: Path) -> None:
    path = write_table(tmp_path / "stream.arrow", pa.table({"x": np.arange(3000)}), 1000)
    path.write_bytes(path.read_bytes()[:-2000])
    rows = opened(path).tail(0)

    assert [next(rows)[0] for _ in range(2000)] == list(range(2000))
    with pytest.raises(FormatError, match=r"stream.arrow: cannot be read"):
        next(rows)
