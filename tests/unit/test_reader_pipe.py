from __future__ import annotations

import gc
import os
import pickle
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from support.compressed import COMPRESS
from support.readers import taken_until

from gpufeed.compression import COMPRESSIONS
from gpufeed.errors import FieldError, FormatError, MissingExtra, MissingFile, ReaderError
from gpufeed.reader import PipeReader, batch, buffered, cache, firstn, pipe, xmap_readers
from gpufeed.testing import assert_resumes_exactly

TEXT = "one\n\nzwei: ä\u20ac\U0001f600\r\nlast"
LINES = ["one", "", "zwei: ä\u20ac\U0001f600\r", "last"]


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def cat(path: Path) -> list[str]:
    return ["cat", str(path)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "with space.txt"
    path.write_text(TEXT, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("bufsize", [1, 2, 3, 7, 8192, 10**30])
def test_lines_whatever_the_buffer(file: Path, bufsize: int) -> None:
    reader = PipeReader(cat(file), bufsize)

    assert list(reader()) == LINES
    assert list(reader.get_line()) == LINES
    assert "".join(reader.get_line(cut_lines=False)) == TEXT


@pytest.mark.parametrize("content", ["", "\n", "\n\n", "a", "a\n", "a\n\nb"])
def test_a_last_line_needs_no_break_and_a_break_no_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_text(content)
    expected = content.removesuffix("\n").split("\n") if content else []

    assert list(PipeReader(cat(tmp_path / "a"))) == expected


@pytest.mark.parametrize("bufsize", [1, 2, 5, 100])
@pytest.mark.parametrize("line_break", ["<>", "ab", "aa", "ä", "\r\n"])
def test_any_text_may_break_lines(tmp_path: Path, line_break: str, bufsize: int) -> None:
    content = f"one{line_break}{line_break}two{line_break[0]}aaa{line_break}ab"
    (tmp_path / "a").write_text(content, encoding="utf-8", newline="")

    found = list(PipeReader(cat(tmp_path / "a"), bufsize).get_line(line_break=line_break))

    assert found == content.removesuffix(line_break).split(line_break)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("bufsize", [1, 8192])
def test_every_compression_of_several_members(tmp_path, suffix, bufsize) -> None:
    half = len(TEXT.encode()) // 2
    packed = COMPRESS[suffix](TEXT.encode()[:half]) + COMPRESS[suffix](TEXT.encode()[half:])
    (tmp_path / "a").write_bytes(packed)

    reader = PipeReader(cat(tmp_path / "a"), bufsize, file_type=COMPRESSIONS[suffix])

    assert list(reader) == LINES


@pytest.mark.parametrize("file_type", ["plain", *COMPRESSIONS.values()])
def test_no_output_is_no_lines(file_type: str) -> None:
    assert list(PipeReader("true", file_type=file_type)) == []


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damaged_output_is_a_format_error_with_the_command(tmp_path, suffix) -> None:
    packed = COMPRESS[suffix](b"line\n" * 100_000)
    for content in (packed[:-9], b"plain text, which is no compressed data", packed[:20] * 9):
        (tmp_path / "a").write_bytes(content)

        _, error = taken_until(PipeReader(cat(tmp_path / "a"), file_type=COMPRESSIONS[suffix]))

        assert isinstance(error, FormatError)
        assert str(error).startswith(f"PipeReader of cat {tmp_path / 'a'}: cannot be read: ")


def test_a_text_is_split_as_a_shell_would(file: Path) -> None:
    assert list(PipeReader(f"cat '{file}'")) == LINES
    assert list(PipeReader('printf "%s " "$HOME | *" two')) == ["$HOME | * two "]


def test_a_shell_is_had_by_naming_it(file: Path) -> None:
    command = f"cat {shlex.quote(str(file))} | tail -n 1"

    assert list(PipeReader(["sh", "-c", command])) == ["last"]


def test_a_command_that_fails_is_an_error_after_its_lines() -> None:
    code = "import sys; print('one'); print('cut', end=''); sys.exit('the reason why')"
    command = python(code)

    found, error = taken_until(PipeReader(command))

    assert found == ["one"]
    assert isinstance(error, ReaderError)
    assert str(error) == (
        f"PipeReader of {shlex.join(command)} ended with exit status 1; "
        "the end of its stderr: the reason why"
    )


def test_of_much_stderr_the_end_is_kept() -> None:
    code = "import sys; sys.stderr.write('x' * 10**6 + '\\xe4nd'); sys.exit(3)"

    with pytest.raises(ReaderError, match=r"exit status 3; the end of its stderr: x{1996,1998}änd"):
        list(PipeReader(python(code)))


def test_a_command_that_is_killed_says_by_what() -> None:
    with pytest.raises(ReaderError, match=r"was killed by SIGTERM$"):
        list(PipeReader(["sh", "-c", "kill -TERM $$"]))
    with pytest.raises(ReaderError, match=r"was killed by signal 40$"):
        list(PipeReader(["sh", "-c", "kill -40 $$"]))


@pytest.mark.parametrize("file_type", COMPRESSIONS.values())
def test_a_failure_that_cuts_compressed_data_is_the_failure(tmp_path, file_type) -> None:
    suffix = next(suffix for suffix, word in COMPRESSIONS.items() if word == file_type)
    (tmp_path / "a").write_bytes(COMPRESS[suffix](os.urandom(100_000))[:50_000])
    command = ["sh", "-c", f"cat {tmp_path / 'a'}; exit 7"]

    with pytest.raises(ReaderError, match="exit status 7"):
        list(PipeReader(command, file_type=file_type).get_line(line_break="no such break"))


def test_what_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"good\nb\xffd\ngood\n")
    reader = PipeReader(cat(tmp_path / "a"))

    found, error = taken_until(reader)

    assert found == ["good"]
    assert isinstance(error, FormatError)
    assert "line 2, byte 1: expected UTF-8, got byte 0xff" in str(error)
    with pytest.raises(FormatError, match="expected UTF-8, got byte 0xff"):
        list(reader.get_line(cut_lines=False))
    (tmp_path / "a").write_bytes("ä".encode()[:1])
    with pytest.raises(FormatError, match="expected UTF-8, got byte 0xc3"):
        list(reader.get_line(cut_lines=False))


def test_no_such_program_is_named() -> None:
    reader = PipeReader("no-such-program --option")
    for _ in range(2):
        with pytest.raises(MissingFile, match="no such program as 'no-such-program'") as caught:
            next(reader())
        assert isinstance(caught.value, FileNotFoundError)


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ReaderError, match=rf"PipeReader of {tmp_path}/a cannot be started: .*ermi"):
        list(PipeReader([str(tmp_path / "a")]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": ""}, "command must name a program, got ''"),
        ({"command": []}, r"command must name a program, got \[\]"),
        ({"command": 7}, "command must be a text or a list of texts, got 7"),
        ({"command": ["cat", 7]}, "command must be a text or a list of texts"),
        ({"command": "cat 'a"}, "command must be a text or a list .* No closing quotation"),
        ({"bufsize": 0}, "bufsize must be a whole number >= 1, got 0"),
        ({"file_type": "zip"}, "file_type must be one of 'plain', 'gzip', 'bz2', .* got 'zip'"),
    ],
)
def test_arguments_are_checked_at_once(arguments, message) -> None:
    with pytest.raises(FieldError, match=f"PipeReader.{message}"):
        PipeReader(**{"command": "true", **arguments})


