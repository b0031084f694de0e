"""Lines from a command: what a program writes to its standard output, as it writes it.

Lifetime: a pass starts the command and ends it. Leaving the loop early, dropping the iterator or
ending the interpreter kills the command with everything in its process group and reaps it. A
command may have nothing to say for long: where a thread of another stage waits for it, that stage's
end kills it, too, and so wakes the thread. What it writes to stderr goes to a temporary file, whose
end is quoted when it fails.
"""

from __future__ import annotations

import codecs
import io
import os
import shlex
import signal
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from tempfile import TemporaryFile
from typing import IO, cast
from weakref import finalize

from gpufeed.checks import whole_number
from gpufeed.compression import COMPRESSIONS, damage_of, decompressed
from gpufeed.device.threads import ThreadGroup, closed_early
from gpufeed.errors import FieldError, FormatError, MissingFile, ReaderError
from gpufeed.reader.base import Reader
from gpufeed.reader.opening import drain
from gpufeed.workers.ending import exit_status
from gpufeed.workers.interrupts import uninterrupted

__all__ = ["PipeReader"]

FILE_TYPES = ("plain", *COMPRESSIONS.values())

_TAIL_NBYTES = 2000
_MAX_NBYTES = 1 << 24  # at once: so much is allocated before it is known what there is


class PipeReader(Reader[str]):
    r"""Read the lines that a command writes, without their line breaks.

    >>> list(PipeReader(["printf", "one\ntwo"]))
    ['one', 'two']

    Every pass runs the command anew. It gets no input, and no shell takes part: for pipes and
    patterns name one, as in ``["sh", "-c", "cat part-* | sort"]``.

    Args:
        command: Program and arguments; a text is split as a shell would split it.
        bufsize: Most bytes that are taken from the command at once.
        file_type: Of what it writes: ``"plain"``, ``"gzip"``, ``"bz2"``, ``"xz"`` or ``"zstd"``.

    Raises:
        FieldError: ``command`` names no program, ``bufsize`` is not a whole number >= 1, or
            ``file_type`` is another.
        MissingFile: On iteration: there is no such program.
        ReaderError: On iteration: the command cannot be started, or ends with an exit status other
            than 0, after the lines that it wrote; what it broke off in a line is dropped. Where
            this process ignores SIGCHLD no status is known, which is an error, too.
        FormatError: On iteration: what it writes is not UTF-8, or no data of ``file_type``.
        MissingExtra: On iteration: ``file_type`` needs a package that is not installed.

    Source: ``paddle.reader.PipeReader``; here the last line needs no line break, characters may
    cross the edges of buffers, and a command that fails is an error.
    """

    def __init__(
        self, command: str | Sequence[str], bufsize: int = 8192, file_type: str = "plain"
    ) -> None:
        self._arguments = _arguments(command)
        self._bufsize = whole_number("PipeReader.bufsize", bufsize, minimum=1)
        if file_type not in FILE_TYPES:
            known = ", ".join(map(repr, FILE_TYPES))
            raise FieldError(f"PipeReader.file_type must be one of {known}, got {file_type!r}")
        super().__init__("PipeReader", command=self._arguments, file_type=file_type)
        self._compression = "" if file_type == "plain" else file_type

    def open(self, epoch: int, skip: int) -> Iterator[str]:
        """Run the command, and drop its first ``skip`` lines."""
        with closing(self.get_line()) as lines:
            drain(lines, skip)
            yield from lines

    def get_line(
        self, cut_lines: bool = True, line_break: str = "\n"
    ) -> Generator[str, None, None]:
        r"""Run the command and yield what it writes.

        >>> list(PipeReader(["printf", "one;two;"]).get_line(line_break=";"))
        ['one', 'two']

        Args:
            cut_lines: False yields text as it comes, wherever it is cut.
            line_break: Between lines; anything but the empty text.

        Raises:
            FieldError: ``line_break`` is no text, or empty.
        """
        if not isinstance(line_break, str) or not line_break:
            raise FieldError(f"PipeReader.line_break must be a text, got {line_break!r}")
        return self._run(line_break if cut_lines else None)

    def _run(self, line_break: str | None) -> Generator[str, None, None]:
        command = _Command(self._arguments)
        try:
            # A group without threads: it is closed with the stage on whose thread this runs.
            with ThreadGroup(self.name, command) as group:
                group.require_open()  # what it has written by now is wanted by nobody
                blocks = self._blocks(command)
                if line_break is None:
                    yield from _decoded(blocks, command)
                else:
                    yield from _lines(blocks, line_break.encode(), command)
        finally:
            command.end()

    def _blocks(self, command: _Command) -> Iterator[bytes]:
        """Yield what the command writes, and raise if it failed."""
        damage = damage_of(self._compression)
        nbytes = min(self._bufsize, _MAX_NBYTES)
        try:
            if command.output.peek(1):
                stream = command.output
                if self._compression:
                    stream = decompressed(stream, self._compression)
                yield from iter(lambda: stream.read1(nbytes), b"")
        except damage as error:
            # Data that ends too early does so because the command ended.
            if isinstance(error, EOFError) or command.is_closed:
                command.check_ended()
            raise FormatError(f"{command}: cannot be read: {error}") from error
        command.check_ended()


