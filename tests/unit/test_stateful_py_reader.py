"""`PyReader`: the diagram in its module's head, every arrow and every wrong turn."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.readers import BrokenError, Watched, counting

import gpufeed.reader as rd
from gpufeed.device import virtual_devices
from gpufeed.errors import EOFException, FieldError, PlaceError, ReaderError
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.stateful import BatchReader, DoubleBufferReader, PyReader, ReaderBase, py_reader
from gpufeed.tensor import LoDTensor


def make(source=None, *, num=6, **options):
    """A reader of 0, 1, ... in mini-batches of 2."""
    reader = PyReader(2, [[-1]], ["int64"], **options)
    reader.decorate_paddle_reader(source or rd.batch(counting(num), 2))
    return reader


def rest_of(reader):
    values = []
    while reader.has_next():
        values += reader.read_next()[0].to_list()
    return values


@pytest.mark.parametrize("use_double_buffer", [True, False])
def test_passes(use_double_buffer):
    reader = make(use_double_buffer=use_double_buffer)
    assert isinstance(reader, ReaderBase)
    for _ in range(3):
        reader.start()
        assert rest_of(reader) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(EOFException, match=r"There is no next data\."):
            reader.read_next()
        with pytest.raises(EOFException):
            reader.read_next()
        reader.reset()


def test_each_pass_is_an_epoch_of_the_source():
    shuffled = rd.shuffle(counting(20), 20, seed=4)
    reader = make(rd.batch(shuffled, 5))
    expected = rd.shuffle(counting(20), 20, seed=4)
    for _ in range(3):
        reader.start()
        assert rest_of(reader) == list(expected())
        reader.reset()


def test_a_loose_reader_converts_samples_and_takes_tensors_as_they_are():
    strict, loose = make(lambda: [[1.9]]), make(strict=False)
    strict.start()
    with pytest.raises(FieldError, match="expected int64 values, got float"):
        strict.read_next()
    loose.decorate_sample_list_generator(lambda: [[1.9]])
    loose.start()
    assert loose.read_next()[0].to_list() == [1]
    loose.reset()
    loose.decorate_batch_generator(lambda: [[np.ones((2, 3), "float32")]])
    loose.start()
    assert loose.read_next()[0].shape == (2, 3)


def test_one_of_many_starts():
    reader = make(num=2)
    barrier, refused = threading.Barrier(8), []

    def start():
        barrier.wait()
        try:
            reader.start()
        except ReaderError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert rest_of(reader) == [0, 1]


def test_fields_with_lod():
    reader = py_reader(4, [[1], [1]], ["int64", "float32"], [1, 0])
    reader.decorate_paddle_reader(lambda: [[([7, 8], 0.5), ([], 1.5)]])
    reader.start()
    ids, weight = reader.read_next()
    assert (ids.lod(), weight.to_list()) == ([[0, 2, 2]], [[0.5], [1.5]])


def test_a_provider_of_tensors():
    ids = LoDTensor(np.array([[7], [8]]), [[0, 1, 2]])
    weights = np.ones((2, 1), np.float32)
    reader = py_reader(4, [[1], [1]], ["int64", "float32"], [1, 0])
    reader.decorate_tensor_provider(lambda: [[ids, weights], (ids, weights)])
    reader.start()
    for _ in range(2):
        given, array = reader.read_next()
        assert given is ids
        assert array.data is weights
    assert not reader.has_next()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([np.zeros((2, 4), np.float32)], r"expected shape \(-1, 3\), got \(2, 4\)"),
        ([np.zeros((2, 3))], "expected dtype float32, got float64"),
        ([np.zeros((2, 3), np.float32)] * 2, "py_reader: expected 1 tensors a sample, got 2"),
        ([LoDTensor(np.zeros((2, 3), np.float32), [[0, 2]])], "expected lod_level 0, got 1"),
    ],
)
def test_a_provider_of_something_else(tensors, message):
    reader = PyReader(4, [[3]], ["float32"])
    reader.decorate_tensor_provider(lambda: [tensors])
    reader.start()
    with pytest.raises(FieldError, match=message):
        reader.read_next()
    with pytest.raises(EOFException):
        reader.read_next()


def test_an_error_of_the_source_comes_after_the_batches_before_it():
    def source():
        yield [1, 2]
        yield [3]
        raise BrokenError

    reader = make(source)
    reader.start()
    assert [reader.read_next()[0].to_list() for _ in range(2)] == [[1, 2], [3]]
    with pytest.raises(BrokenError):
        reader.read_next()
    with pytest.raises(EOFException):
        reader.read_next()
    reader.reset()
    reader.start()
    assert reader.read_next()[0].to_list() == [1, 2]


@pytest.mark.parametrize("method", ["read_next", "has_next"])
def test_a_read_before_the_start_loses_nothing(method):
    reader = make(name="train")
    for _ in range(2):
        with pytest.raises(ReaderError, match=rf"train.{method} needs a started pass; call start"):
            getattr(reader, method)()
    reader.start()
    assert rest_of(reader) == [0, 1, 2, 3, 4, 5]
    reader.reset()
    with pytest.raises(ReaderError, match="needs a started pass"):
        getattr(reader, method)()


def test_a_second_start_loses_nothing():
    reader = make()
    reader.start()
    assert reader.read_next()[0].to_list() == [0, 1]
    with pytest.raises(ReaderError, match=r"py_reader.start was called already; call reset\(\)"):
        reader.start()
    assert rest_of(reader) == [2, 3, 4, 5]
    with pytest.raises(ReaderError, match="was called already"):
        reader.start()
    with pytest.raises(EOFException):
        reader.read_next()


def test_a_reset_in_the_middle_begins_at_the_first_batch():
    source = Watched(100)
    reader = make(rd.batch(source, 2))
    for _ in range(3):
        reader.start()
        assert reader.read_next()[0].to_list() == [0, 1]
        assert reader.has_next()
        reader.reset()
        assert source.num_open == 0


def test_a_reset_is_legal_everywhere():
    reader = PyReader(2, [[-1]], ["int64"])
    reader.reset()
    reader.decorate_paddle_reader(rd.batch(counting(2), 2))
    reader.reset()
    reader.start()
    reader.reset()
    reader.reset()
    reader.start()
    assert rest_of(reader) == [0, 1]


def test_a_start_without_a_source():
    reader = PyReader(2, [[-1]], ["int64"])
    with pytest.raises(ReaderError, match=r"py_reader.start needs a source; call decorate_paddle"):
        reader.start()
    with pytest.raises(ReaderError, match="py_reader needs a source"):
        list(reader())


def test_another_source():
    reader = make()
    reader.start()
    reader.read_next()
    for decorate in (reader.decorate_paddle_reader, reader.decorate_tensor_provider):
        with pytest.raises(ReaderError, match=r"decorate_\* is not possible in a pass; call reset"):
            decorate(counting(3))
    assert rest_of(reader) == [2, 3, 4, 5]
    reader.reset()
    reader.decorate_paddle_reader(lambda: [[9]])
    reader.start()
    assert rest_of(reader) == [9]


def test_reinit_is_reset_and_start():
    reader = make()
    reader.reinit()
    assert reader.read_next()[0].to_list() == [0, 1]
    reader.reinit()
    assert rest_of(reader) == [0, 1, 2, 3, 4, 5]


def test_it_is_a_reader():
    reader = make()
    assert [tensor.to_list() for (tensor,) in reader()] == [[0, 1], [2, 3], [4, 5]]


def test_what_is_decorated_on_top_waits_for_the_start():
    reader = make()
    merged = BatchReader(reader, 2)
    with pytest.raises(ReaderError, match="call start"):
        merged.read_next()
    reader.start()
    merged.reinit()
    assert rest_of(merged) == [0, 1, 2, 3, 4, 5]
    sent = DoubleBufferReader(reader, "cpu")
    assert rest_of(sent) == [0, 1, 2, 3, 4, 5]


def test_a_part_of_a_pass_needs_the_start_too():
    reader = make()
    with pytest.raises(ReaderError, match="call start"):
        list(rd.shard(reader, 2, 1)())
    reader.start()
    assert [tensor.to_list() for (tensor,) in rd.shard(reader, 2, 1)()] == [[2, 3]]


def test_a_place_that_is_given_stays():
    reader = make(place="cpu")
    reader.bind(CUDAPlace(0))
    reader.start()
    assert reader.read_next()[0].place == CPUPlace()


def test_batches_go_to_the_place():
    with virtual_devices(1):
        reader = make(place="cuda:0")
        reader.start()
        (tensor,) = reader.read_next()
        assert tensor.place == CUDAPlace(0)
        assert rest_of(reader) == [2, 3, 4, 5]


def test_a_place_that_is_not_there():
    with virtual_devices(1):
        reader = make(place="cuda:3")
        reader.start()
        with pytest.raises(PlaceError, match="there are 1 virtual devices"):
            reader.read_next()


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_the_capacity_bounds_what_is_read_ahead(capacity):
    source = Watched(100)
    reader = PyReader(capacity, [[-1]], ["int64"], use_double_buffer=False)
    reader.decorate_paddle_reader(rd.batch(source, 1))
    reader.start()
    reader.read_next()
    source.wait_until_read(1 + capacity)
    # One more is in the thread's hands, waiting for room.
    assert source.num_read <= 1 + capacity + 1


def test_two_consumers_share_a_pass():
    reader, taken = make(num=200), []
    reader.start()

    def consume():
        try:
            while True:
                taken.extend(reader.read_next()[0].to_list())
        except EOFException:
            return

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == list(range(200))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 0}, "capacity must be a whole number >= 1, got 0"),
        ({"lod_levels": [0, 1]}, "lod_levels must be as many as shapes, 1, got 2"),
        ({"shapes": []}, "shapes must be a list of one entry a field"),
    ],
)
def test_arguments_that_break_a_rule(arguments, message):
    given = {"capacity": 2, "shapes": [[1]], "dtypes": ["int64"], **arguments}
    with pytest.raises(FieldError, match=f"py_reader.{message}"):
        py_reader(**given)
