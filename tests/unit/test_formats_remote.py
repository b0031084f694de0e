from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.compressed import COMPRESS
from support.recordio import chunk
from support.web import serving

from gpufeed import creator
from gpufeed.errors import FormatError, MissingExtra, MissingFile
from gpufeed.formats import Source, locate

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
pytest.importorskip("aiohttp", reason="needs fsspec[http]")
known_implementations = pytest.importorskip("fsspec.registry").known_implementations
asyn = pytest.importorskip("fsspec.asyn")
# fsspec keeps one thread for all its life: begun here, it is no leak of the first test.
asyn.get_loop()


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(autouse=True)
def _close_sessions() -> Iterator[None]:
    yield
    from fsspec.implementations.http import HTTPFileSystem

    for system in HTTPFileSystem._cache.values():
        if system._session is not None:
            asyn.sync(asyn.get_loop(), system._session.close)
    HTTPFileSystem.clear_instance_cache()


def read(url: str) -> bytes:
    with Source(url).open() as stream:
        return stream.read()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_url_is_read_and_decompressed(memory: Any, suffix: str) -> None:
    memory.pipe(f"/data/a.txt{suffix}", COMPRESS[suffix](b"one\ntwo\n"))

    reader = creator.open(f"memory://data/a.txt{suffix}")

    assert list(reader()) == ["one", "two"]
    assert list(reader()) == ["one", "two"]


def test_patterns_give_the_urls_of_files(memory: Any) -> None:
    for name in ["b.txt", "a.txt", "c.csv"]:
        memory.pipe(f"/data/{name}", b"x")

    assert [source.path for source in locate("memory://data/*.txt")] == [
        "memory:///data/a.txt",
        "memory:///data/b.txt",
    ]
    assert list(creator.open("text:memory://data/*.txt")()) == ["x", "x"]
    with pytest.raises(MissingFile, match=r"memory://data/\*.svm: no file matches"):
        locate("memory://data/*.svm")


def test_urls_may_be_chained(memory: Any, tmp_path: Any) -> None:
    memory.pipe("/data/a.txt", b"x")

    (source,) = locate("simplecache::memory://data/*.txt")

    assert source.path == "simplecache::memory:///data/a.txt"
    assert read(source.path) == b"x"


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_web_is_read_with_and_without_ranges(ranges: bool, suffix: str) -> None:
    # More than fsspec asks for at once, which without ranges would be refused.
    text = b"".join(b"%09d\n" % number for number in range(700_000))
    with serving({f"a.txt{suffix}": COMPRESS[suffix](text)}, ranges=ranges) as (address, sent):
        assert read(f"{address}/a.txt{suffix}?token=1") == text

    assert any("bytes" in line for line in sent) == ranges


def test_a_web_server_with_ranges_sends_what_is_read_only() -> None:
    content = bytes(20 << 20)
    with (
        serving({"a": content}, ranges=True) as (address, sent),
        (source := Source(f"{address}/a")).open() as stream,
    ):
        assert source.measure(stream) == len(content)
        stream.seek(19 << 20)
        assert len(stream.read()) == 1 << 20

    asked = [line.split()[-1].split("/")[0].split("-") for line in sent if "bytes" in line]
    assert sum(int(last) - int(first) + 1 for first, last in asked) < len(content) // 2


@pytest.mark.parametrize("ranges", [True, False])
def test_records_behind_a_url_are_skipped_and_salvaged(ranges: bool) -> None:
    chunks = [chunk(b"%d" % number, b"x" * 3_000_000) for number in range(8)]
    chunks[2] = chunk(b"lost", checksum=1)
    content = b"".join(chunks)
    with serving({"a.rec": content}, ranges=ranges) as (address, _):
        found = list(creator.recordio(f"{address}/a.rec", on_error="skip"))
        reader = creator.recordio(f"{address}/a.rec")
        last = list(reader.open(0, 13))

    assert found[::2] == [b"%d" % number for number in (0, 1, 3, 4, 5, 6, 7)]
    assert [len(record) for record in last] == [1, 3_000_000]


def test_a_web_server_without_ranges_is_a_stream() -> None:
    with (
        serving({"a": b"hello"}, ranges=False) as (address, _),
        (source := Source(f"{address}/a")).open() as stream,
    ):
        assert not stream.seekable()
        assert source.measure(stream) is None
        assert stream.read() == b"hello"
        with pytest.raises(OSError, match="a: its server does not send parts of files"):
            stream.raw.seek(0)


def test_a_web_page_with_links_can_be_matched() -> None:
    with serving({"b.txt": b"b", "a.txt": b"a", "c.csv": b""}, ranges=True) as (address, _):
        assert [source.path for source in locate(f"{address}/*.txt")] == [
            f"{address}/a.txt",
            f"{address}/b.txt",
        ]


def test_a_question_mark_is_no_pattern() -> None:
    assert locate("http://host/a.csv?x=[1]") == [Source("http://host/a.csv?x=[1]")]
    assert Source("http://host/a.csv.gz?x=b.xz").stem == "http://host/a.csv"


def test_missing_files_are_named(memory: Any) -> None:
    with serving({}, ranges=True) as (address, _):
        for url in ("memory://no/such.txt", f"{address}/none.txt"):
            with pytest.raises(MissingFile, match=f"^{url}: no such file$"):
                read(url)


def test_what_a_server_says_is_a_format_error_with_the_url() -> None:
    with (
        serving({}, ranges=True) as (address, _),
        pytest.raises(FormatError, match=f"^{address}/broken: cannot be opened: 500"),
    ):
        read(f"{address}/broken")


def test_a_server_that_is_not_there_is_a_format_error_with_the_url() -> None:
    with serving({}, ranges=True) as (address, _):
        pass
    with pytest.raises(FormatError, match=f"^{address}/a: cannot be "):
        read(f"{address}/a")
    with pytest.raises(FormatError, match=rf"^{address}/\*: cannot be listed: "):
        locate(f"{address}/*")


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (TimeoutError(), FormatError, "cannot be read: TimeoutError"),
        (KeyError("reset by peer"), FormatError, "cannot be read: 'reset by peer'"),
        (FileNotFoundError("/a.txt"), MissingFile, "no such file"),
    ],
)
def test_a_failure_in_the_middle_names_the_url(memory, monkeypatch, failure, kind, message) -> None:
    memory.pipe("/a.txt", b"line\n" * 100_000)

    def fail(*_: object) -> bytes:
        raise failure

    lines = iter(creator.text_file("memory://a.txt"))
    assert next(lines) == "line"
    monkeypatch.setattr(type(memory.store["/a.txt"]), "read", fail)
    with pytest.raises(kind, match=f"^memory://a.txt: {message}$") as caught:
        list(lines)
    assert caught.value.__cause__ is failure


def test_an_unknown_protocol_is_named() -> None:
    with pytest.raises(FormatError, match=r"^nosuch://a: cannot be opened: Protocol not known"):
        read("nosuch://a")


def test_the_package_of_a_protocol_is_named(monkeypatch: Any) -> None:
    known = {"class": "no_such_package.System", "err": "Install no_such_package to use this"}
    monkeypatch.setitem(known_implementations, "nopackage", known)

    with pytest.raises(MissingExtra, match=r"^nopackage://a: Install no_such_package to use this"):
        read("nopackage://a")


def test_without_fsspec_the_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)

    with pytest.raises(MissingExtra, match=r"pip install 'gpufeed\[remote\]'"):
        read("memory://a")
