from __future__ import annotations

import gc
import gzip
import os
import stat
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recordio import FLUID_PLAIN, FLUID_SNAPPY, GO_SNAPPY, chunk

import gpufeed as gf
from gpufeed import creator
from gpufeed.errors import FieldError, FormatError, MissingExtra
from gpufeed.formats.recordio import RecordIOWriter, writer
from gpufeed.formats.recordio.layout import COMPRESSORS, DIALECTS

RECORDS = [b"a", b"", b"x" * 100_000, bytes(range(256))]


def write(path: Path, records: list[Any], **options: Any) -> bytes:
    with RecordIOWriter(path, **options) as file:
        for record in records:
            file.write(record)
    return path.read_bytes()


def test_it_is_public() -> None:
    assert gf.RecordIOWriter is RecordIOWriter


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("records", [[], [b""], RECORDS])
def test_what_is_written_is_read(tmp_path, records, dialect, compressor) -> None:
    if compressor == "snappy":
        pytest.importorskip("cramjam", reason="needs cramjam")
    path = tmp_path / "a.rec"

    write(path, records, dialect=dialect, compressor=compressor, max_num_records=3)

    assert list(creator.recordio(path)) == records


def test_the_bytes_are_those_of_the_original_writers(tmp_path: Path) -> None:
    pytest.importorskip("cramjam", reason="needs cramjam")
    path = tmp_path / "a"

    assert write(path, [b"ABC", b"BCD"], compressor="none") == FLUID_PLAIN
    assert write(path, [b"ABC", b"BCD"]) == FLUID_SNAPPY
    pickles = [b"(I1\nI2\nI3\ntp1\n.", b"(I4\nI5\nI6\ntp1\n."]
    assert write(path, pickles, dialect="go") == GO_SNAPPY


def test_chunks_are_cut_by_number_and_by_size(tmp_path: Path) -> None:
    options = {"compressor": "none", "max_num_records": 2, "max_chunk_nbytes": 10}

    content = write(
        tmp_path / "a", [b"z" * 11, b"1", b"2", b"3", b"x" * 9, b"y" * 20, b"4"], **options
    )

    assert content == b"".join(
        [chunk(b"z" * 11), chunk(b"1", b"2"), chunk(b"3", b"x" * 9), chunk(b"y" * 20), chunk(b"4")]
    )


def test_bytes_are_copied_from_what_may_change(tmp_path: Path) -> None:
    buffer = bytearray(b"one")
    with RecordIOWriter(tmp_path / "a", compressor="none") as file:
        file.write(buffer)
        buffer[:] = b"two"
        file.write(memoryview(buffer))
        assert file.num_records == 2
        assert file.path == str(tmp_path / "a")

    assert list(creator.recordio(tmp_path / "a")) == [b"one", b"two"]


def test_nothing_is_at_the_path_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(b"old")
    file = RecordIOWriter(path, compressor="none", max_num_records=1)
    for number in range(100):
        file.write(b"%d" % number)

    assert path.read_bytes() == b"old"
    # What is being written matches no pattern that a reader would use.
    assert list(tmp_path.glob("[!.]*")) == [path]
    file.close()
    file.close()
    assert len(list(creator.recordio(path))) == 100
    assert os.listdir(tmp_path) == ["a.rec"]


def test_an_exception_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(b"old")

    def fail() -> None:
        with RecordIOWriter(path, compressor="none") as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.rec"]


def test_discard_is_idempotent_and_final(tmp_path: Path) -> None:
    file = RecordIOWriter(tmp_path / "a", compressor="none")
    file.discard()
    file.discard()
    file.close()

    with pytest.raises(FieldError, match=r"RecordIOWriter of .*a must be open, got a closed one"):
        file.write(b"x")
    with pytest.raises(FieldError, match="must be open"):
        file.append_tensor(gf.LoDTensor([1]))
    assert os.listdir(tmp_path) == []


def test_a_writer_that_is_forgotten_warns_and_leaves_nothing(tmp_path: Path) -> None:
    def forget() -> None:
        RecordIOWriter(tmp_path / "a", compressor="none").write(b"x")
        gc.collect()

    with pytest.warns(ResourceWarning, match="a was not closed, and is forgotten"):
        forget()

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise KeyError", "os.kill(os.getpid(), 9)"])
def test_a_process_that_ends_leaves_no_file_that_looks_whole(tmp_path: Path, ending: str) -> None:
    script = f"""
import os, sys
from gpufeed import RecordIOWriter
file = RecordIOWriter({str(tmp_path / "a.rec")!r}, compressor="none", max_num_records=1)
file.write(b"one")
file.write(b"two")
file.write(b"three")
file._file.flush()
{ending}
"""
    subprocess.run([sys.executable, "-c", script], stderr=subprocess.DEVNULL, check=False)

    left = os.listdir(tmp_path)
    assert "a.rec" not in left
    assert len(left) == ("kill" in ending)
    assert not list(tmp_path.glob("[!.]*"))


