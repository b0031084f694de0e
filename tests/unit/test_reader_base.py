"""What all readers share: passes and epochs, state, closing, how they show themselves."""

from __future__ import annotations

import json
import pickle
import threading

import pytest
from support.readers import Watched

from gpufeed import reader as rd
from gpufeed.errors import ReaderError
from gpufeed.reader import (
    batch,
    buffered,
    cache,
    firstn,
    map_readers,
    repeat,
    shuffle,
    xmap_readers,
)
from gpufeed.reader.base import Reader


@pytest.mark.parametrize("join", ["chain", "compose", "interleave", "map_readers", "mix"])
def test_joining_no_readers_is_refused(join):
    arguments = {"map_readers": (abs,), "mix": ([],)}.get(join, ())
    with pytest.raises(TypeError, match=f"{join}.readers must be at least one reader, got none"):
        getattr(rd, join)(*arguments)


class Epochs(Reader[tuple[int, int]]):
    """Samples that tell which pass they belong to."""

    def __init__(self, num: int = 3) -> None:
        super().__init__("epochs", num=num)
        self.num = num

    def open(self, epoch, skip):
        return iter([(epoch, number) for number in range(skip, self.num)])


def digits():
    return iter(range(10))


def test_each_call_is_the_next_epoch():
    reader = Epochs(1)
    assert [list(reader()), list(reader), list(reader())] == [[(0, 0)], [(1, 0)], [(2, 0)]]


def test_every_decorator_passes_the_epoch_down():
    stages = [buffered(Epochs(), 2), firstn(Epochs(), 2), map_readers(tuple, Epochs())]
    for reader in [*stages, xmap_readers(tuple, Epochs(), 2, 2, order=True)]:
        reader.set_epoch(7)
        assert {epoch for epoch, _ in reader} == {7}


def test_set_epoch_sets_the_next_pass():
    reader = Epochs(1)
    reader.set_epoch(5)
    assert list(reader) == [(5, 0)]
    assert list(reader) == [(6, 0)]
    reader.set_epoch(2)
    assert list(reader) == [(2, 0)]


def test_set_epoch_keeps_a_position_loaded_in_that_epoch():
    reader = Epochs(3)
    next(reader())
    state = reader.state_dict()
    again = Epochs(3)
    again.load_state_dict(state)
    again.set_epoch(0)
    assert list(again) == [(0, 1), (0, 2)]
    again.load_state_dict(state)
    again.set_epoch(1)
    assert list(again) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("epoch", [-1, 0.5, "1"])
def test_set_epoch_refuses(epoch):
    with pytest.raises(ValueError, match=r"epochs.set_epoch.epoch must be a whole number >= 0"):
        Epochs().set_epoch(epoch)


def test_a_state_is_small_json():
    reader = batch(shuffle(buffered(digits, 4), 4, seed=3), 2)
    next(reader())
    state = reader.state_dict()
    assert len(json.dumps(state)) < 1024
    assert json.loads(json.dumps(state)) == state
    assert state == {
        "version": 1,
        "epoch": 0,
        "delivered": 1,
        "over": False,
        "seed": 3,
        "world_size": 1,
        "earlier_worlds": [],
        "skipped": {"count": 0, "ordinals": []},
        "fingerprint": state["fingerprint"],
    }


def test_state_counts_what_was_delivered_and_not_what_was_read_ahead():
    source = Watched(10)
    reader = buffered(source, 8)
    samples = reader()
    assert next(samples) == 0
    source.wait_until_read(5)
    state = reader.state_dict()
    samples.close()
    assert state["delivered"] == 1
    again = buffered(Watched(10), 8)
    again.load_state_dict(state)
    assert list(again) == list(range(1, 10))


def test_asking_the_state_reads_nothing():
    source = Watched(3)
    reader = buffered(source, 2)
    samples = reader()
    assert reader.state_dict()["delivered"] == 0
    assert source.num_read == 0
    assert list(samples) == [0, 1, 2]


