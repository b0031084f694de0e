from __future__ import annotations

import io
import sys

import pytest
from support.compressed import COMPRESS

from gpufeed.compression import COMPRESSIONS, damage_of, decompressed
from gpufeed.errors import MissingExtra


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_what_is_decompressed_stays_open(suffix: str) -> None:
    raw = io.BytesIO(COMPRESS[suffix](b"hello\nworld\n"))

    with decompressed(raw, COMPRESSIONS[suffix]) as stream:
        assert list(stream) == [b"hello\n", b"world\n"]

    assert not raw.closed


class Piecewise(io.RawIOBase):
    """A pipe: it gives a few bytes at a time and cannot seek."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        return self._content.readinto(memoryview(buffer)[:3])


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_pipe_will_do(suffix: str) -> None:
    text = b"some text, again and again\n" * 1000
    raw = io.BufferedReader(Piecewise(COMPRESS[suffix](text) + COMPRESS[suffix](b"end")))

    assert decompressed(raw, COMPRESSIONS[suffix]).read() == text + b"end"


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("content", [b"plain", b"\0" * 40, None])
def test_damage_is_one_of_a_few_exceptions(suffix: str, content: bytes | None) -> None:
    whole = COMPRESS[suffix](bytes(range(256)) * 99)
    raw = io.BytesIO(whole[:-5] if content is None else content)

    with pytest.raises(damage_of(COMPRESSIONS[suffix])):
        decompressed(raw, COMPRESSIONS[suffix]).read()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Zstandard comes with Python")
def test_without_zstandard_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[zstd\]'"):
        decompressed(io.BytesIO(), "zstd")
    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[zstd\]'"):
        damage_of("zstd")
    assert OSError in damage_of("")
