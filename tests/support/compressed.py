"""Every compression that files are read through, by suffix, and how to compress so."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable
from typing import Any


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd
    from backports import zstd

    return zstd


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: _zstd().compress(content),
}
