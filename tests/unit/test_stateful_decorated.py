"""Stateful readers over readers: the decorators, held open."""

from __future__ import annotations

import pickle
from functools import partial

import cloudpickle
import numpy as np
import pytest
from support.readers import BrokenError, counting, failing

import gpufeed.reader as rd
from gpufeed.device import virtual_devices
from gpufeed.errors import EOFException, FieldError, LoDError, PlaceError
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.stateful import (
    BatchReader,
    DecoratedReader,
    DoubleBufferReader,
    MultiPassReader,
    ReaderBase,
    ReaderHolder,
    ShuffleReader,
)
from gpufeed.stateful.tensors import TensorFields
from gpufeed.tensor import LoDTensor


def items_of(reader):
    items = []
    while reader.has_next():
        items.append(reader.read_next())
    return items


def test_all_are_decorated_readers_and_readers():
    made = [
        ShuffleReader(counting(3), 2),
        BatchReader(counting(3), 2),
        MultiPassReader(counting(3), 2),
        DoubleBufferReader(counting(3)),
    ]
    for reader in made:
        assert isinstance(reader, DecoratedReader)
        assert isinstance(reader, ReaderBase)
        assert isinstance(reader, rd.Reader)


@pytest.mark.parametrize("seed", [0, 5])
def test_shuffling_is_the_decorator(seed):
    held, expected = (
        ShuffleReader(counting(30), 8, seed=seed),
        rd.shuffle(counting(30), 8, seed=seed),
    )
    for _ in range(3):
        assert items_of(held) == list(expected())
        held.reinit()


def test_shuffling_leaves_the_source_alone():
    source = ReaderHolder(counting(5))
    shuffled = ShuffleReader(source, 5, seed=1)
    assert source.read_next() == 0
    assert sorted(items_of(shuffled)) == [0, 1, 2, 3, 4]
    assert source.read_next() == 1


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (ShuffleReader, "ShuffleReader.buffer_size"),
        (BatchReader, "BatchReader.batch_size"),
        (MultiPassReader, "MultiPassReader.pass_num"),
        (partial(DoubleBufferReader, place=None), "DoubleBufferReader.depth"),
    ],
)
def test_sizes_are_whole_numbers(make, argument, size):
    given = {"depth": size} if argument.endswith("depth") else {argument.partition(".")[2]: size}
    with pytest.raises(FieldError, match=f"{argument} must be a whole number >= 1, got"):
        make(counting(3), **given)


def test_batches_of_plain_samples_are_lists():
    assert items_of(BatchReader(counting(5), 2)) == [[0, 1], [2, 3], [4]]
    assert items_of(BatchReader(counting(5), 2, drop_last=True)) == [[0, 1], [2, 3]]


def test_batches_of_instances_are_merged():
    instances = [
        (LoDTensor(np.ones((2, 3))), LoDTensor([7, 8], [[0, 2]])),
        (LoDTensor(np.zeros((1, 3))), LoDTensor([9, 6, 5], [[0, 1, 3]])),
        (LoDTensor(np.zeros((0, 3))), LoDTensor(np.empty(0, np.int64), [[0, 0]])),
    ]
    (rows, ids), (empty, none) = items_of(BatchReader(lambda: instances, 2))
    assert rows.to_list() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    assert ids.to_list() == [[7, 8], [9], [6, 5]]
    assert ids.lod() == [[0, 2, 3, 5]]  # the reference gave [[0, 2, 3, 6]]
    assert (empty.shape, none.lod()) == ((0, 3), [[0, 0]])


def test_batches_of_two_lod_levels():
    first = LoDTensor([1, 2, 3], [[0, 2], [0, 1, 3]])
    second = LoDTensor([4, 5], [[0, 1, 1], [0, 2]])
    ((merged,),) = items_of(BatchReader(lambda: [(first,), (second,)], 2))
    assert merged.to_list() == [[[1], [2, 3]], [[4, 5]], []]


