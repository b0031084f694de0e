"""`isolate`, `multiprocess_reader` and `xmap_readers` in processes: what they deliver."""

from __future__ import annotations

import errno
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import namedtuple
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.at_once import at_once
from support.readers import counting

from gpufeed import reader as rd
from gpufeed.errors import FieldError, ReaderError, WorkerDied
from gpufeed.reader.processes import _places
from gpufeed.reader.skipping import Skip

T = TypeVar("T")


@dataclass
class Pair:
    first: object
    second: object


VALUES = [None, "", (), [], 0, "x" * 100_000, {"a": (1, None)}, StopIteration, Pair(None, "b")]


class Slots:
    __slots__ = ("__hidden", "shown")

    def __init__(self, shown, hidden):
        self.shown, self.__hidden = shown, hidden

    def __eq__(self, other):
        return type(other) is type(self) and self.state() == other.state()

    __hash__ = None

    def state(self):
        return self.shown, self.__hidden


class Subclass(Slots):
    def __init__(self):
        super().__init__(1, 2)
        self.free = 3

    def state(self):
        return (*super().state(), self.free)


@dataclass(slots=True, weakref_slot=True)
class SlotsPair:
    first: object
    second: object = 2


@dataclass(frozen=True, slots=True)
class FrozenSlots(Generic[T]):
    first: T


class Row(NamedTuple):
    first: object
    second: object = 2


class Base(ABC):
    __slots__ = ()

    @abstractmethod
    def size(self): ...


class Derived(Base):
    __slots__ = "number"

    def size(self):
        return self.number

    def __eq__(self, other):
        return type(other) is Derived and other.number == self.number

    __hash__ = None


Point = namedtuple("Point", "x y")
DERIVED = Derived()
DERIVED.number = 5
SLOTS = [Slots("a", "b"), Subclass(), SlotsPair(1), FrozenSlots("a"), Row(1), Point(1, 2), DERIVED]


def identity(sample):
    return sample


MAKERS = {
    "isolate": rd.isolate,
    "isolate, one ahead": lambda reader: rd.isolate(reader, buffer_size=1),
    "multiprocess_reader": lambda reader: rd.multiprocess_reader([reader]),
    "multiprocess_reader, queue": lambda reader: rd.multiprocess_reader([reader], False, 2),
    "multiprocess_reader, ordered": lambda reader: rd.multiprocess_reader([reader], order=True),
    "xmap": lambda reader: rd.xmap_readers(identity, reader, 2, 3, True, processes=True),
}


def test_every_value_is_data():
    arrays = [np.zeros(0), np.arange(9), np.arange(100_000.0)[::2], np.full((300, 300), "a")]
    have_dict = [hasattr(sample, "__dict__") for sample in SLOTS]

    def samples():
        yield [hasattr(sample, "__dict__") for sample in SLOTS]
        yield from [*SLOTS, *VALUES, *arrays]

    def check(make):
        have_dict_there, *received = make(samples)
        assert have_dict_there == have_dict
        with_slots = received[: len(SLOTS)]
        assert with_slots == SLOTS
        assert [type(sample) for sample in with_slots] == [type(sample) for sample in SLOTS]
        assert received[len(SLOTS) : -len(arrays)] == VALUES
        for array, expected in zip(received[-len(arrays) :], arrays, strict=True):
            np.testing.assert_array_equal(array, expected)
            assert array.flags.writeable

    at_once(check, zip(MAKERS.values()))


class ShardError(FileNotFoundError):
    def __init__(self, path, *, shard):
        super().__init__(errno.ENOENT, f"no shard {shard}", path)
        self.shard = shard


def no_shard(sample):
    raise ShardError(sample, shard=7)


def test_errors_of_the_users_own_are_caught_as_such():
    def check(reader):
        with pytest.raises(ShardError, match="no shard 7: 'a/b'") as caught:
            list(reader)
        error = caught.value
        assert (error.shard, error.errno, error.filename) == (7, errno.ENOENT, "a/b")
        assert "raise ShardError" in error.__notes__[-1]

    readers = [
        rd.isolate(rd.map_readers(no_shard, lambda: ["a/b"])),
        rd.multiprocess_reader([rd.map_readers(no_shard, lambda: ["a/b"])]),
        rd.xmap_readers(no_shard, lambda: ["a/b"], 2, 3, processes=True),
    ]
    at_once(check, zip(readers))


