"""Damaged files: whatever the bytes, a format yields samples or raises FormatError."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.compressed import COMPRESS
from support.damage import edits
from support.recordio import FLUID_SNAPPY, GO_SNAPPY, chunk

from gpufeed.errors import FormatError
from gpufeed.formats import Seekable, Source, resolve
from gpufeed.formats.recordio.content import encode_tensors
from gpufeed.tensor import LoDTensor

TENSORS = [
    encode_tensors([LoDTensor([[1.5], [2.5]], lod=[[0, 2, 2]]), LoDTensor([7])]),
    encode_tensors([]),
]
# Each starts as a good file: of what format, and what is in it.
FILES = {
    "text": ("text", "first line\nzweite Zeile: ä\r\n\n".encode()),
    "csv": ("csv", b'name,age\n"a, ""b""\n",1\nc,2\n'),
    "idx": ("idx", bytes([0, 0, 0x0B, 2]) + struct.pack(">2I6h", 3, 2, *range(6))),
    "svmlight": ("svmlight", b"+1 qid:3 1:0.5 3:1 7:2e3 # note\n-1\n\n0.5 2:1\n"),
    "recordio": ("recordio", chunk(b"ab", b"") + chunk(b"c") + chunk(b"de", dialect="go")),
    "recordio, gzip": ("recordio", chunk(b"ab", b"", dialect="go", compressor="gzip") * 2),
    "recordio, snappy": ("recordio", FLUID_SNAPPY + GO_SNAPPY),
    "recordio, tensors": ("recordio", chunk(*TENSORS)),
}
OPTIONS = {
    "csv": {"columns": ["name", 1], "dtypes": {"age": "int8"}},
    "svmlight": {"dim": 7, "query_id": True},
    "recordio, tensors": {"tensors": True},
}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", FILES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(inside=edits(), outside=edits(), skip=st.integers(0, 4))
@example(inside=lambda content: content, outside=lambda content: content, skip=0)
def test_damage_is_a_format_error(
    tmp_path: Path,
    name: str,
    suffix: str,
    inside: Callable[[bytes], bytes],
    outside: Callable[[bytes], bytes],
    skip: int,
) -> None:
    tag, content = FILES[name]
    if "snappy" in name:
        pytest.importorskip("cramjam", reason="needs cramjam")
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(outside(COMPRESS[suffix](inside(content))))

    samples = resolve(f"{tag}:")[0].opener(Source(str(path)), **OPTIONS.get(name, {}))
    rest = samples.tail(skip) if isinstance(samples, Seekable) else iter(samples)
    refused = None
    try:
        num_samples = sum(1 for _ in islice(rest, 10_000))
    except FormatError as error:
        refused = str(error)

    assert num_samples < 10_000 if refused is None else refused.startswith(str(path))
