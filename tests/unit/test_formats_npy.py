from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpufeed import creator
from gpufeed.errors import FieldError, FormatError
from gpufeed.formats import Seekable, Source
from gpufeed.formats.items import CHUNK_NBYTES
from gpufeed.formats.npy import NpyFile, NpzFile, parse_npy, read_npy

NAMES = ["a.npy", "a.npy.gz"]
DTYPES = ["?", "i1", ">u2", "<i4", ">i8", "f2", ">f4", "c8", "S3", ">U2", "M8[s]", "i4,>f8"]


def npy_bytes(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def with_header(header: object, content: bytes = b"", version: int = 1) -> bytes:
    text = str(header).encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + content


def described(descr: object = "<f8", shape: object = (2,), order: object = False) -> dict[str, Any]:
    return {"descr": descr, "fortran_order": order, "shape": shape}


def write(path: Path, content: bytes) -> NpyFile:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return NpyFile(Source(str(path)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_arrives_in_native_byte_order(
    tmp_path: Path, dtype: str, name: str, order: Any
) -> None:
    array = np.arange(24).reshape(4, 3, 2).astype(dtype, order=order)

    items = list(write(tmp_path / name, npy_bytes(array)))

    np.testing.assert_array_equal(items, array)
    assert all(item.dtype.isnative for item in items)


@pytest.mark.parametrize("name", NAMES)
def test_a_vector_gives_scalars(tmp_path: Path, name: str) -> None:
    items = list(write(tmp_path / name, npy_bytes(np.array([3.5, 1], "f4"))))

    assert [(type(item), item) for item in items] == [(np.float32, 3.5), (np.float32, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_an_array_of_no_items_is_read(tmp_path: Path, name: str) -> None:
    for order in "CF":
        file = write(tmp_path / name, npy_bytes(np.empty((0, 3), order=order)))
        assert (file.count(), list(file)) == (0, [])


def test_writing_to_an_item_stays_in_this_pass(tmp_path: Path) -> None:
    file = write(tmp_path / "a.npy", npy_bytes(np.zeros((2, 2))))

    first, second = file
    first[:] = 7

    assert second.tolist() == [0, 0]
    assert [item.tolist() for item in file] == [[0, 0], [0, 0]]
    assert np.load(tmp_path / "a.npy").tolist() == [[0, 0], [0, 0]]


def test_items_of_a_plain_file_are_views_of_its_map(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.npy", npy_bytes(np.zeros((2, 3))))

    assert second.ctypes.data - first.ctypes.data == 24
    assert first.base is not None


def test_items_outlive_their_pass(tmp_path: Path) -> None:
    items = iter(write(tmp_path / "a.npy", npy_bytes(np.arange(6).reshape(3, 2))))
    first = next(items)
    items.close()

    assert first.tolist() == [0, 1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("skip", [0, 1, 4, 5, 9])
def test_tail_equals_dropping_the_first_items(
    tmp_path: Path, skip: int, name: str, order: Any
) -> None:
    # Items of a third of a chunk, so that skips end inside chunks and chunks inside the file.
    array = np.arange(5, dtype="u1")[:, None].repeat(CHUNK_NBYTES // 3, axis=1)
    file = write(tmp_path / name, npy_bytes(np.asarray(array, order=order)))

    assert isinstance(file, Seekable)
    assert file.count() == 5
    np.testing.assert_array_equal([item[0] for item in file.tail(skip)], array[skip:, 0])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_is_read(tmp_path: Path, version: tuple[int, int]) -> None:
    with io.BytesIO() as file:
        np.lib.format.write_array(file, np.arange(3), version=version)
        content = file.getvalue()

    assert list(write(tmp_path / "a.npy", content)) == [0, 1, 2]


OBJECTS = npy_bytes(np.array([{}, []], object), allow_pickle=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x93NUMP", "expected the npy magic .*, got 93 4e 55 4d 50$"),
        (b"\x93NUMPY\x04\0" + bytes(99), "expected the npy magic .*01..03 00, got .* 04 00"),
        (b"\x93NUMPY\x02\0\xff\xff\xff\xff", "expected at most 65536 bytes, got 4294967295"),
        (npy_bytes(np.zeros(2))[:60], "expected 118 bytes, got 50"),
        (with_header("{"), r"never closed .*, got '{'"),
        (with_header("[" * 9999), r"got '\[\[\["),
        (with_header("exit()"), r"got 'exit\(\)'"),
        (with_header({"shape": (1,)}), "'fortran_order', got"),
        (with_header(described("f99")), "'f99' not understood"),
        (with_header(described(["f8"])), "not understood"),
        (with_header(described(shape=())), "an array with a first axis, got a single value"),
        (with_header(described(shape=(1,) * 33)), "expected at most 32 sizes"),
        (with_header(described(shape=[2])), "expected at most 32 sizes"),
        (with_header(described(shape=(2, -1))), "expected sizes that are whole numbers >= 0"),
        (with_header(described(shape=(True,))), "expected sizes that are whole numbers >= 0"),
        (with_header(described(shape=(0, 10**30))), "expected an array that memory can address"),
        (with_header(described(order=1)), "expected fortran_order True or False"),
        (with_header(described(shape=(9, 0))), r"items of 1 byte or more, got float64 of .*\(9, 0"),
        (with_header(described("<U0", (10**12,))), r"items of 1 byte or more, got <U0 of shape"),
        (OBJECTS, "expected no Python objects, whose pickles are not opened"),
        (with_header(described([("a", "|O")])), "pickles are not opened"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_header_is_refused(
    tmp_path: Path, content: bytes, message: str, name: str
) -> None:
    file = write(tmp_path / name, content)

    with pytest.raises(FormatError, match=f"{name}, byte 0, header: .*{message}"):
        file.count()
    with pytest.raises(FormatError, match=f"{name}, byte 0, header: .*{message}"):
        next(iter(file))


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("held", [15, 17])
def test_a_plain_file_of_another_size_than_promised_yields_nothing(
    tmp_path: Path, held: int, order: bool
) -> None:
    file = write(tmp_path / "a.npy", with_header(described("u1", (2, 8), order), bytes(held)))

    with pytest.raises(FormatError, match=r"expected 2 items of 8 bytes, \d+ bytes in all, got"):
        next(iter(file))


def test_a_cut_compressed_file_yields_its_whole_items_first(tmp_path: Path) -> None:
    header = with_header(described("u1", (3, 4)))
    file = write(tmp_path / "a.npy.gz", header + bytes(9))
    seen = []

    with pytest.raises(FormatError, match=rf"byte {len(header) + 9}: .* end of the file in item 2"):
        seen.extend(file)
    assert len(seen) == 2


@pytest.mark.parametrize(("held", "rule"), [(15, "the end of the file in item 1"), (17, "more")])
def test_a_compressed_array_in_fortran_order_is_whole_or_refused(
    tmp_path: Path, held: int, rule: str
) -> None:
    file = write(tmp_path / "a.npy.gz", with_header(described("u1", (2, 8), True), bytes(held)))

    with pytest.raises(FormatError, match=f"got {rule}"):
        next(iter(file))


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 4_000_000_000), (4_000_000_000, 1), (3, 70_000, 70_000)])
def test_memory_follows_the_file_and_not_its_header(
    tmp_path: Path, shape: tuple[int, ...], name: str, order: bool
) -> None:
    file = write(tmp_path / name, with_header(described("<f8", shape, order), bytes(64)))

    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="items of"):
            list(file)
        with pytest.raises(FormatError, match="items of"):
            list(file.tail(2))
        assert tracemalloc.get_traced_memory()[1] < 4 * CHUNK_NBYTES
    finally:
        tracemalloc.stop()


X, LABEL = np.arange(6).reshape(3, 2), np.array([5, 6, 7], "u1")


@pytest.fixture(params=["savez", "savez_compressed", "savez.gz"])
def npz(request: pytest.FixtureRequest, tmp_path: Path) -> NpzFile:
    path = tmp_path / "a.npz"
    save = np.savez_compressed if request.param == "savez_compressed" else np.savez
    save(path, x=X, label=LABEL)
    if request.param == "savez.gz":
        path = path.with_suffix(".npz.gz")
        path.write_bytes(gzip.compress((tmp_path / "a.npz").read_bytes()))
    return NpzFile(Source(str(path)))


def test_the_arrays_of_an_archive_stand_side_by_side(npz: NpzFile) -> None:
    assert isinstance(npz, Seekable)
    assert npz.count() == 3
    for skip in range(5):
        samples = list(npz.tail(skip))
        assert [label for _, label in samples] == LABEL[skip:].tolist()
        assert [x.tolist() for x, _ in samples] == X[skip:].tolist()


def test_an_abandoned_archive_is_closed(npz: NpzFile) -> None:
    samples = iter(npz)
    next(samples)
    samples.close()  # an open file would be a ResourceWarning, which is an error here


def archive(path: Path, *columns: str, **members: bytes) -> NpzFile:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("_npy", ".npy"), content)
    return NpzFile(Source(str(path)), list(columns) or None)


def test_columns_pick_and_order_arrays(tmp_path: Path) -> None:
    file = archive(
        tmp_path / "a.npz",
        *("label", "x"),
        x_npy=npy_bytes(X),
        unused_npy=OBJECTS,
        label_npy=npy_bytes(LABEL),
    )

    assert [(label, x.tolist()) for label, x in file] == [(5, [0, 1]), (6, [2, 3]), (7, [4, 5])]


@pytest.mark.parametrize(
    ("members", "columns", "message"),
    [
        ({"x_npy": npy_bytes(X)}, ["y", "x"], "expected y.npy and x.npy, got x.npy"),
        ({"readme": b"hello"}, [], "expected arrays, got no array"),
        ({"x_npy": npy_bytes(X), "y_npy": npy_bytes(X[:2])}, [], "equally many rows, got .*3.*: 2"),
        ({"x_npy": OBJECTS}, [], "a.npz, x.npy, byte 0, header: .*pickles are not opened"),
        ({"x_npy": npy_bytes(X)[:-1]}, [], "a.npz, x.npy, byte 175: .* end of the file in item 2"),
        ({"x_npy": b""}, [], "a.npz, x.npy, byte 0, header: expected the npy magic .*, got $"),
    ],
)
def test_archives_that_do_not_hold_what_is_asked_for(
    tmp_path: Path, members: dict[str, bytes], columns: list[str], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        list(archive(tmp_path / "a.npz", *columns, **members))


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    archive(path, x_npy=npy_bytes(X))
    whole = path.read_bytes()
    at = whole.index(npy_bytes(X)) + 150

    for content, message in [
        (b"no zip", "a.npz: cannot be read: File is not a zip file"),
        (whole[: len(whole) // 2], "a.npz: cannot be read"),
        (whole[:at] + b"\xff" + whole[at + 1 :], "a.npz: cannot be read: Bad CRC-32"),
    ]:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=message):
            list(NpzFile(Source(str(path))))


def test_the_creator_reads_both_kinds(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LABEL)
    np.save(tmp_path / "b.npy", LABEL[:1])
    np.savez(tmp_path / "c.npz", LABEL, LABEL)

    assert list(creator.npy(tmp_path / "?.npy")()) == [5, 6, 7, 5]
    assert list(creator.open(tmp_path / "c.npz", columns=["arr_1"])()) == [(5,), (6,), (7,)]
    assert list(creator.npy(tmp_path / "*.np?").open(0, 5)) == [(6, 6), (7, 7)]


@pytest.mark.parametrize("columns", ["x", [], ["x", "x"]])
def test_columns_are_checked_at_once(columns: Any) -> None:
    for make in (creator.npy, creator.open):
        with pytest.raises(FieldError, match=r"npy.columns must be a list of different names"):
            make("a.npz", columns=columns)


def test_one_array_has_no_columns(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match=r"npy.columns must be None for one array, a.npy, got"):
        read_npy(Source("a.npy"), ["x"])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_an_array_in_memory_is_a_view(shape: tuple[int, ...], order: Any) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape, order=order)

    parsed = parse_npy(npy_bytes(array))

    np.testing.assert_array_equal(parsed, array)
    assert not parsed.flags.owndata


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OBJECTS, "pickles are not opened"),
        (npy_bytes(X)[:-1], "expected 48 bytes of data, got 47"),
        (npy_bytes(X) + b"x", "expected 48 bytes of data, got 49"),
        (with_header(described(shape=(10**15,))), "expected 8000000000000000 bytes of data, got 0"),
        (b"", "expected the npy magic"),
    ],
)
def test_a_damaged_array_in_memory_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_npy(content)