def test_nothing_is_nothing():
    def check(make):
        assert list(make(counting(0))) == []

    at_once(check, zip(MAKERS.values()))


@pytest.mark.parametrize("stage", ["isolate", "multiprocess_reader, ordered"])
def test_epochs_and_places_go_to_the_process(stage):
    reader = MAKERS[stage](rd.shuffle(counting(50), 20, seed=3))
    plain = rd.shuffle(counting(50), 20, seed=3)
    expected = list(plain.open(1, 0))
    reader.set_epoch(1)
    assert list(reader) == expected
    assert list(reader.open(1, 33)) == expected[33:]


def test_a_reader_that_is_in_a_process_is_the_same_reader():
    plain = rd.shuffle(counting(20), 5, seed=1)
    isolated = rd.isolate(plain)
    assert isolated.identity() == plain.identity()
    samples = isolated()
    first = [next(samples) for _ in range(7)]
    state = isolated.state_dict()
    samples.close()
    plain.load_state_dict(state)
    assert first + list(plain) == list(rd.shuffle(counting(20), 5, seed=1))


def test_an_array_that_is_kept_is_never_overwritten():
    reader = rd.isolate(lambda: (np.full(10_000, number) for number in range(60)), buffer_size=4)
    for number, array in enumerate(list(reader)):
        assert (array == number).all()


def test_mappers_that_keep_every_array_leave_room_for_more(monkeypatch):
    """Samples go to all mappers through slots that they share."""
    for module in ("boxes", "pool"):
        monkeypatch.setattr(f"gpufeed.workers.{module}.MAX_SLOTS", 16)
    kept = []

    def keep(array):
        kept.append(array)
        return [int(each[0]) for each in kept]

    arrays = [np.full(20_000, number) for number in range(60)]
    mapped = list(rd.xmap_readers(keep, lambda: arrays, 4, 8, order=True, processes=True))
    assert [numbers[-1] for numbers in mapped] == list(range(60))
    assert all(numbers == sorted(set(numbers)) for numbers in mapped)


def test_what_a_killed_process_had_made_arrives_before_the_error():
    """Frames of which nobody was told yet among it."""

    def reader():
        for number in range(12):
            yield np.full(50_000, number, np.uint16)
        os.kill(os.getpid(), signal.SIGKILL)

    received = []
    with pytest.raises(WorkerDied, match="killed by SIGKILL"):
        received.extend(int(array[-1]) for array in rd.isolate(reader))
    assert received == list(range(12))


def test_an_array_that_its_reader_uses_again_is_sent_as_it_was():
    def reader():
        place = np.zeros(5_000)
        for number in range(20):
            place[:] = number
            yield place

    assert [array[-1] for array in rd.isolate(reader)] == list(range(20))


def test_a_process_reads_no_further_ahead_than_its_window(tmp_path):
    """It writes down what it has read; the window is the most that can be ahead of delivery."""
    log = tmp_path / "read"

    def reader():
        for number in range(40):
            with log.open("a") as file:
                file.write("x")
            yield number

    for number in rd.isolate(reader, buffer_size=6):
        assert log.stat().st_size <= number + 1 + 6


def test_of_large_samples_a_process_reads_fewer_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr("gpufeed.reader.processes.MAX_NBYTES_AHEAD", 3 << 20)
    log = tmp_path / "read"

    def reader():
        for _ in range(12):
            with log.open("a") as file:
                file.write("x")
            yield np.zeros(1 << 20, np.uint8)

    for number, _ in enumerate(rd.isolate(reader, buffer_size=10)):
        assert log.stat().st_size <= number + 1 + 4


def test_samples_are_delivered_one_by_one_as_they_come(tmp_path):
    """The reader makes no sample before the one before it was taken."""
    taken = tmp_path / "taken"
    os.mkfifo(taken)

    def reader():
        with taken.open("rb", buffering=0) as pipe:
            for number in range(3):
                yield number
                assert pipe.read(1)

    samples = rd.isolate(reader)()
    first = []
    with taken.open("r+b", buffering=0) as pipe:  # which does not wait for the other end
        for sample in samples:
            first.append(sample)
            pipe.write(b"x")
    assert first == [0, 1, 2]


def tagged(tag, num):
    return lambda: [(tag, number) for number in range(num)]


