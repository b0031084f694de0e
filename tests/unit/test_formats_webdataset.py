from __future__ import annotations

import gzip
import io
import os
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpufeed import creator
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Seekable, Source
from gpufeed.formats.source import PIECE_NBYTES
from gpufeed.formats.webdataset import WebDatasetFile

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
SUFFIXES = [".tar", ".tar.gz"]


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def tar_bytes(
    *members: tuple[str | tarfile.TarInfo, bytes], layout: int = tarfile.PAX_FORMAT
) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=layout) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def link(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def write(path: Path, content: bytes, **options: Any) -> WebDatasetFile:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return WebDatasetFile(Source(str(path)), **options)


SAMPLES = [
    ("train/0001.jpg", b"\xff\xd8" * 700),
    ("train/0001.json", b'{"x": [1]}'),
    ("train/0001.seg.PNG", b"png"),
    ("train/0002.jpg", b""),
    ("train/0002.cls", b"7\n"),
    ("other/0002.txt", "ä".encode()),
    ("0003.txt", b"x" * 512),
]
KEYS = ["train/0001", "train/0002", "other/0002", "0003"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", FORMATS)
def test_files_are_grouped_by_key(tmp_path: Path, suffix: str, layout: str) -> None:
    file = write(tmp_path / f"a{suffix}", tar_bytes(*SAMPLES, layout=FORMATS[layout]))

    samples = list(file)

    assert samples == [
        {"__key__": KEYS[0], "jpg": b"\xff\xd8" * 700, "json": b'{"x": [1]}', "seg.png": b"png"},
        {"__key__": KEYS[1], "jpg": b"", "cls": b"7\n"},
        {"__key__": KEYS[2], "txt": "ä".encode()},
        {"__key__": KEYS[3], "txt": b"x" * 512},
    ]
    assert isinstance(file, Seekable)
    assert file.count() == 4
    for skip in range(6):
        assert list(file.tail(skip)) == samples[skip:]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", ["gnu", "pax"])
def test_long_names_are_whole(tmp_path: Path, suffix: str, layout: str) -> None:
    key = "ü" * 70 + "/" + "d" * 200 + "/key"
    content = tar_bytes((f"{key}.txt", b"a"), (f"{key}.cls", b"1"), layout=FORMATS[layout])

    assert list(write(tmp_path / f"a{suffix}", content)) == [
        {"__key__": key, "txt": b"a", "cls": b"1"}
    ]


def test_names_that_are_no_field_are_left_out(tmp_path: Path) -> None:
    names = ["README", ".hidden.txt", "a/._0001.txt", "0001.", "./0001.txt", "..", "a.b/c"]
    content = tar_bytes(*((name, b"x") for name in names))

    assert list(write(tmp_path / "a.tar", content)) == [{"__key__": "./0001", "txt": b"x"}]


def test_folders_are_passed_over(tmp_path: Path) -> None:
    content = tar_bytes(("a.x", b"1"), (link("sub.dir", tarfile.DIRTYPE), b""), ("a.y", b"2"))

    assert list(write(tmp_path / "a.tar", content)) == [{"__key__": "a", "x": b"1", "y": b"2"}]


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
    ],
)
def test_nothing_is_followed(tmp_path: Path, kind: bytes, got: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    content = tar_bytes(("a.x", b"1"), (link("b.txt", kind, str(secret)), b""))
    samples = iter(write(tmp_path / "a.tar", content))

    with pytest.raises(FormatError, match=rf"a.tar, byte 1024: .* files .* got {got}, 'b.txt'"):
        list(samples)


def test_paths_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    content = tar_bytes(("../up.txt", b"1"), ("/etc/absolute.txt", b"2"))

    keys = [sample["__key__"] for sample in write(tmp_path / "in" / "a.tar", content)]

    assert keys == ["../up", "/etc/absolute"]
    assert sorted(os.listdir(tmp_path)) == ["in"]


def test_sparse_files_in_pax_headers_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}

    with pytest.raises(FormatError, match=r"got a sparse file, 'a.x'"):
        list(write(tmp_path / "a.tar", tar_bytes((info, b"1"))))