def test_a_disk_that_is_full_closes_the_writer(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a"
    file = RecordIOWriter(path, compressor="none", max_num_records=1)
    file.write(b"one")

    class Full:
        name = file._file.name

        def __init__(self, whole: Any) -> None:
            self.close = whole.close

        def write(self, content: bytes) -> int:
            raise OSError(28, "No space left on device")

    file._file = Full(file._file)
    with pytest.raises(OSError, match="No space left"):
        file.write(b"two")
    with pytest.raises(FieldError, match="must be open"):
        file.write(b"three")
    file.close()
    assert os.listdir(tmp_path) == []


def test_a_file_has_the_rights_that_any_new_file_has(tmp_path: Path) -> None:
    write(tmp_path / "a", [b"x"], compressor="none")
    (tmp_path / "b").touch()

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
    assert modes[0] == modes[1]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "a")

    write(tmp_path / "link", [b"x"], compressor="none")

    assert (tmp_path / "link").is_symlink()
    assert list(creator.recordio(tmp_path / "folder" / "a")) == [b"x"]


def test_tensors_are_records(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    tensor = gf.LoDTensor(np.arange(3.0), lod=[[0, 2, 3]])
    with RecordIOWriter(path, compressor="none") as file:
        file.append_tensor(tensor)
        file.append_tensor(gf.LoDTensor([1]))
        file.complete_append_tensor()
        file.append_tensor(tensor)
        file.complete_append_tensor()

    pair, single = creator.recordio(path, tensors=True)
    assert [len(pair), len(single)] == [2, 1]
    assert pair[0].lod() == single[0].lod() == [[0, 2, 3]]


def test_tensors_that_are_not_completed_are_an_error(tmp_path: Path) -> None:
    file = RecordIOWriter(tmp_path / "a", compressor="none")
    file.append_tensor(gf.LoDTensor([1]))

    with pytest.raises(FieldError, match="complete_append_tensor must come first, got 1 tensors"):
        file.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("record", ["text", 7, None, np.zeros(3), (b"a",)])
def test_a_record_is_bytes(tmp_path: Path, record: object) -> None:
    name = type(record).__name__
    with (
        RecordIOWriter(tmp_path / "a", compressor="none") as file,
        pytest.raises(FieldError, match=f"RecordIOWriter.record must be bytes, got {name}"),
    ):
        file.write(record)


def test_what_a_header_cannot_say_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(writer, "MAX_NBYTES", 100)
    with RecordIOWriter(tmp_path / "a", compressor="none", max_chunk_nbytes=200) as file:
        file.write(bytes(96))
        with pytest.raises(FieldError, match="record must be < 4 GiB, got 97 bytes"):
            file.write(bytes(97))
    with pytest.raises(FieldError, match="a chunk must be < 4 GiB, got 104 bytes"):
        write(tmp_path / "b", [b""] * 26, compressor="none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "c"}, "RecordIOWriter.dialect must be one of 'fluid', 'go', got 'c'"),
        ({"compressor": "zip"}, "compressor must be one of 'none', 'snappy', 'gzip', got 'zip'"),
        ({"compressor": None}, "compressor must be one of .* got None"),
        ({"max_num_records": 0}, "max_num_records must be a whole number >= 1, got 0"),
        ({"max_chunk_nbytes": 0.5}, "max_chunk_nbytes must be a whole number >= 1, got 0.5"),
    ],
)
def test_options_are_checked_before_there_is_a_file(tmp_path, options, message) -> None:
    with pytest.raises(FieldError, match=message):
        RecordIOWriter(tmp_path / "a", **{"compressor": "none", **options})
    assert os.listdir(tmp_path) == []


def test_a_fork_of_the_process_leaves_the_file_alone_when_it_ends(tmp_path: Path) -> None:
    script = f"""
import os
from gpufeed import RecordIOWriter

with RecordIOWriter({str(tmp_path / "a.rec")!r}, compressor="none") as writer:
    writer.write(b"one")
    if os.fork() == 0:
        import atexit
        atexit._run_exitfuncs()
        os._exit(0)
    os.wait()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
    assert os.listdir(tmp_path) == ["a.rec"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://bucket/a.rec", "must be a file of this machine"),
        ("a.rec.gz", "must not end in one of .gz, .bz2, .xz, .zst"),
        ("/dev/null", "must be a plain file or a new one"),
        ("/", "must be a plain file or a new one"),
    ],
)
def test_paths_are_checked(path: str, message: str) -> None:
    with pytest.raises(FieldError, match=f"RecordIOWriter.path {message}"):
        RecordIOWriter(path, compressor="none")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none/a.rec: cannot be written: No such file or dir"):
        RecordIOWriter(tmp_path / "none" / "a.rec", compressor="none")


def test_without_snappy_the_extra_is_named_and_nothing_begun(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[snappy\]'"):
        RecordIOWriter(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_gzip_and_zlib_agree_on_what_is_stored(tmp_path: Path) -> None:
    content = write(tmp_path / "a", [b"x" * 1000], compressor="gzip", dialect="go")

    assert gzip.decompress(content[20:])[4:] == b"x" * 1000
    assert int.from_bytes(content[4:8], "little") == zlib.crc32(content[20:])