def test_state_at_the_end_resumes_to_nothing_and_then_the_next_epoch():
    reader = Epochs(2)
    list(reader)
    state = reader.state_dict()
    assert (state["epoch"], state["delivered"]) == (0, 2)
    again = Epochs(2)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert list(again) == []
    assert again.state_dict() == state
    assert list(again) == [(1, 0), (1, 1)]


def test_a_pass_that_is_over_is_not_read_again():
    source = Watched(3)
    reader = rd.filter(bool, source)
    list(reader)
    state = reader.state_dict()
    assert state["over"]
    again = rd.filter(bool, source)
    again.load_state_dict(state)
    assert list(again) == []
    assert source.num_read == 3
    assert list(again) == [1, 2]


def test_a_pass_that_was_left_is_not_over():
    reader = firstn(digits, 2)
    samples = reader()
    assert [next(samples), next(samples)] == [0, 1]
    assert not reader.state_dict()["over"]
    samples.close()
    assert not reader.state_dict()["over"]
    with pytest.raises(ZeroDivisionError):
        list(failed := map_readers(lambda sample: 1 / sample, digits))
    assert not failed.state_dict()["over"]


def test_state_before_anything_is_the_beginning():
    reader = Epochs(2)
    state = reader.state_dict()
    list(reader)
    reader.load_state_dict(state)
    assert list(reader) == [(0, 0), (0, 1)]


def test_a_state_does_not_depend_on_how_fast_samples_come():
    def pipeline(parallel):
        mapped = (
            xmap_readers(abs, digits, parallel, 4, order=True)
            if parallel
            else map_readers(abs, digits)
        )
        return batch(buffered(mapped, 3) if parallel > 1 else mapped, 3)

    reader = pipeline(4)
    next(reader())
    state = reader.state_dict()
    reader.close()
    for parallel in (0, 1, 2, 7):
        again = pipeline(parallel)
        again.load_state_dict(state)
        assert list(again) == [[3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 2}, r"state\['version'\] must be 1, got 2"),
        ({"delivered": -1}, r"state\['delivered'\] must be a whole number >= 0, got -1"),
        ({"over": "no"}, r"state\['over'\] must be True or False, got 'no'"),
        ({"skipped": 5}, r"state\['skipped'\] must be what skipped\(\) returned, got 5"),
        ({"skipped": {}}, r"state\['skipped'\] must be what skipped\(\) returned, got {}"),
        ({"epoch": "0"}, r"state\['epoch'\] must be a whole number >= 0, got '0'"),
        ({"epoch": True}, r"state\['epoch'\] must be a whole number"),
        ({"seed": 4}, r"state\['seed'\] must be 3, got 4"),
        ({"fingerprint": "0"}, r"pipeline of other stages, or with other arguments\), got '0'"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, match):
    reader = batch(shuffle(digits, 4, seed=3), 2)
    with pytest.raises(ReaderError, match=match):
        reader.load_state_dict({**reader.state_dict(), **change})


