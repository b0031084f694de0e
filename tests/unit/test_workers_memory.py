"""Segments, frames, and the boxes at both ends: within one process, by hand."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import weakref
from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.way import Way

from gpufeed.errors import ReaderError
from gpufeed.workers import segment as segments
from gpufeed.workers.boxes import Inbox, mapping_of
from gpufeed.workers.frames import (
    BUFFER_ALIGNMENT,
    MIN_BUFFER_NBYTES,
    Kind,
    WrittenInPlace,
    encode,
    encode_error,
    read_entries,
)
from gpufeed.workers.records import RECORD_NBYTES, Record
from gpufeed.workers.segment import (
    MAX_SLOTS,
    MAX_UNSENT,
    Segment,
    Slot,
    free_nbytes,
    require_free,
)

LARGE = np.arange(MIN_BUFFER_NBYTES, dtype=np.float64)


def held_nbytes(segment):
    """Return how much memory a segment takes now."""
    return os.fstat(segment.fileno()).st_blocks * 512


@pytest.fixture
def way():
    made = Way()
    yield made
    made.close()


def test_a_segment_is_seen_by_whoever_has_its_descriptor():
    ours = Segment.create("test")
    theirs = Segment(os.dup(ours.fileno()))
    slots = [ours.grow(100), ours.grow(1 << 19), ours.grow(1)]
    for number, slot in enumerate(slots):
        ours.view(slot)[:4] = bytes([number] * 4)
    assert [bytes(theirs.view(slot)[:4]) for slot in slots] == [b"\0" * 4, b"\1" * 4, b"\2" * 4]
    assert slots[1].nbytes >= 1 << 19
    ours.close()
    ours.close()
    theirs.close()


def test_a_segment_says_what_its_writer_does_and_has_done():
    ours = Segment.create("test")
    theirs = Segment(os.dup(ours.fileno()))
    assert theirs.status() == (-2, 0)
    ours.say_ready()
    assert theirs.status() == (-1, 0)
    ours.say_begun(7)
    assert theirs.status() == (7, 1)
    slots = [ours.grow(1) for _ in range(3 * MAX_UNSENT)]
    for frame, slot in enumerate(slots, 1):
        ours.say_filling(frame, slot)
        ours.say_done(frame, num_entries=frame + 10)
    assert theirs.status() == (7, 0)
    ours.say_filling(len(slots) + 1, slots[0])  # with nothing in it yet
    last = [(number, number + 10, slots[number - 1]) for number in range(1, len(slots) + 1)]
    assert theirs.frames(1) == last[-MAX_UNSENT:]
    assert theirs.frames(len(slots)) == last[-1:]
    assert theirs.frames(len(slots) + 1) == []
    ours.close()
    theirs.close()


def test_a_slot_that_is_given_up_returns_its_memory_and_is_unmapped_with_the_next():
    ours = Segment.create("test")
    theirs = Segment(os.dup(ours.fileno()))
    kept, small = ours.grow(1), ours.grow(1 << 20)
    for slot in (kept, small):
        ours.view(slot)[:] = b"x" * slot.nbytes
        theirs.view(slot)
    mapping = theirs.map(small)
    before = held_nbytes(ours)
    ours.give_up(small)
    assert before - held_nbytes(ours) == small.nbytes
    assert not mapping.is_outgrown
    assert theirs.num_slots == 2
    theirs.map(large := ours.grow(2 << 20))
    assert mapping.is_outgrown
    assert theirs.num_slots == ours.num_slots + 1 == 2
    assert [theirs.map(slot).is_outgrown for slot in (kept, large)] == [False, False]
    for segment in (ours, theirs):
        segment.close()


def test_more_slots_may_be_given_up_than_are_remembered():
    ours = Segment.create("test")
    theirs = Segment(os.dup(ours.fileno()))
    slots = [ours.grow(1) for _ in range(600)]
    first, last = theirs.map(slots[0]), theirs.map(slots[-1])
    for slot in slots:
        ours.give_up(slot)
    theirs.map(ours.grow(1))
    assert (first.is_outgrown, last.is_outgrown) == (False, True)
    for segment in (ours, theirs):
        segment.close()


def test_sizes_that_vary_take_no_more_memory_than_the_largest(way):
    random, held = Random(7), deque(maxlen=3)
    sizes = [random.randrange(1 << 17, 1 << 18) * 8 for _ in range(300)]
    for size in sizes:
        held.append(way.send(np.ones(size // 8))[0])
    num_slots = held.maxlen + 2  # one is being written, and one comes back
    assert held_nbytes(way.segment) <= num_slots * 9 / 8 * max(sizes) + (1 << 20)
    assert way.segment.num_slots <= num_slots + 1


def test_a_view_outlives_its_segment():
    segment = Segment.create("test")
    view = segment.view(segment.grow(8))
    view[:3] = b"abc"
    segment.close()
    assert bytes(view[:3]) == b"abc"


@pytest.mark.parametrize("has_memfd", [True, False])
def test_segments_without_memfd(has_memfd, monkeypatch):
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    segment = Segment.create("test")
    segment.view(segment.grow(8))[:3] = b"abc"
    assert os.get_inheritable(segment.fileno()) is False
    segment.close()
    assert free_nbytes() > 0


def test_too_little_shared_memory_is_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr(segments, "free_nbytes", lambda: 3 << 20)
    with pytest.raises(ReaderError, match=r"isolate: .* 8 MiB of shared memory .* 3 MiB are free"):
        require_free("isolate", 8 << 20)
    require_free("isolate", 3 << 20)
    monkeypatch.setattr(segments, "free_nbytes", lambda: None)
    require_free("isolate", 8 << 20)


def test_a_container_limits_what_is_free(monkeypatch):
    texts = {
        "/proc/meminfo": "MemTotal: 9999 kB\nMemAvailable:    8192 kB\n",
        "/sys/fs/cgroup/memory.max": "4194304\n",
        "/sys/fs/cgroup/memory.current": "3145728\n",
        "/sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 1024\n",
    }
    monkeypatch.setattr(segments, "_text", lambda path: texts.get(path, ""))
    monkeypatch.setattr(os, "memfd_create", None, raising=False)
    assert free_nbytes() == (1 << 20) + 1024
    texts["/sys/fs/cgroup/memory.max"] = "max\n"
    assert free_nbytes() == 8 << 20
    texts.clear()
    assert free_nbytes() is None


def same(first: object, second: object) -> bool:
    return pickle.dumps(first) == pickle.dumps(second)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.text(),
            st.binary(max_size=40),
            st.integers(0, 3).map(lambda n: [LARGE[: len(LARGE) // (n + 1)], "x" * n]),
            st.integers(0, 3).map(lambda n: np.zeros(n)),
        ),
        max_size=8,
    )
)
def test_what_is_written_is_what_is_read(values):
    frame = memoryview(bytearray(1 << 22))
    end = 0
    for number, value in enumerate(values):
        encoded = encode(value)
        before, end = end, encoded.write(frame, end, number, Kind.VALUE)
        assert end - before <= encoded.nbytes
    entries = read_entries(frame, len(values), lambda begin, end: frame[begin:end])
    assert [entry.number for entry in entries] == list(range(len(values)))
    for entry, value in zip(entries, values, strict=True):
        assert same(entry.value, value)


def test_large_arrays_are_not_pickled_and_small_ones_are():
    encoded = encode([LARGE, LARGE[:10], LARGE[::2], np.asfortranarray(LARGE.reshape(2, -1))])
    assert [part.nbytes for part in encoded.buffers] == [LARGE.nbytes, LARGE.nbytes]
    assert len(encoded.data) < LARGE.nbytes


ODD_DTYPES = [">i4", "M8[ns]", "U8", "O", [("x", "f4"), ("y", "i8")]]


@pytest.mark.parametrize("dtype", ["?", "i1", "<u8", "f2", "<f4", "<c16", *ODD_DTYPES], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("is_writeable", [True, False])
def test_an_array_is_encoded_as_pickling_would(dtype, order, is_writeable):
    array = np.zeros((64, 512), dtype, order)
    array.flags.writeable = is_writeable
    buffers = []
    pickled = pickle.dumps(array, 5, buffer_callback=buffers.append)
    encoded = encode(array)
    assert encoded.data == pickled
    assert encoded.buffers == [buffer.raw() for buffer in buffers]


class Mine(np.ndarray):
    """An array of a type of its own."""


def test_what_an_array_has_besides_goes_with_it():
    tagged = np.zeros(LARGE.shape, np.dtype(LARGE.dtype, metadata={"unit": "m"}))
    for array in (LARGE, tagged, LARGE.view(Mine)):  # after one of the same dtype and shape
        encoded = encode(array)
        again = pickle.loads(encoded.data, buffers=encoded.buffers)
        assert type(again) is type(array)
        assert again.dtype.metadata == array.dtype.metadata


def test_read_only_arrays_stay_so(way):
    fixed = LARGE.copy()
    fixed.flags.writeable = False
    received, writeable = way.send(fixed, LARGE)
    assert not received.flags.writeable
    writeable[0] = 5.0


class NeedsTwoError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class StubbornError(Exception):
    def __reduce__(self):
        raise RuntimeError("never")


class OwnWayError(Exception):
    def __init__(self, lock):
        super().__init__("own way", lock)

    def __reduce__(self):
        return type(self), (None,)


class PathError(OSError):
    def __init__(self, path):
        super().__init__(2, "not there", path)
        self.part = path[:2]


class TextError(UnicodeDecodeError):
    def __init__(self, data):
        super().__init__("utf-8", data, 1, 2, "no text")


class NewError(Exception):
    def __new__(cls, first, second):
        return super().__new__(cls, first)

    def __init__(self, first, second):
        super().__init__(first)


def sent(error):
    encoded = encode_error(error, "process 1")
    again, _ = pickle.loads(encoded.data, buffers=encoded.buffers)
    return again


@pytest.mark.parametrize(
    "error",
    [
        NeedsTwoError(1, 2),
        PathError("a/b"),
        TextError(b"abc"),
        KeyError("k"),
        SystemExit(3),
        ExceptionGroup("several", [ValueError(1), KeyError("k")]),
        ImportError("none", name="absent"),
        StopIteration(5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_wherever_it_arrives(error):
    again = sent(error)
    assert type(again) is type(error)
    assert repr(again) == repr(error)
    assert vars(again) == vars(error)
    for name in ("errno", "filename", "start", "reason", "code", "value", "name"):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_an_error_that_says_how_to_pickle_it_is_pickled_so():
    again = sent(OwnWayError(threading.Lock()))
    assert type(again) is OwnWayError
    assert again.args == ("own way", None)


@pytest.mark.parametrize(
    "error", [StubbornError("why"), ValueError(threading.Lock()), NewError(1, 2)]
)
def test_an_error_that_does_not_pickle_is_told(error):
    encoded = encode_error(error, "process 1")
    sent, note = pickle.loads(encoded.data)
    assert type(sent) is ReaderError
    assert type(error).__qualname__ in str(sent)
    assert str(error) in str(sent)
    assert note.startswith("raised in process 1:\n")


def test_an_error_keeps_its_type_and_tells_where_it_was_raised(way):
    def fail():
        raise KeyError("k")

    with pytest.raises(KeyError) as caught:
        fail()
    way.outbox.put(3, Kind.ERROR, caught.value, is_last=True)
    ((number, kind, error),) = way.take()
    assert (number, kind) == (3, Kind.ERROR)
    assert type(error) is KeyError
    assert error.args == ("k",)
    assert "in fail" in error.__notes__[-1]


def test_what_cannot_be_sent_is_an_error_in_its_place(way):
    way.outbox.put(5, Kind.VALUE, threading.Lock(), is_last=True)
    ((number, kind, error),) = way.take()
    assert (number, kind) == (5, Kind.FAILURE)
    with pytest.raises(
        ReaderError, match=r"sample 5 must be picklable .* got a lock: cannot pickle"
    ):
        raise error


class Unwelcome:
    def __reduce__(self):
        return int, ("no number",)


def test_what_cannot_be_received_is_an_error_in_its_place(way):
    way.outbox.put(5, Kind.VALUE, Unwelcome(), is_last=True)
    ((_, kind, error),) = way.take()
    assert kind == Kind.FAILURE
    assert isinstance(error.__cause__, ValueError)
    with pytest.raises(ReaderError, match="sample 5 cannot be unpickled where it arrived"):
        raise error


class Ascending(WrittenInPlace):
    """Bytes that count up; or an error, after some of them."""

    def __init__(self, nbytes, error=None):
        self._nbytes, self._error = nbytes, error

    @property
    def nbytes(self):
        return self._nbytes

    def tells(self):
        return "ascending", LARGE

    def write(self, block):
        block[:] = bytes(number % 256 for number in range(self._nbytes))
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("nbytes", [0, 1, 5000, 100_000])
def test_a_block_is_written_where_it_is_read_and_may_be_locked_there(way, nbytes):
    before, ((told, numbers), block), _ = way.send("before", Ascending(nbytes), "after")
    assert (before, told, numbers.tolist()) == ("before", "ascending", LARGE.tolist())
    assert bytes(block) == bytes(number % 256 for number in range(nbytes))
    array, mapping = np.frombuffer(block, np.uint8) if nbytes else None, mapping_of(block)
    whole = np.frombuffer(mapping, np.uint8).ctypes.data
    if array is not None:
        assert (array.ctypes.data - whole) % BUFFER_ALIGNMENT == 0
        assert whole <= array.ctypes.data < whole + len(mapping)


def test_what_tells_of_a_block_does_not_keep_its_slot(way):
    (told, block), *_ = way.send(Ascending(10))
    del block
    way.inbox.give_back()
    assert way.outbox.returns.read(wait=True)
    assert len(way.outbox.returns.offsets) == 1
    assert told[1].tolist() == LARGE.tolist()


def test_a_copy_has_no_mapping(way):
    assert mapping_of(bytearray(10)) is None
    kept = [block for _ in range(MAX_SLOTS // 2 + 1) for _, block in way.send(Ascending(10))]
    assert [mapping_of(block) is None for block in kept].count(True) == 1


def test_a_block_that_fails_leaves_what_was_written_before_it(way):
    way.outbox.put(0, Kind.VALUE, "before")
    with pytest.raises(ZeroDivisionError):
        way.outbox.put(1, Kind.VALUE, Ascending(10, ZeroDivisionError()))
    way.outbox.put(1, Kind.VALUE, "instead", is_last=True)
    entries = way.take()
    entries += way.take() if len(entries) == 1 else []
    assert [entry.value for entry in entries] == ["before", "instead"]


def test_an_array_is_a_view_and_its_slot_is_used_again_only_when_it_is_dead(way):
    first, second = way.send(LARGE)[0], way.send(LARGE + 1)[0]
    assert way.segment.num_slots == 2
    part = first[100:200]
    del first
    for _ in range(5):
        way.send(LARGE + 2)
    assert part.tolist() == LARGE[100:200].tolist()
    assert second.tolist() == (LARGE + 1).tolist()
    before = way.segment.num_slots
    del part, second
    way.inbox.give_back()
    for _ in range(5):
        way.send(LARGE + 3)
    assert way.segment.num_slots == before


def test_a_finalizer_only_queues(way, monkeypatch):
    array = way.send(LARGE)[0]
    monkeypatch.setattr(way.inbox, "say", None)
    del array
    gc.collect()
    monkeypatch.undo()
    way.inbox.give_back()
    assert way.outbox.returns.read(wait=True)
    assert len(way.outbox.returns.offsets) == 1


def test_whoever_keeps_every_array_gets_copies_in_the_end(way):
    kept = [way.send(LARGE + number)[0] for number in range(MAX_SLOTS // 2 + 20)]
    assert way.segment.num_slots <= MAX_SLOTS // 2 + 2  # one is on its way, and one comes back
    assert all(array[7] == LARGE[7] + number for number, array in enumerate(kept))
    kept[-1][0] = 1.0  # a copy is the receiver's too


def test_and_gets_them_sooner_where_earlier_passes_keep_the_descriptors(way, monkeypatch):
    def send(way, num):
        return [block for _ in range(num) for _, block in way.send(Ascending(1000))]

    def num_views(blocks):
        return sum(mapping_of(block) is not None for block in blocks)

    monkeypatch.setattr("gpufeed.workers.boxes._viewed", weakref.WeakSet())
    monkeypatch.setattr("resource.getrlimit", lambda _: (40, 40))  # a quarter of them
    earlier = Way()
    kept = send(earlier, 7)
    earlier.close()
    more = send(way, 7)
    assert (num_views(kept), num_views(more)) == (7, 3)
    del kept, more
    assert num_views(send(way, 12)) == 10


def test_a_sample_larger_than_a_slot_gets_a_larger_one(way):
    huge = np.arange(1 << 20, dtype=np.float64)
    small, received, again = way.send("small", huge, huge)
    assert small == "small"
    assert (received == huge).all()
    assert (again == huge).all()


def test_a_large_one_makes_its_slot_when_all_are_small(way, monkeypatch):
    monkeypatch.setattr("gpufeed.workers.boxes.MAX_SLOTS", 2)
    way.send(1)
    kept = way.send(LARGE)[0]
    huge = np.zeros(1 << 20)
    assert way.send(huge)[0].nbytes == huge.nbytes
    assert kept[5] == LARGE[5]


def test_a_full_outbox_waits_for_a_slot(way, monkeypatch):
    monkeypatch.setattr("gpufeed.workers.boxes.MAX_SLOTS", 1)
    held = way.send(LARGE)
    put = threading.Thread(target=way.outbox.put, args=(1, Kind.VALUE, "next"))
    put.start()
    held.clear()
    way.inbox.give_back()
    put.join(10)
    assert [entry.value for entry in way.take()] == ["next"]


def test_a_single_sample_is_sent_without_being_asked(way):
    way.outbox.put(0, Kind.VALUE, "alone")
    assert [entry.value for entry in way.take()] == ["alone"]


def test_frames_are_sent_when_they_are_full():
    way = Way(max_entries=3)
    for number in range(3):
        way.outbox.put(number, Kind.VALUE, number)
    taken = []
    while len(taken) < 3:
        taken += [entry.value for entry in way.take()]
    assert taken == [0, 1, 2]
    way.close()


def test_no_more_frames_are_held_back_than_a_segment_says():
    way = Way(max_entries=1000)
    sent = [LARGE + number for number in range(3 * MAX_UNSENT)]
    received = way.send(*sent)
    assert all((array == expected).all() for array, expected in zip(received, sent, strict=True))
    way.close()


def test_small_slots_are_given_back_together_and_large_ones_at_once(monkeypatch):
    way = Way()
    way.inbox = Inbox([way.segment], [way.fds[3]], max_together=4)
    for num_back in (0, 0, 0, 4):
        way.send(LARGE)
        way.inbox.give_back()
        way.outbox.returns.read(wait=False)
        assert len(way.outbox.returns.offsets) == num_back
    monkeypatch.setattr("gpufeed.workers.boxes._TOGETHER_NBYTES", 1 << 20)
    way.send(np.zeros(1 << 20, np.uint8))
    way.inbox.give_back()
    assert way.outbox.returns.read(wait=True)
    way.close()


def test_an_outbox_whose_other_side_is_gone_refuses():
    way = Way()
    os.close(way.records)
    way.outbox.put(0, Kind.VALUE, 1, is_last=True)
    assert not way.outbox.put(1, Kind.VALUE, 1)
    way.records = os.dup(way.tell)
    way.fds[0] = way.records
    way.close()


def test_an_outbox_to_which_nothing_comes_back_refuses(way, monkeypatch):
    monkeypatch.setattr("gpufeed.workers.boxes.MAX_SLOTS", 1)
    held = way.send(LARGE)
    way.inbox.say_over()
    assert not way.outbox.put(1, Kind.VALUE, 1)
    assert held


def test_records_are_atomic_and_pages_hold_whole_ones():
    assert len(Record(0, 1, 2, 3, *Slot(4, 5)).pack()) == RECORD_NBYTES
    assert 4096 % RECORD_NBYTES == 0
    assert RECORD_NBYTES <= 512  # what POSIX promises to be written at once