class _Command:
    """A command that runs, or has run.

    Attributes:
        output: What it writes.
        is_closed: Whether it was killed because nobody wants what it writes.
    """

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self.is_closed = False
        self._owner = os.getpid()
        try:
            with ExitStack() as undo:
                with uninterrupted():
                    self._errors = undo.enter_context(TemporaryFile())
                    # With a process group of its own, all of a pipeline can be killed.
                    self._process = subprocess.Popen(
                        arguments,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=self._errors,
                        process_group=0,
                    )
                    self.end = finalize(self, _end, self._owner, self._process, self._errors)
                    undo.callback(self.end)
                undo.pop_all()
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                raise MissingFile(f"{self}: no such program as {arguments[0]!r}") from error
            raise ReaderError(f"{self} cannot be started: {error}") from error
        # A pipe is buffered, which the type of `Popen.stdout` does not say.
        self.output = cast("io.BufferedReader", self._process.stdout)
        # At exit its thread group closes it: killed by anyone else, it would be one that failed.
        self.end.atexit = False

    def __str__(self) -> str:
        return f"PipeReader of {shlex.join(self._arguments)}"

    def close(self) -> None:
        """Kill the command, so that its output ends; idempotent, from any thread."""
        self.is_closed = True
        _kill(self._owner, self._process)

    def check_ended(self) -> None:
        """Wait for the end of the command, which has closed its output.

        Raises:
            ReaderError: It failed.
            ClosedEarly: It was killed by `close`; see `closed_early`.
        """
        status = exit_status(self._process)
        if self.is_closed:
            raise closed_early()
        if status == 0:
            return
        if status is None:
            how = "ended, whether it failed is not known where SIGCHLD is ignored"
        elif status < 0:
            how = f"was killed by {_signal_name(-status)}"
        else:
            how = f"ended with exit status {status}"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL_NBYTES))
        said = self._errors.read().decode(errors="replace").strip()
        raise ReaderError(f"{self} {how}" + (f"; the end of its stderr: {said}" if said else ""))


def _end(owner: int, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """Kill what still runs and reap it; a command that has ended is left alone."""
    _kill(owner, process)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()
    errors.close()


def _kill(owner: int, process: subprocess.Popen[bytes]) -> None:
    # A fork of the process whose command it is ends without it.
    if process.returncode is None and os.getpid() == owner:
        # Not reaped yet, so that its number stands for it and for no other process.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _arguments(command: str | Sequence[str]) -> list[str]:
    try:
        parts = shlex.split(command) if isinstance(command, str) else [*map(os.fspath, command)]
    except (TypeError, ValueError) as error:
        raise FieldError(
            f"PipeReader.command must be a text or a list of texts, got {command!r}: {error}"
        ) from error
    if not parts or not parts[0]:
        raise FieldError(f"PipeReader.command must name a program, got {command!r}")
    return parts


def _lines(blocks: Iterator[bytes], line_break: bytes, command: _Command) -> Iterator[str]:
    num_lines, held, num_searched = 0, bytearray(), 0
    for block in blocks:
        held += block
        if held.find(line_break, num_searched) < 0:
            num_searched = max(0, len(held) - len(line_break) + 1)
            continue
        *lines, held = held.split(line_break)
        num_searched = 0
        for number, line in enumerate(lines, num_lines + 1):
            yield _decode(line, number, command)
        num_lines += len(lines)
    if held:
        yield _decode(held, num_lines + 1, command)


def _decode(line: bytearray, number: int, command: _Command) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{command}, line {number}, byte {error.start}: "
            f"expected UTF-8, got byte 0x{line[error.start]:02x}"
        ) from None


def _decoded(blocks: Iterator[bytes], command: _Command) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for block in blocks:
            if text := decoder.decode(block):
                yield text
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        got = f"byte 0x{error.object[error.start]:02x}"
        raise FormatError(f"{command}: expected UTF-8, got {got}") from None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