def test_sizes_in_pax_headers_count(tmp_path: Path) -> None:
    content = pax_record("size", "5") + plain_header("a.txt", 0) + b"hello".ljust(512, b"\0")

    assert list(write(tmp_path / "a.tar", content + END)) == [{"__key__": "a", "txt": b"hello"}]


def test_a_global_header_is_for_all_that_follow(tmp_path: Path) -> None:
    content = pax_record("size", "2", kind=b"g")
    for name in ("a.txt", "b.txt"):
        content += plain_header(name, 0) + b"ok".ljust(512, b"\0")

    assert [s["txt"] for s in write(tmp_path / "a.tar", content + END)] == [b"ok", b"ok"]


END = bytes(1024)


def plain_header(name: str, size: int, kind: bytes = b"0") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def pax_record(key: str, value: str, kind: bytes = b"x", *, raw: bytes | None = None) -> bytes:
    body = f" {key}={value}\n".encode()
    record = raw or next(b"%d%s" % (n, body) for n in range(999) if len(b"%d%s" % (n, body)) == n)
    return plain_header("pax", len(record), kind) + record.ljust(512, b"\0")


GOOD = tar_bytes(("a.x", b"1" * 600), ("b.x", b"2"), layout=tarfile.USTAR_FORMAT)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"no tar at all",
            "byte 0: expected a tar header or the end mark, got the end .* after 13",
        ),
        (b"no tar" * 100, "byte 0: expected a tar header, got "),
        (GOOD[:1536] + b"x" + GOOD[1537:], "byte 1536: expected a tar header, got bad checksum"),
        (GOOD[:2560], "byte 2560: expected a tar header or the end mark, got the end of the file"),
        (GOOD[:2600], "byte 2560: expected a tar header or the end mark, got the end of the file"),
        (GOOD + GOOD, "expected zeros behind the end mark, got other bytes"),
        (tar_bytes(("a.x", b"1"), ("a.X", b"2")), "byte 1024: .* of 'a' once, got a second 'x'"),
        (tar_bytes(("a.__key__", b"1")), "byte 0: .* of 'a' once, got a second '__key__'"),
        (pax_record("size", "-1") + plain_header("a.x", 0) + END, "byte 1024: .* a size, got '-1'"),
        (pax_record("size", "9" * 30) + plain_header("a.x", 0) + END, "byte 1024: .* a size, got"),
        (pax_record("", "", raw=b"5 a=\n99 b=c\n"), r"byte 517: .* a pax record, got '?b?'99 b=c"),
        (pax_record("", "", raw=b"3 a=\n"), "byte 512: expected a pax record"),
        (pax_record("", "", raw=b"no record"), "byte 512: expected a pax record"),
        (
            plain_header("x", 2**21, tarfile.GNUTYPE_LONGNAME) + bytes(2**21),
            "byte 0: expected an extended header of at most 1048576 bytes, got 2097152",
        ),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damage_names_the_byte(tmp_path: Path, suffix: str, content: bytes, message: str) -> None:
    file = write(tmp_path / f"a{suffix}", content)

    with pytest.raises(FormatError, match=f"a{suffix}, .*{message}"):
        list(file)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_samples_before_the_damage_arrive(tmp_path: Path, suffix: str) -> None:
    content = tar_bytes(("a.x", b"1"), ("b.x", b"2" * 700), layout=tarfile.USTAR_FORMAT)[:2100]
    samples = iter(write(tmp_path / f"a{suffix}", content))

    assert next(samples)["x"] == b"1"
    with pytest.raises(FormatError, match=r"byte 1536: expected 700 bytes of 'b.x', got the end"):
        next(samples)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("size", [10**9, 8**12, -5])