@pytest.mark.parametrize("line_break", ["", None, b"\n"])
def test_a_line_break_is_a_text(line_break) -> None:
    with pytest.raises(FieldError, match=r"PipeReader.line_break must be a text"):
        PipeReader("true").get_line(line_break=line_break)


def test_it_is_a_reader(file: Path) -> None:
    def make() -> PipeReader:
        return PipeReader(cat(file))

    batches = batch(make(), 2)()
    assert next(batches) == LINES[:2]
    batches.close()
    assert_resumes_exactly(make)
    assert list(pickle.loads(pickle.dumps(make()))) == LINES
    assert "PipeReader" in repr(make())
    assert str(file) in repr(make())
    assert make().identity() != PipeReader("true").identity()


def children() -> set[str]:
    path = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    with open(path) as listed:
        return set(listed.read().split())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("ending", ["break", "raise", "close", "drop", "exhaust", "fail", "skip"])
def test_however_a_pass_ends_nothing_is_left(ending: str) -> None:
    code = "import itertools\nfor i in itertools.count(): print(i, flush=True)"
    command = python(code)
    if ending in ("exhaust", "skip"):
        command = python("print(1)")
    elif ending == "fail":
        command = python("import sys; print(1, flush=True); sys.exit(2)")
    processes, files = children(), descriptors()

    reader = PipeReader(command)
    if ending == "break":
        for _ in reader:
            break
    elif ending == "raise":
        with suppress(KeyError):
            for _ in reader:
                raise KeyError
    elif ending == "close":
        next(reader())
        reader.close()
    elif ending == "drop":
        lines = reader.get_line()
        next(lines)
        del lines
    elif ending == "skip":
        list(reader.open(0, 5))
    else:
        taken_until(reader)
    gc.collect()

    assert children() == processes
    assert descriptors() == files


