"""Files behind URLs, through fsspec: ``http://``, ``s3://``, ``memory://`` and what else it knows.

Credentials and options come from where fsspec takes them: its configuration files and the
environment. Whatever its file systems raise becomes an error of this package that names the URL.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpufeed.errors import FormatError, GpufeedError, MissingExtra, MissingFile, import_extra

__all__ = ["RemoteFile", "is_url", "match_urls", "open_url"]


def is_url(path: str) -> bool:
    """Return whether ``path`` is a URL, chained ones such as ``simplecache::s3://...`` included."""
    return "://" in path


def open_url(url: str) -> io.BufferedReader:
    """Open the file behind a URL.

    A web server that answers requests for ranges is asked for what is read; from another one the
    file is streamed.

    Raises:
        MissingFile: There is no such file.
        FormatError: It cannot be opened.
        MissingExtra: fsspec, or the package behind this kind of URL, is not installed.
    """
    with _naming(url, "opened"):
        system, path = _resolve(url)
        file = system.open(path, "rb")
        seeks = "http" not in system.protocol or _sends_parts(file)
        if not seeks:
            file.close()
            file = system.open(path, "rb", block_size=0)
    return io.BufferedReader(RemoteFile(url, file, seeks=seeks))


def match_urls(pattern: str) -> list[str]:
    """Return the sorted URLs of the files that match ``pattern``.

    Raises:
        FormatError: The file system cannot list its files.
        MissingExtra: As for `open_url`.
    """
    with _naming(pattern, "listed"):
        system, path = _resolve(pattern)
        found = sorted(system.glob(path))
    return [_with_name(pattern, name) for name in found]


class RemoteFile(io.RawIOBase):
    """What `open_url` buffers: a file of fsspec whose errors name its URL."""

    def __init__(self, url: str, file: Any, *, seeks: bool) -> None:
        self._url = url
        self._file = file
        self._seeks = seeks

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether bytes can be left unread."""
        return self._seeks

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the front; return with how many bytes."""
        with _naming(self._url, "read"):
            piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def tell(self) -> int:
        """Return the position."""
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, and return the position."""
        if not self._seeks:
            raise io.UnsupportedOperation(f"{self._url}: its server does not send parts of files")
        with _naming(self._url, "read"):
            return int(self._file.seek(offset, whence))

    def close(self) -> None:
        """Close the file; idempotent."""
        if not self.closed:
            self._file.close()
        super().close()


def _resolve(url: str) -> tuple[Any, str]:
    return import_extra("fsspec.core", "remote").url_to_fs(url)  # type: ignore[no-any-return]


def _sends_parts(file: Any) -> bool:
    """Ask for the last byte: few web servers say beforehand whether they can send it alone."""
    try:
        file.seek(-1, io.SEEK_END)
        file.read(1)
        file.seek(0)
    except ValueError:  # fsspec's, of a stream and of a server that begins at the beginning
        return False
    return True


def _with_name(url: str, name: str) -> str:
    """Put a file's name, as its file system lists it, into the URL that it was found through."""
    parts = url.split("::")
    # Of a chain, the first part with a path is the one that was listed.
    listed = next(i for i, part in enumerate(parts) if is_url(part))
    protocol = parts[listed].partition("://")[0]
    parts[listed] = name if is_url(name) else f"{protocol}://{name}"
    return "::".join(parts)


@contextmanager
def _naming(url: str, done: str) -> Iterator[None]:
    try:
        yield
    except GpufeedError:
        raise
    except FileNotFoundError as error:
        if (reason := _web_error(error)) is None:
            raise MissingFile(f"{url}: no such file") from error
        raise FormatError(f"{url}: cannot be {done}: {reason}") from error
    except ImportError as error:  # fsspec says which package to install
        raise MissingExtra(f"{url}: {error}") from error
    except Exception as error:
        # Every file system has exceptions of its own, of no common kind.
        reason = str(error) or type(error).__name__
        raise FormatError(f"{url}: cannot be {done}: {reason}") from error


def _web_error(error: FileNotFoundError) -> str | None:
    """Return what else is wrong; fsspec's web client calls everything "not found"."""
    cause = error.__cause__
    is_of_web = type(cause).__module__.startswith("aiohttp")
    return str(cause) if is_of_web and getattr(cause, "status", None) != 404 else None
