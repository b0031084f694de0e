"""A web server on this machine, for one test."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(files: Mapping[str, bytes], *, ranges: bool) -> Iterator[tuple[str, list[str]]]:
    """Serve files by name; give the server's address and a list of what it sent, as it grows.

    Args:
        files: Name to content. A name in none of them is missing; ``broken`` always fails.
        ranges: Whether parts of files can be asked for.
    """
    sent: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, files, ranges, sent))
    server.daemon_threads = False  # joined by server_close
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(
        self, files: Mapping[str, bytes], ranges: bool, sent: list[str], *connection: object
    ) -> None:
        self._files, self._ranges, self._sent = files, ranges, sent
        super().__init__(*connection)  # handles the request

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        name = self.path.partition("?")[0].removeprefix("/")
        if name == "":
            self._send(200, self._listing(), "", with_content)
        elif name == "broken":
            self._send(500, b"", "", with_content)
        elif name not in self._files:
            self._send(404, b"", "", with_content)
        else:
            self._send_file(self._files[name], with_content)

    def _send_file(self, content: bytes, with_content: bool) -> None:
        asked = self.headers.get("Range", "")
        if not (self._ranges and asked):
            self._send(200, content, "", with_content)
            return
        first, last = asked.removeprefix("bytes=").split("-")
        begin, end = int(first), min(int(last or len(content)) + 1, len(content))
        part = f"bytes {begin}-{end - 1}/{len(content)}"
        self._send(206, content[begin:end], part, with_content)

    def _send(self, status: int, content: bytes, part: str, with_content: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if self._ranges:
            self.send_header("Accept-Ranges", "bytes")
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        if with_content:
            self._sent.append(f"{self.path} {part}".strip())
            self.wfile.write(content)

    def _listing(self) -> bytes:
        return "".join(f'<a href="{name}">{name}</a>\n' for name in self._files).encode()

    def log_message(self, *message: object) -> None:
        pass