def test_a_whole_pipeline_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    # The shell is not alone: what it started ends with it.
    lines = PipeReader(["sh", "-c", f"sleep 1000 > {tmp_path / 'held'} & echo begun; wait"])()
    assert next(lines) == "begun"

    with open(tmp_path / "held", "rb") as held:
        lines.close()
        assert held.read() == b""  # comes when the last who could write is dead


def test_interpreter_exit_ends_the_command(tmp_path: Path) -> None:
    script = """
from gpufeed.reader import PipeReader
lines = PipeReader(["sh", "-c", "echo $$; exec sleep 1000"])()
print(next(lines))
raise SystemExit(3)
"""
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)

    assert ended.returncode == 3
    with pytest.raises(ProcessLookupError):
        os.kill(int(ended.stdout), 0)


def test_zstd_that_is_not_installed_names_the_extra(monkeypatch) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("Zstandard comes with Python")
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[zstd\]'"):
        list(PipeReader("true", file_type="zstd"))


def test_first_lines_of_an_endless_command() -> None:
    assert list(firstn(PipeReader("yes"), 3)) == ["y", "y", "y"]


def test_a_fork_of_the_process_leaves_the_command_alone_when_it_ends() -> None:
    script = """
import os
from itertools import islice
from gpufeed.reader import PipeReader

lines = PipeReader("yes")()
next(lines)
if os.fork() == 0:
    raise SystemExit
os.wait()
print(len(list(islice(lines, 500_000))))
"""
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert ended.stdout == b"500000\n"


QUIET = ["sh", "-c", "echo begun; exec sleep 1000"]


@pytest.mark.parametrize(
    "stage",
    [
        lambda reader: buffered(reader, 2),
        lambda reader: buffered(buffered(reader, 1), 1),
        lambda reader: xmap_readers(str, reader, 2, 2, order=True),
    ],
)
def test_a_thread_that_waits_for_a_quiet_command_ends_with_its_stage(stage) -> None:
    lines = stage(PipeReader(QUIET))()
    assert next(lines) == "begun"

    lines.close()  # would warn of a thread that still waits, and leave it and the command


def test_a_cache_does_not_take_a_killed_command_for_the_end() -> None:
    kept = cache(PipeReader(QUIET), lazy=True)
    lines = buffered(kept, 2)()
    assert next(lines) == "begun"

    lines.close()
    assert kept.count() is None


def test_an_interrupt_while_a_command_is_started_leaves_no_file_open(monkeypatch, tmp_path):
    def interrupted():
        fd = os.open(tmp_path / "errors", os.O_CREAT | os.O_RDWR)
        signal.raise_signal(signal.SIGINT)
        return os.fdopen(fd, "w+b")

    monkeypatch.setattr(pipe, "TemporaryFile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(PipeReader("echo 1"))
