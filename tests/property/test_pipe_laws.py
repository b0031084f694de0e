"""Lines of a command: what they are does not depend on where buffers end, nor on compression."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.compressed import COMPRESS

from gpufeed.compression import COMPRESSIONS
from gpufeed.reader import PipeReader

FILE_TYPES = {"plain": "", **{word: suffix for suffix, word in COMPRESSIONS.items()}}

# Few characters, so that breaks and their beginnings are frequent, of one to four bytes.
texts = st.text("ab\n\r\u00e4\u20ac\U0001f600", max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    text=texts,
    line_break=st.text("ab\n\u00e4", min_size=1, max_size=3),
    bufsize=st.integers(1, 12),
    file_type=st.sampled_from(sorted(FILE_TYPES)),
)
def test_lines_are_what_splitting_gives(
    tmp_path: Path, text: str, line_break: str, bufsize: int, file_type: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(COMPRESS[FILE_TYPES[file_type]](text.encode()))
    reader = PipeReader(["cat", str(path)], bufsize, file_type)
    *expected, rest = text.split(line_break)
    expected += [rest] if rest else []

    assert list(reader.get_line(line_break=line_break)) == expected
    assert "".join(reader.get_line(cut_lines=False)) == text
