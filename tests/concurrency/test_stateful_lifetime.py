"""However a held pass ends, its threads and files end with it; and what was read arrives first.

That no thread is left is asserted after every test (`gpufeed_no_leaks`); here also *when*.
"""

from __future__ import annotations

import gc
import threading
from itertools import chain

import pytest
from support.readers import BrokenError, Gate, Watched, counting, taken_until

import gpufeed.reader as rd
from gpufeed import formats
from gpufeed.errors import EOFException, ReaderError
from gpufeed.stateful import (
    BatchReader,
    DoubleBufferReader,
    MultiPassReader,
    PyReader,
    ReaderHolder,
    ShuffleReader,
    open_files,
)

ROLES = ("gpufeed-buffered", "gpufeed-double-buffer", "gpufeed-open-files")


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(ROLES)]


class Files:
    """A format whose files are readers of this test: ``file.watched`` is one without an end."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.readers = {}
        monkeypatch.setattr(formats, "_formats", dict(formats._formats))
        formats.register("watched", self._open, endings=[".watched"])

    def add(self, name, reader):
        path = self.folder / f"{name}.watched"
        path.touch()
        self.readers[str(path)] = reader
        return path

    def _open(self, source):
        return self.readers[source.path]()


@pytest.fixture
def files(tmp_path, monkeypatch):
    return Files(tmp_path, monkeypatch)


SHAPE = [[-1]], None, ["int64"]


def by_py_reader(source, files):
    reader = PyReader(2, *SHAPE[:1], SHAPE[2])
    reader.decorate_paddle_reader(rd.batch(source, 2))
    reader.start()
    return reader


def by_files(source, files, **options):
    paths = [files.add(name, source) for name in "abc"]
    return open_files(paths, *SHAPE, **options)


MAKERS = {
    "double buffer": lambda source, files: DoubleBufferReader(source),
    "py_reader": by_py_reader,
    "open_files": by_files,
    "open_files in order": lambda source, files: by_files(source, files, is_test=True),
    "pipeline": lambda source, files: DoubleBufferReader(
        MultiPassReader(BatchReader(ShuffleReader(by_files(source, files), 4), 3), 2)
    ),
}


@pytest.fixture(params=MAKERS)
def held(request, files):
    source = Watched(10**9)
    return source, MAKERS[request.param](source, files)


def assert_over(source):
    assert threads() == []
    assert source.num_open == 0


def test_nothing_runs_before_the_first_read(held):
    assert_over(held[0])


@pytest.mark.parametrize("kind", MAKERS)
def test_an_abandoned_reader(kind, files):
    source = Watched(10**9)
    reader = MAKERS[kind](source, files)
    reader.read_next()
    reader.has_next()
    assert threads()
    gc.disable()  # it is not what ends them
    try:
        del reader
        assert_over(source)
    finally:
        gc.enable()


def test_a_reset_in_the_middle_of_a_pass(held):
    source, reader = held
    for _ in range(3):
        reader.read_next()
        reader.has_next()
        assert threads()
        reader.reset() if isinstance(reader, PyReader) else reader.reinit()
        assert_over(source)
        if isinstance(reader, PyReader):
            reader.start()


def test_closing(held):
    source, reader = held
    reader.read_next()
    reader.close()
    assert_over(source)
    with pytest.raises(EOFException):
        reader.read_next()


def test_the_end_of_the_data(files):
    for maker in MAKERS.values():
        source = Watched(5)
        reader = maker(source, files)
        while reader.has_next():
            reader.read_next()
        assert_over(source)


def broken_after(num):
    def read():
        yield from range(num)
        raise BrokenError

    return read


@pytest.mark.parametrize("num", [0, 1, 5])
@pytest.mark.parametrize("kind", ["double buffer", "py_reader", "open_files in order"])
def test_an_error_of_a_thread_comes_after_the_samples_before_it(kind, num, files):
    reader = MAKERS[kind](broken_after(num), files)
    items, error = taken_until(iter(reader.read_next, None))
    assert isinstance(error, BrokenError)
    taken = list(
        chain(*([item] if kind == "double buffer" else item[0].to_list() for item in items))
    )
    assert taken == list(range(num))
    assert threads() == []
    with pytest.raises(EOFException):
        reader.read_next()


def test_an_error_in_one_file_does_not_wait_for_files_without_an_end(files):
    endless = Watched(10**9)
    paths = [files.add("endless", endless), files.add("broken", broken_after(3))]
    reader = open_files(paths, *SHAPE, thread_num=2, buffer_size=1)
    taken, error = taken_until(iter(reader.read_next, None))
    assert isinstance(error, BrokenError)
    assert_over(endless)
    assert len(taken) >= 3


def test_an_error_in_one_file_ends_the_queue_of_files(files):
    opened = []

    def never():
        opened.append(1)
        yield 1

    paths = [files.add("a", broken_after(0)), *(files.add(f"b{n}", never) for n in range(5))]
    reader = open_files(paths, *SHAPE, thread_num=1)
    with pytest.raises(BrokenError):
        reader.read_next()
    assert opened == []


def test_files_are_read_side_by_side(files):
    everybody = threading.Barrier(3)

    def read():
        everybody.wait(timeout=10)
        yield 1

    reader = open_files([files.add(name, read) for name in "abc"], *SHAPE, thread_num=3)
    assert len(list(reader())) == 3


def test_a_slow_file_holds_back_no_other(files):
    gate = Gate()

    def slow():
        gate.wait()
        yield -1

    paths = [files.add("slow", slow), files.add("fast", counting(9))]
    reader = open_files(paths, *SHAPE, thread_num=2)
    assert [reader.read_next()[0].to_list() for _ in range(9)] == [[n] for n in range(9)]
    gate.open()
    assert reader.read_next()[0].to_list() == [-1]
    assert not reader.has_next()


def test_no_more_files_are_open_than_there_are_threads(files):
    source = Watched(50)
    most = 0
    reader = open_files([files.add(f"f{n}", source) for n in range(8)], *SHAPE, thread_num=2)
    for _ in reader():
        most = max(most, source.num_open)
    assert most <= 2


@pytest.mark.parametrize(("thread_num", "buffer_size"), [(1, 1), (2, 3), (3, 10)])
def test_the_buffer_bounds_what_is_read_ahead(files, thread_num, buffer_size):
    source = Watched(10**9)
    paths = [files.add(name, source) for name in "abc"]
    reader = open_files(paths, *SHAPE, thread_num=thread_num, buffer_size=buffer_size)
    for num_delivered in range(1, 20):
        reader.read_next()
        source.wait_until_read(num_delivered + 1)
        # Each thread has one sample in its hands, and may find room at the same moment.
        assert source.num_read - num_delivered <= buffer_size + 2 * thread_num


@pytest.mark.parametrize("is_test", [True, False])
def test_batches_are_few_ahead_and_samples_many(files, is_test, monkeypatch):
    for tag, least in (("watched", 64), ("recordio", 3)):
        source = Watched(10**9)
        path = files.add(tag, source)
        monkeypatch.setitem(
            formats._formats, tag, formats.Format(tag, lambda _, source=source, **__: source())
        )
        reader = open_files(f"{tag}:{path}", *SHAPE, is_test=is_test, thread_num=1)
        reader.read_next()
        source.wait_until_read(1 + least)
        assert source.num_read <= 1 + least + 2
        reader.close()


def test_a_reset_while_another_thread_reads_waits_for_it():
    gate, taken = Gate(), []

    def source():
        yield 0
        gate.wait()
        yield 1

    held = ReaderHolder(source)
    assert held.read_next() == 0
    reading = threading.Thread(target=lambda: taken.append(held.read_next()))
    reading.start()
    gate.wait_for_arrival()
    with pytest.raises(ReaderError, match="another thread is taking a sample"):
        held.close()
    resetting = threading.Thread(target=held.reinit)
    resetting.start()
    gate.open()
    for thread in (reading, resetting):
        thread.join(10)
    assert taken == [1]
    assert held.read_next() == 0