def in_turn(lengths):
    longest = max(lengths, default=0)
    return [
        (tag, number)
        for number in range(longest)
        for tag, length in enumerate(lengths)
        if number < length
    ]


def test_ordered_merge_takes_one_of_each_in_turn_and_resumes_anywhere():
    lengths = [3, 7, 0, 1, 4]

    def merged():
        readers = [tagged(tag, num) for tag, num in enumerate(lengths)]
        return rd.multiprocess_reader(readers, order=True, queue_size=8)

    expected = in_turn(lengths)
    reader = merged()
    assert list(reader) == expected
    here = rd.interleave(*(tagged(tag, num) for tag, num in enumerate(lengths)))
    assert list(here) == expected
    reader.load_state_dict(here.state_dict())
    for skip in (4, 11, 99):
        assert list(reader.open(0, skip)) == expected[skip:]


@given(st.lists(st.integers(0, 6), max_size=5), st.integers(0, 30))
def test_places_after_any_number_of_samples(lengths, num):
    taken = in_turn(lengths)[:num]
    assert _places(num, lengths) == [
        sum(tag == index for tag, _ in taken) for index in range(len(lengths))
    ]


def test_unordered_merge_delivers_all_and_has_no_state():
    reader = rd.multiprocess_reader([tagged("a", 30), tagged("b", 5)])
    assert sorted(reader) == sorted([*tagged("a", 30)(), *tagged("b", 5)()])
    assert len(list(reader.open(0, 30))) == 5
    with pytest.raises(ReaderError, match=r"multiprocess_reader delivers .* pass order=True"):
        reader.state_dict()