def test_batches_of_batches():
    instances = [(LoDTensor([number]),) for number in range(5)]
    nested = BatchReader(BatchReader(lambda: instances, 2), 2)
    assert [tensor.to_list() for (tensor,) in items_of(nested)] == [[0, 1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("second", "error"),
    [
        ((LoDTensor([1]), LoDTensor([1])), FieldError),
        ((LoDTensor([1.5]),), FieldError),
        ((LoDTensor([[1]]),), FieldError),
        ((LoDTensor([1], [[0, 1]]),), LoDError),
    ],
)
def test_instances_that_do_not_fit_each_other(second, error):
    reader = BatchReader(lambda: [(LoDTensor([1]),), second], 2)
    with pytest.raises(error):
        reader.read_next()
    with pytest.raises(EOFException):
        reader.read_next()


def test_what_is_collated_is_collated_once_a_batch():
    fields = TensorFields("test", [[-1, 1], [-1]], [1, 0], ["int64", "float32"])
    fed = []
    feed, fields._feed = fields._feed, lambda samples: fed.append(len(samples)) or feed(samples)
    source = ReaderHolder(lambda: [([1, 2], 0.5), ([], 1.0), ([3], 2.0)], fields)
    (ids, weight), _ = items_of(BatchReader(ShuffleReader(MultiPassReader(source, 1), 1), 2))
    assert (ids.to_list(), weight.to_list()) == ([[[1], [2]], []], [0.5, 1.0])
    assert fed == [2, 1]


def test_several_passes_are_one():
    held = MultiPassReader(ShuffleReader(counting(6), 6, seed=2), 3)
    expected = rd.repeat(rd.shuffle(counting(6), 6, seed=2), 3)
    assert items_of(held) == list(expected())
    held.reinit()
    assert items_of(held) == list(expected())


def test_several_passes_of_nothing():
    assert items_of(MultiPassReader(counting(0), 3)) == []


def test_an_error_ends_all_passes():
    held = MultiPassReader(failing(2), 3)
    assert [held.read_next(), held.read_next()] == [0, 1]
    with pytest.raises(BrokenError):
        held.read_next()
    assert not held.has_next()


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("place", [None, "cpu"])
def test_double_buffering_keeps_items_and_order(place, depth):
    held = DoubleBufferReader(counting(20), place, depth)
    for _ in range(2):
        assert items_of(held) == list(range(20))
        held.reinit()


def test_double_buffering_sends_tensors():
    with virtual_devices(2):
        items = [(LoDTensor([n, 2], [[0, 2]]), LoDTensor(np.ones((n, 3)))) for n in range(6)]
        held = DoubleBufferReader(lambda: items, "cuda:1")
        assert held.place == CUDAPlace(1)
        for _ in range(2):
            for (ids, rows), (sent, sent_rows) in zip(items, items_of(held), strict=True):
                assert (sent.place, sent.lod(), sent.dtype) == (CUDAPlace(1), [[0, 2]], ids.dtype)
                assert sent.to_list() == ids.to_list()
                assert sent_rows.to_list() == rows.to_list()
            held.reinit()


def test_a_rank_is_sent_its_part():
    held = DoubleBufferReader(counting(7))
    assert list(rd.shard(held, 3, 1)()) == [1, 4]


def test_what_cannot_be_sent():
    with virtual_devices(1):
        for item in (3, LoDTensor([1]), (LoDTensor([1]), "name"), {"x": LoDTensor([1])}):
            reader = DoubleBufferReader(lambda given=item: [given], "cuda:0")
            with pytest.raises(FieldError, match="must read tuples of tensors to send them"):
                reader.read_next()


def test_what_is_sent_already_stays():
    with virtual_devices(2):
        first = DoubleBufferReader(lambda: [(LoDTensor([n]),) for n in range(4)], "cuda:1")
        merged = BatchReader(first, 2)
        for reader, expected in (
            (DoubleBufferReader(first, "cuda:1"), [[0], [1], [2], [3]]),
            (DoubleBufferReader(merged, "cuda:1"), [[0, 1], [2, 3]]),
            (DoubleBufferReader(merged), [[0, 1], [2, 3]]),
        ):
            tensors = [tensor for (tensor,) in items_of(reader)]
            assert {tensor.place for tensor in tensors} == {CUDAPlace(1)}
            assert [tensor.to_list() for tensor in tensors] == expected
        with pytest.raises(PlaceError):
            DoubleBufferReader(first, "cuda:0").read_next()


def test_a_place_that_is_given_stays():
    unplaced, placed = DoubleBufferReader(counting(1)), DoubleBufferReader(counting(1), "cpu")
    for reader in (unplaced, placed):
        reader.bind(CUDAPlace(0))
    assert (unplaced.place, placed.place) == (CUDAPlace(0), CPUPlace())


def test_a_place_that_is_none():
    with pytest.raises(PlaceError, match="place must be a Place"):
        DoubleBufferReader(counting(3), "gpu")
    missing = DoubleBufferReader(lambda: [(LoDTensor([1]),)], "cuda:7")  # met when it is read
    with virtual_devices(1), pytest.raises(PlaceError, match="there are 1 virtual devices"):
        missing.read_next()


def test_any_decorator_can_be_held():
    held = DecoratedReader(counting(9), lambda reader: rd.filter(lambda n: n % 2, reader), str)
    assert items_of(held) == ["1", "3", "5", "7"]


def test_a_decorator_sees_what_is_read():
    source = ReaderHolder(counting(3), str)
    assert items_of(DecoratedReader(source, lambda reader: rd.map_readers(len, reader))) == [
        1,
        1,
        1,
    ]


def test_a_pipeline_is_pickled_without_its_pass():
    samples = [([1, 2], 0.5), ([], 1.0), ([3], 2.0)]
    fields = TensorFields("test", [[-1, 1], [-1]], [1, 0], ["int64", "float32"])
    source = ReaderHolder(rd.cache(lambda: samples), fields)
    held = DoubleBufferReader(MultiPassReader(BatchReader(ShuffleReader(source, 4, seed=1), 2), 2))
    held.read_next()
    again = pickle.loads(cloudpickle.dumps(held))
    values = [[tensor.to_list() for tensor in item] for item in items_of(again)]
    expected = [[tensor.to_list() for tensor in item] for item in held()]
    assert len(values) == len(expected) == 4
    assert len(items_of(held)) == 3


def test_a_pipeline_resumes():
    def make():
        shuffled = ShuffleReader(counting(23), 5, seed=1)
        return DoubleBufferReader(MultiPassReader(BatchReader(shuffled, 4), 2))

    held, again = make(), make()
    for _ in range(8):
        held.read_next()
    again.load_state_dict(held.state_dict())
    assert items_of(again) == items_of(held)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((counting(3), 3), r"DecoratedReader\.decorate must be callable, got 3"),
        ((3, lambda reader: reader), r"reader must be callable, got 3"),
        ((counting(3), lambda reader: None), r"reader must be callable, got None"),
        (
            (counting(3), lambda reader: reader, 3),
            r"DecoratedReader\.convert must be callable, got 3",
        ),
    ],
)
def test_what_decorates_and_what_is_decorated_are_callable(arguments, message):
    with pytest.raises(TypeError, match=message):
        DecoratedReader(*arguments)
