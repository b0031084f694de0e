"""Damaged tables, arrays and archives: samples or FormatError, whatever the bytes; no pickles."""

from __future__ import annotations

import io
import pickle
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.compressed import COMPRESS
from support.damage import edits
from support.tables import write_table

from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FormatError
from gpufeed.formats import Seekable, Source, resolve

Edit = Callable[[bytes], bytes]


class Opened:
    """What a pickle would be noticed by."""

    num_times = 0

    def __init__(self) -> None:
        Opened.num_times += 1

    def __reduce__(self) -> tuple[Any, ...]:
        return Opened, ()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npz() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", _npy(np.arange(12).reshape(4, 3)))
        archive.writestr("y.npy", _npy(np.array([Opened()] * 4, object)))
        archive.writestr("z.npy", _npy(np.arange(4.0)))
    return file.getvalue()


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in [
            ("a.json", b'{"x": 1}'),
            ("a.cls", b"7"),
            (f"{'ü' * 80}.txt", b"text"),
            ("b.npy", _npy(np.arange(3))),
            ("b.pkl", pickle.dumps(Opened())),
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


# Good files that need nothing but NumPy: tag, content, options.
FILES: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "jsonl": ("jsonl", b'{"a": [1, 2.5], "b": "\\u00e4"}\n\n{"b": null, "a": true}\n', {}),
    "jsonl, columns": ("jsonl", b'{"a": [1], "b": "x"}\n{"b": 2, "a": 3}\n', {"columns": ["b"]}),
    "npy": ("npy", _npy(np.arange(12, dtype=">i4").reshape(4, 3)), {}),
    "npy, fortran": ("npy", _npy(np.asfortranarray(np.arange(12.0).reshape(4, 3))), {}),
    "npy, objects": ("npy", _npy(np.array([Opened(), None], object)), {}),
    "npz": ("npz", _npz(), {"columns": ["x", "z"]}),
    "npz, objects": ("npz", _npz(), {}),
    "tar": ("webdataset", _tar(), {"decode": True}),
}


def consume(source: Source, tag: str, skip: int, **options: Any) -> int | str:
    """Read everything; return how many samples, or the error."""
    opener = resolve("npy:" if tag == "npz" else f"{tag}:")[0].opener
    num_samples = 0
    try:
        samples = opener(source, **options)
        rest = samples.tail(skip) if isinstance(samples, Seekable) else iter(samples)
        for sample in islice(rest, 10_000):
            num_samples += 1
            # Text and bytes made of damaged offsets would be read here, if at all.
            repr(list(sample.rows()) if isinstance(sample, ColumnarBatch) else sample)
    except FormatError as error:
        return str(error)
    return num_samples


def check(result: int | str, source: Source) -> None:
    """Fail if samples never end, or an error does not say of what file."""
    assert result < 10_000 if isinstance(result, int) else result.startswith(source.path)
    assert Opened.num_times == COUNTED


fuzzed = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SUFFIXES = st.sampled_from(["", ".gz"])
COUNTED = Opened.num_times  # those made above


@pytest.mark.filterwarnings("ignore")  # a damaged header may name a dtype that is deprecated
@pytest.mark.parametrize("name", FILES)
@fuzzed
@given(inside=edits(), outside=edits(), suffix=SUFFIXES, skip=st.integers(0, 5))
@example(inside=bytes, outside=bytes, suffix="", skip=0)
def test_damage_is_a_format_error_and_costs_no_memory(
    tmp_path: Path, name: str, suffix: str, inside: Edit, outside: Edit, skip: int
) -> None:
    tag, content, options = FILES[name]
    path = tmp_path / f"damaged{'.npz' if tag == 'npz' else ''}{suffix}"
    path.write_bytes(outside(COMPRESS[suffix](inside(content))))
    source = Source(str(path))

    tracemalloc.start()
    try:
        result = consume(source, tag, skip, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    check(result, source)
    assert peak < 16_000_000  # of which decompressors have most


TABLES = ["a.parquet", "file.arrow", "stream.arrow"]
CODECS = {
    "a.parquet": ("none", "snappy"),
    "file.arrow": (None, "zstd"),
    "stream.arrow": (None, "lz4"),
}


@cache
def table_bytes(name: str, codec: str | None) -> bytes:
    import pyarrow as pa

    table = pa.table(
        {
            "ids": pa.array([[1, 2], [], [3]] * 4),
            "nested": pa.array([[[1], [2, 3]], [], [[]]] * 4, pa.large_list(pa.list_(pa.int8()))),
            "pair": pa.array([[1, 2]] * 12, pa.list_(pa.float32(), 2)),
            "word": pa.array(["a", "ü", "c"] * 4).dictionary_encode(),
            "text": ["x", "yy", ""] * 4,
            "flag": [True, False, True] * 4,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        return write_table(Path(folder, name), table, 5, compression=codec).read_bytes()


@pytest.mark.parametrize(("name", "codec"), [(n, codec) for n in TABLES for codec in CODECS[n]])
@fuzzed
@given(
    inside=edits(),
    outside=edits(),
    suffix=SUFFIXES,
    columnar=st.booleans(),
    skip=st.integers(0, 13),
)
@example(inside=bytes, outside=bytes, suffix="", columnar=False, skip=0)
@example(inside=bytes, outside=bytes, suffix="", columnar=True, skip=0)
def test_damaged_tables_are_format_errors(
    tmp_path: Path,
    name: str,
    codec: str | None,
    columnar: bool,
    suffix: str,
    inside: Edit,
    outside: Edit,
    skip: int,
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(outside(COMPRESS[suffix](inside(table_bytes(name, codec)))))
    source = Source(str(path))

    check(
        consume(source, "parquet" if name.endswith("t") else "arrow", skip, columnar=columnar),
        source,
    )
