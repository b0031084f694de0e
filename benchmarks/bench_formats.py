"""What does RecordIO cost a record to read and write, and what does skipping a million cost?

Method: 300,000 records of 100 bytes (and 10,000 of 10,000 bytes, half of each random and half of
it not) are read from one file, in the page cache, by `creator.recordio`; the floor is a plain file
of the same bytes read in blocks of 1 MiB and dropped. Skipping opens the reader behind its
first million records and takes the next one, as a resumed training run does. The lines of a command
are compared with the lines of the file that it prints. Numbers and sizes of what arrives are
compared before anything is timed.

Not measured: disks and networks (everything is cached), unpickling and decoding of tensors, files
of very few records a chunk.

Command: ``python benchmarks formats``

Last result (virtual machine, 2 cores of an AMD EPYC, Python 3.11.7, three runs beside other work
that kept both cores busy): records of 100 bytes are read in 0.5 to 0.9 us, with Snappy in 0.5 to
1.2 and with gzip in 0.9 to 1.9, which is cutting them out one by one in Python; records of 10,000
bytes in 4, 6 to 8, and 20 times the bare file. Skipping 1,000,000 records takes 12 to 27 ms with
1,000 records a chunk and 67 to 123 with 100: a header a chunk. A line of a command takes 0.4 to
0.7 us, as much as one of a text file.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import Case

from gpufeed import RecordIOWriter, creator
from gpufeed.reader import PipeReader

KINDS = [
    ("none", "fluid"),
    ("snappy", "fluid"),
    ("snappy", "go"),
    ("gzip", "go"),
]

drain: Callable[[Iterable[Any]], object] = partial(deque, maxlen=0)


def cases() -> Iterator[Case]:
    """Yield the comparisons, each over files of its own that are deleted after it."""
    for num, nbytes in ((300_000, 100), (10_000, 10_000)):
        with TemporaryDirectory() as folder:
            yield from _record_cases(Path(folder), num, nbytes)
    with TemporaryDirectory() as folder:
        yield _skip_case(Path(folder), num=1_000_000)
    with TemporaryDirectory() as folder:
        yield _line_case(Path(folder), num=200_000)


def _records(num: int, nbytes: int) -> Iterator[bytes]:
    """Records of about ``nbytes``: half of each cannot be compressed."""
    generator = random.Random(num)
    same = bytes(nbytes - nbytes // 2 - 4)
    return (generator.randbytes(nbytes // 2) + same + bytes(i % 8) for i in range(num))


def _record_cases(folder: Path, num: int, nbytes: int) -> Iterator[Case]:
    records = list(_records(num, nbytes))
    (folder / "bare").write_bytes(b"".join(records))
    readers: dict[str, Callable[[], Iterable[bytes]]] = {}
    for compressor, dialect in KINDS:
        path = folder / f"{compressor}-{dialect}.recordio"
        _write(path, records, compressor, dialect)
        readers[f"recordio, {compressor} ({dialect})"] = creator.recordio(path)
    yield Case(
        name=f"read {num:,} records of {nbytes} bytes",
        contestants={"bare file, by blocks (floor)": partial(_blocks, folder / "bare"), **readers},
        num_units=num,
        unit="record",
        checksum=lambda result: sum(map(len, result)),
        finish=drain,
    )
    yield Case(
        name=f"write {num:,} records of {nbytes} bytes",
        contestants={
            "bare file (floor)": lambda: (folder / "copy").write_bytes(b"".join(records)),
            **{
                f"recordio, {compressor} ({dialect})": partial(
                    _write, folder / "copy", records, compressor, dialect
                )
                for compressor, dialect in KINDS
            },
        },
        num_units=num,
        unit="record",
        checksum=lambda _: (folder / "copy").exists(),
    )


def _skip_case(folder: Path, num: int) -> Case:
    readers = {}
    for per_chunk in (1000, 100):
        path = folder / f"{per_chunk}.recordio"
        with RecordIOWriter(path, compressor="snappy", max_num_records=per_chunk) as writer:
            for number in range(num + 1):
                writer.write(b"record number %d" % number)
        readers[f"recordio, {per_chunk} a chunk"] = creator.recordio(path)
    every = readers["recordio, 1000 a chunk"]

    def after(reader: Any) -> bytes:
        rest = reader.open(0, num)
        record: bytes = next(rest)
        rest.close()
        return record

    return Case(
        name=f"skip {num:,} records and take one",
        contestants={
            "recordio, all read (floor)": lambda: deque(every.open(0, 0), maxlen=1)[0],
            **{f"{name}, skipped": partial(after, reader) for name, reader in readers.items()},
        },
        num_units=1,
        unit="skip",
        checksum=bytes,
        target="50,000 us",
    )


def _line_case(folder: Path, num: int) -> Case:
    path = folder / "lines.txt"
    path.write_text("".join(f"line {i} of the file, some words long\n" for i in range(num)))
    return Case(
        name=f"{num:,} lines of a command",
        contestants={
            "lines of the file (floor)": partial(_lines, path),
            "creator.text_file": creator.text_file(path),
            "PipeReader of cat": PipeReader(["cat", str(path)]),
        },
        num_units=num,
        unit="line",
        checksum=lambda result: sum(map(len, result)),
        finish=drain,
    )


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(partial(file.read, 1 << 20), b"")


def _lines(path: Path) -> Iterator[str]:
    with path.open() as file:
        for line in file:
            yield line.removesuffix("\n")


def _write(path: Path, records: Iterable[bytes], compressor: Any, dialect: Any) -> None:
    with RecordIOWriter(path, compressor=compressor, dialect=dialect) as writer:
        for record in records:
            writer.write(record)