@pytest.mark.parametrize("readers", [[], (), iter([]), counting(3), None, 5])
def test_merging_no_readers_is_refused(readers):
    with pytest.raises(FieldError, match=r"multiprocess_reader.readers must be a list of at least"):
        rd.multiprocess_reader(readers)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: rd.isolate(5), "isolate.reader must be callable, got 5"),
        (lambda: rd.isolate(counting(1), buffer_size=0), "isolate.buffer_size must be .* >= 1"),
        (lambda: rd.isolate(counting(1), timeout_s=0), "isolate.timeout_s must be .* > 0"),
        (
            lambda: rd.multiprocess_reader([counting(1)], queue_size=0),
            "multiprocess_reader.queue_size must be a whole number >= 1, got 0",
        ),
        (
            lambda: rd.multiprocess_reader([counting(1)], timeout_s=-1),
            "multiprocess_reader.timeout_s must be",
        ),
        (lambda: rd.xmap_readers(abs, list, 1, 1, on_error="ignore"), "xmap_readers.on_error must"),
        (lambda: rd.xmap_readers(abs, list, 1, 1, rng=-1), "xmap_readers.rng must be"),
    ],
)
def test_arguments_that_are_refused(make, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make()


def test_too_little_shared_memory_is_an_error_of_the_pass(monkeypatch):
    monkeypatch.setattr("gpufeed.workers.segment.free_nbytes", lambda: 1 << 20)
    with pytest.raises(ReaderError, match="xmap_readers: its workers need 12 MiB"):
        list(rd.xmap_readers(abs, counting(3), 2, 2, processes=True))


def noisy(sample, rng):
    return sample, rng.random(), rng.integers(1000)


def test_random_numbers_are_those_of_the_sample_whoever_maps_it():
    expected = list(rd.map_readers(noisy, counting(12), rng=5))
    for options in (
        {"process_num": 1},
        {"process_num": 3, "order": True},
        {"process_num": 1, "processes": True},
        {"process_num": 3, "order": True, "processes": True},
    ):
        reader = rd.xmap_readers(noisy, counting(12), buffer_size=4, rng=5, **options)
        assert sorted(reader.open(0, 5)) == expected[5:]


def fails_on_threes(sample):
    if sample % 3 == 0:
        raise ValueError(sample)
    return sample


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("order", [False, True])
def test_samples_that_fail_are_left_out_and_counted(order, processes):
    reader = rd.xmap_readers(
        fails_on_threes, counting(40), 2, 4, order, processes=processes, on_error="skip"
    )
    expected = [sample for sample in range(40) if sample % 3]
    assert sorted(reader) == expected
    skipped = reader.skipped()
    assert skipped["count"] == 14
    if order:
        assert skipped["ordinals"] == list(range(0, 40, 3))
        assert list(reader.open(0, 7)) == expected[7:]


@pytest.mark.parametrize("processes", [False, True])
def test_too_many_failures_are_an_error(processes):
    reader = rd.xmap_readers(
        fails_on_threes, counting(40), 2, 4, True, processes=processes, on_error=Skip(max=2)
    )
    taken = []
    with pytest.raises(ValueError, match="6") as caught:
        taken.extend(iter(reader))
    assert "allows no more" in caught.value.__notes__[-1]


@pytest.mark.parametrize("processes", [False, True])
def test_errors_of_the_reader_are_never_left_out(processes):
    def reader():
        yield 1
        raise KeyError("of the reader")

    mapped = rd.xmap_readers(abs, reader, 2, 4, True, processes=processes, on_error="skip")
    samples = mapped()
    assert next(samples) == 1
    with pytest.raises(KeyError):
        next(samples)


def mapped_by(**options):
    return rd.xmap_readers(noisy, counting(30), buffer_size=4, order=True, rng=2, **options)


def test_a_state_is_good_for_any_number_of_workers_of_any_kind():
    expected = list(mapped_by(process_num=1))
    reader = mapped_by(process_num=2, processes=True)
    samples = reader()
    for _ in range(11):
        next(samples)
    state = reader.state_dict()
    samples.close()
    for again in (
        rd.map_readers(noisy, counting(30), rng=2),
        mapped_by(process_num=7),
        mapped_by(process_num=1, processes=True),
        mapped_by(process_num=3, processes=True),
    ):
        again.load_state_dict(state)
        assert list(again) == expected[11:]


def test_leaving_samples_out_is_part_of_the_identity():
    plain = rd.xmap_readers(abs, counting(3), 1, 2, True)
    assert plain.identity() == rd.map_readers(abs, counting(3)).identity()
    skipping = rd.xmap_readers(abs, counting(3), 1, 2, True, on_error="skip")
    assert skipping.identity() == rd.map_readers(abs, counting(3), on_error="skip").identity()
    assert skipping.identity() != plain.identity()


def test_counts_are_those_of_the_source():
    known = rd.cache(counting(5))
    assert list(known) == list(range(5))
    for make, times in (
        (rd.isolate, 1),
        (lambda reader: rd.xmap_readers(abs, reader, 1, 1, processes=True), 1),
        (lambda reader: rd.multiprocess_reader([reader, reader]), 2),
    ):
        assert make(counting(5)).count() is None
        assert make(known).count() == 5 * times


def test_the_repr_shows_how_samples_are_mapped():
    reader = rd.xmap_readers(abs, counting(3), 2, 4, processes=True)
    assert repr(reader).endswith("process_num=2, buffer_size=4, order=False, processes=True)")


@pytest.mark.parametrize("stage", ["isolate", "xmap"])
def test_systems_without_pidfd_and_memfd(stage, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert list(MAKERS[stage](counting(5))) == list(range(5))

    def dies():
        yield 0
        os._exit(7)

    samples = rd.isolate(dies)()
    assert next(samples) == 0
    with pytest.raises(WorkerDied, match="exited with status 7"):
        next(samples)

    def hangs():
        yield 0
        threading.Event().wait()

    samples = rd.isolate(hangs)()
    assert next(samples) == 0
    samples.close()


def test_a_worker_that_is_not_given_work_ends_in_silence(capfd):
    lock = threading.Lock()
    with pytest.raises(ReaderError, match=r"xmap_readers.mapper must be picklable"):
        list(rd.xmap_readers(lambda sample: lock, counting(3), 2, 2, processes=True))
    assert capfd.readouterr() == ("", "")


class Unhelpful:
    def __reduce__(self):
        return int, ("no number",)


def test_what_a_worker_cannot_unpickle_is_told():
    unhelpful = Unhelpful()
    with pytest.raises(ValueError, match="no number") as caught:
        list(rd.isolate(lambda: [unhelpful]))
    assert "while a worker process unpickled" in "".join(caught.value.__notes__)


def test_idle_blas_threads_of_a_worker_do_not_spin_unless_told_to(monkeypatch):
    def spinning():
        yield os.environ.get("OPENBLAS_THREAD_TIMEOUT")

    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    assert list(rd.isolate(spinning)) == ["4"]
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "20")
    assert list(rd.isolate(spinning)) == ["20"]