def test_memory_follows_the_file_and_not_its_header(tmp_path: Path, size: int, suffix: str) -> None:
    file = write(tmp_path / f"a{suffix}", plain_header("a.x", size) + b"data" * 128)

    tracemalloc.start()
    try:
        for use in (file.count, lambda: list(file), lambda: list(file.tail(1))):
            with pytest.raises(FormatError, match=r"expected (a size|data|1000000000|68719476736)"):
                use()
        assert tracemalloc.get_traced_memory()[1] < 4 * PIECE_NBYTES
    finally:
        tracemalloc.stop()


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_known_suffixes_are_decoded_on_request(tmp_path: Path) -> None:
    members = [
        ("a.json", b'{"x": [1, null]}'),
        ("a.caption.txt", "ä".encode()),
        ("a.cls", b" 12\n"),
        ("a.npy", npy_bytes(ARRAY)),
        ("a.jpg", b"\xff"),
    ]
    (sample,) = write(tmp_path / "a.tar", tar_bytes(*members), decode=True)

    np.testing.assert_array_equal(sample.pop("npy"), ARRAY)
    assert sample == {
        "__key__": "a",
        "json": {"x": [1, None]},
        "caption.txt": "ä",
        "cls": 12,
        "jpg": b"\xff",
    }


OBJECTS = io.BytesIO()
np.save(OBJECTS, np.array([{}], object), allow_pickle=True)


@pytest.mark.parametrize(
    ("field", "data", "message"),
    [
        ("json", b"{", r"expected json in b.json, got b'{' \(.*\)"),
        ("json", b"[" * 100_000, "expected json in b.json, got"),
        ("txt", b"\xff", "expected txt in b.txt, got"),
        ("cls", b"cat", "expected cls in b.cls, got b'cat'"),
        ("npy", OBJECTS.getvalue(), "expected npy in b.npy, .*pickles are not opened"),
        ("x.npy", npy_bytes(ARRAY)[:-1], "expected npy in b.x.npy, .*expected 24 bytes of data"),
    ],
)
def test_what_cannot_be_decoded_is_named_or_skipped(
    tmp_path: Path, field: str, data: bytes, message: str
) -> None:
    path = tmp_path / "a.tar"
    content = tar_bytes(("a.cls", b"1"), (f"b.{field}", data), ("c.cls", b"3"))
    samples = iter(write(path, content, decode=True))

    assert next(samples)["cls"] == 1
    with pytest.raises(FormatError, match=f"a.tar, byte 1024: {message}"):
        next(samples)
    kept = creator.webdataset(path, decode=True, on_error="skip")
    assert [sample["cls"] for sample in kept] == [1, 3]
    assert len(list(creator.webdataset(path))) == 3


def test_the_creator_reads_shards_one_after_the_other(tmp_path: Path) -> None:
    write(tmp_path / "0.tar", tar_bytes(("a.cls", b"0"), ("b.cls", b"1")))
    write(tmp_path / "1.tar.gz", tar_bytes(("a.cls", b"2")))
    paths = [tmp_path / "0.tar", tmp_path / "1.tar.gz"]

    for reader in (creator.webdataset(paths, decode=True), creator.open(paths, decode=True)):
        assert [sample["cls"] for sample in reader] == [0, 1, 2]
        for skip in range(4):
            assert [sample["cls"] for sample in reader.open(0, skip)] == [0, 1, 2][skip:]
    parts = [creator.webdataset(paths, decode=True, shard=(2, index)) for index in range(2)]
    assert [[sample["cls"] for sample in part] for part in parts] == [[0, 1], [2]]
    with pytest.raises(FieldError, match=r"webdataset.shard"):
        creator.webdataset(paths, shard="all")


def test_options_of_other_names_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="columns"):
        creator.open("a.tar", columns=["jpg"])


def test_numbers_in_binary_headers_are_read(tmp_path: Path) -> None:
    # GNU's way to write sizes that do not fit eleven octal digits.
    header = bytearray(plain_header("a.txt", 0))
    header[124:136] = b"\x80" + (5).to_bytes(11, "big")
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:]) + 8 * 32)

    content = bytes(header) + b"hello".ljust(512, b"\0") + END
    assert list(write(tmp_path / "a.tar", content)) == [{"__key__": "a", "txt": b"hello"}]
