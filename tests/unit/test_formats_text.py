from __future__ import annotations

from pathlib import Path

import pytest

from gpufeed.errors import FormatError
from gpufeed.formats import Source
from gpufeed.formats.text import read_text


def read(tmp_path: Path, content: bytes) -> list[str]:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    return list(read_text(Source(str(path))))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\rc\n", ["a", "b", "c"]),
        (b"\n\n", ["", ""]),
        (b" a\t \n", [" a\t "]),
        ("é\u2028ü\x0c\n".encode(), ["é\u2028ü\x0c"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_lines(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert read(tmp_path, content) == lines


def test_lines_before_the_bad_byte_arrive(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("gut\nschön\nsch\xf6n\n".encode("latin-1").replace(b"\xf6", b"\xc3\xb6", 1))
    lines = read_text(Source(str(path)))

    assert [next(lines), next(lines)] == ["gut", "schön"]
    with pytest.raises(FormatError, match="line 3, character 4: expected UTF-8, got byte 0xf6"):
        next(lines)


def test_a_character_cut_by_the_end_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="line 1, character 2: expected UTF-8, got byte 0xc3"):
        read(tmp_path, b"a\xc3")