@pytest.mark.parametrize("state", [None, [], "state", {}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ReaderError, match="load_state_dict of firstn"):
        firstn(digits, 3).load_state_dict(state)


@pytest.mark.parametrize(
    "other",
    [
        lambda: batch(digits, 3),
        lambda: batch(digits, 2, drop_last=True),
        lambda: batch(firstn(digits, 4), 2),
        lambda: firstn(batch(digits, 2), 4),
    ],
)
def test_a_state_of_another_pipeline_is_refused(other):
    with pytest.raises(ReaderError, match="fingerprint"):
        other().load_state_dict(batch(digits, 2).state_dict())


def test_the_error_shows_both_pipelines():
    state = batch(digits, 3).state_dict()
    with pytest.raises(ReaderError) as caught:
        batch(digits, 2).load_state_dict(state)
    for size in (2, 3):
        assert f"batch(reader, batch_size={size}, drop_last=False)" in str(caught.value)


def test_a_fingerprint_is_short_and_still_tells_long_pipelines_apart():
    def pipeline(number):
        reader = firstn(digits, number)
        for _ in range(50):
            reader = batch(firstn(reader, 9), 1)
        return reader

    marks = {pipeline(number).state_dict()["fingerprint"] for number in range(5)}
    assert len(marks) == 5
    assert all(len(mark) < 200 for mark in marks)


def test_several_seeds_are_all_compared():
    def pipeline(first, second):
        return shuffle(batch(shuffle(digits, 4, seed=first), 2), 2, seed=second)

    state = pipeline(1, 2).state_dict()
    assert state["seed"] == [2, 1]
    pipeline(1, 2).load_state_dict(state)
    with pytest.raises(ReaderError, match="seed"):
        pipeline(2, 1).load_state_dict(state)


@pytest.mark.parametrize(
    ("reader", "match"),
    [
        (batch(shuffle(digits, 4), 2), "shuffle has no seed"),
        (firstn(xmap_readers(abs, digits, 2, 2), 3), "xmap_readers delivers as samples are done"),
    ],
)
def test_what_does_not_repeat_its_order_has_no_state(reader, match):
    with pytest.raises(ReaderError, match=match):
        reader.state_dict()
    with pytest.raises(ReaderError, match=match):
        reader.load_state_dict({})


def test_a_shuffle_that_changes_nothing_needs_no_seed():
    assert shuffle(digits, 1).state_dict()["seed"] is None


def test_every_stage_is_named_once():
    shared = firstn(digits, 3)
    reader = rd.chain(batch(shared, 2), rd.compose(shared, shared))
    assert [stage.name for stage in reader.stages()] == ["chain", "batch", "firstn", "compose"]
    for _ in range(30):
        reader = rd.chain(reader, reader)
    assert len(list(reader.stages())) == 34


def test_only_the_outermost_reader_counts():
    inner = batch(digits, 2)
    outer = firstn(inner, 3)
    list(outer)
    assert outer.state_dict()["delivered"] == 3
    assert inner.state_dict()["delivered"] == 0
    assert inner.state_dict()["epoch"] == 0


def test_close_ends_passes_in_the_middle_and_the_reader_goes_on():
    source = Watched(100)
    reader = batch(buffered(source, 4), 2)
    first, second = reader(), reader()
    next(first), next(second)
    reader.close()
    reader.close()
    assert source.num_open == 0
    assert list(first) == []
    assert next(reader()) == [0, 1]


def test_a_reader_is_a_context_manager():
    source = Watched(100)
    with buffered(source, 4) as reader:
        next(samples := reader())
    assert source.num_open == 0
    assert list(samples) == []


def test_repr_shows_the_pipeline():
    reader = batch(shuffle(map_readers(abs, buffered(digits, 5)), 4, seed=7), 2)
    assert repr(reader) == (
        "batch(shuffle(map_readers(abs, buffered(digits, size=5)), buf_size=4, seed=7), "
        "batch_size=2, drop_last=False)"
    )
    assert repr(rd.filter(Epochs, Epochs())) == "filter(Epochs, epochs(num=3))"


def test_what_is_not_callable_is_refused_with_a_remedy():
    with pytest.raises(TypeError, match=r"batch.reader must be callable, got .*lambda: iterable"):
        batch([1, 2, 3], 2)
    for make, name in [
        (lambda: map_readers(3, digits), "map_readers.func"),
        (lambda: rd.xmap_readers(3, digits, 1, 1), "xmap_readers.mapper"),
        (lambda: rd.filter(3, digits), "filter.predicate"),
        (lambda: rd.take_while(3, digits), "take_while.predicate"),
    ]:
        with pytest.raises(TypeError, match=rf"^{name} must be callable, got 3$"):
            make()


def test_a_reader_can_be_pickled_between_passes():
    reader = batch(repeat(cache(Epochs(2)), 2), 3)
    list(reader)
    again = pickle.loads(pickle.dumps(reader))
    assert again.state_dict() == reader.state_dict()
    assert list(again) == list(reader)


def test_passes_may_be_started_while_a_reader_is_closed():
    reader = firstn(lambda: range(3), 3)
    started = []
    starter = threading.Thread(target=lambda: started.extend(reader() for _ in range(20_000)))
    starter.start()
    while starter.is_alive():
        reader.close()
    starter.join()
    assert len(started) == 20_000
