"""Damaged files: whatever the bytes, a format yields samples or raises FormatError."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpufeed.errors import FormatError
from gpufeed.formats import Seekable, Source, resolve

# Each starts as a good file.
FILES = {
    "text": "first line\nzweite Zeile: ä\r\n\n".encode(),
    "csv": b'name,age\n"a, ""b""\n",1\nc,2\n',
    "idx": bytes([0, 0, 0x0B, 2]) + struct.pack(">2I6h", 3, 2, *range(6)),
    "svmlight": b"+1 qid:3 1:0.5 3:1 7:2e3 # note\n-1\n\n0.5 2:1\n",
}
OPTIONS = {
    "csv": {"columns": ["name", 1], "dtypes": {"age": "int8"}},
    "svmlight": {"dim": 7, "query_id": True},
}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
TELLING = [b"\0", b"\xff", b"\n", b'"', b":", b"_", b"-", b"nan", b"1e999", b"9" * 30, b"\xc3"]


@st.composite
def edits(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A few replacements, insertions and deletions at places given as fractions of the length."""
    changes = draw(
        st.lists(
            st.tuples(
                st.floats(0, 1),
                st.integers(0, 6),
                st.sampled_from(TELLING) | st.binary(max_size=6),
            ),
            max_size=4,
        )
    )

    def apply(content: bytes) -> bytes:
        for where, width, new in changes:
            at = int(where * len(content))
            content = content[:at] + new + content[at + width :]
        return content

    return apply


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("tag", FILES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(inside=edits(), outside=edits(), skip=st.integers(0, 4))
@example(inside=lambda content: content, outside=lambda content: content, skip=0)
def test_damage_is_a_format_error(
    tmp_path: Path,
    tag: str,
    suffix: str,
    inside: Callable[[bytes], bytes],
    outside: Callable[[bytes], bytes],
    skip: int,
) -> None:
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(outside(COMPRESS[suffix](inside(FILES[tag]))))

    samples = resolve(f"{tag}:")[0].opener(Source(str(path)), **OPTIONS.get(tag, {}))
    rest = samples.tail(skip) if isinstance(samples, Seekable) else iter(samples)
    refused = None
    try:
        num_samples = sum(1 for _ in islice(rest, 10_000))
    except FormatError as error:
        refused = str(error)

    assert num_samples < 10_000 if refused is None else refused.startswith(str(path))
