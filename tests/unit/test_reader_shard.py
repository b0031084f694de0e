"""`shard`: whose samples are whose, what is read and mapped, and going on with other ranks."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pytest
from support.readers import Watched, counting

from gpufeed import DataFeeder, Program, data, program_guard
from gpufeed.creator import np_array
from gpufeed.errors import FieldError, ReaderError
from gpufeed.reader import (
    batch,
    buffered,
    cache,
    compose,
    filter,  # noqa: A004 - the public name
    firstn,
    isolate,
    map_readers,
    shard,
    shuffle,
    xmap_readers,
)


def ranks(num_shards, make, **options):
    return [make(num_shards, index, **options) for index in range(num_shards)]


def test_shards_are_strides():
    parts = [list(shard(counting(8), 3, index)) for index in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_equal_shards_leave_out_what_does_not_go_round():
    parts = [list(shard(counting(8), 3, index, equal=True)) for index in range(3)]
    assert parts == [[0, 3], [1, 4], [2, 5]]


def test_a_shard_reads_no_further_than_its_sample():
    source = Watched(100)
    samples = shard(source, 4, 1)()
    assert [next(samples), next(samples)] == [1, 5]
    assert source.num_read == 6
    samples.close()
    assert source.num_open == 0


def test_others_samples_are_not_mapped():
    mapped = []

    def mapper(sample):
        mapped.append(sample)
        return sample

    assert list(shard(map_readers(mapper, counting(10)), 4, 1)) == [1, 5, 9]
    assert mapped == [1, 5, 9]


def test_others_rows_are_not_even_looked_at():
    reader = np_array(np.arange(10), shard=(4, 1))
    assert [int(row) for row in reader] == [1, 5, 9]
    assert [int(row) for row in reader.open(0, 2)] == [9]
    assert reader.count() == 3


def test_each_sample_has_the_same_random_numbers_on_every_number_of_ranks():
    def draw(sample, rng):
        return sample, int(rng.integers(1 << 62))

    alone = dict(map_readers(draw, counting(20), rng=True))
    for place in (
        lambda n, i: map_readers(draw, shard(counting(20), n, i), rng=True),
        lambda n, i: shard(map_readers(draw, counting(20), rng=True), n, i),
        lambda n, i: xmap_readers(draw, shard(counting(20), n, i), 2, 4, order=True, rng=True),
    ):
        together = [sample for reader in ranks(3, place) for sample in reader]
        assert dict(together) == alone


def test_a_shuffle_below_must_have_a_seed():
    with pytest.raises(ReaderError, match=r"ranks must agree on the order.*shuffle has no seed"):
        shard(batch(shuffle(counting(9), 3), 2), 2, 0)
    list(shard(shuffle(counting(9), 3), 1, 0))  # one rank agrees with itself


def test_shards_of_a_seeded_shuffle_are_a_partition():
    parts = [list(shard(shuffle(counting(50), 20, seed=4), 3, index)) for index in range(3)]
    assert sorted(chain.from_iterable(parts)) == list(range(50))
    assert parts[0] == list(shuffle(counting(50), 20, seed=4))[::3]


def test_auto_reads_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(shard(counting(5), "auto")) == [1, 3]
    assert list(shard(counting(5), "auto", equal=True)) == [1, 3]
    with pytest.raises(FieldError, match=r"shard.index must not be given with 'auto', got 0"):
        shard(counting(5), "auto", 0)


def test_an_index_must_be_given():
    with pytest.raises(TypeError, match=r"shard.index must be given"):
        shard(counting(5), 2)


def test_repr_tells_the_rank():
    assert repr(shard(counting(3), 4, 1)) == "shard(read, num_shards=4, index=1, equal=False)"


def test_every_rank_may_load_the_state_of_any():
    def make(num_shards, index):
        return batch(shard(counting(40), num_shards, index), 2)

    first = make(4, 0)
    next(first())
    state = first.state_dict()
    assert state["world_size"] == 4
    last = make(4, 3)
    last.load_state_dict(state)
    assert last.state_dict() == state
    assert next(last()) == [11, 15]


def test_equal_shards_are_another_pipeline():
    state = shard(counting(5), 2, 0).state_dict()
    with pytest.raises(ReaderError, match="fingerprint"):
        shard(counting(5), 2, 0, equal=True).load_state_dict(state)


def resume(readers, state):
    for reader in readers:
        reader.load_state_dict(json.loads(json.dumps(state)))
    return readers


def test_other_ranks_go_on_with_what_is_left():
    def make(num_shards, index):
        stages = shard(map_readers(str, counting(100)), num_shards, index)
        return batch(buffered(stages, 3), 3)

    first = ranks(4, make)
    passes = [reader() for reader in first]
    seen = [sample for samples in passes for _ in range(2) for sample in next(samples)]
    state = first[2].state_dict()
    second = resume(ranks(3, make), state)
    assert second[0].state_dict()["earlier_worlds"] == [[4, 6]]
    passes += [reader() for reader in second]
    seen += [sample for samples in passes[4:] for sample in next(samples)]
    third = resume(ranks(5, make), second[1].state_dict())
    assert third[0].state_dict()["earlier_worlds"] == [[4, 6], [1, 9]]
    seen += [sample for reader in third for part in reader for sample in part]
    assert sorted(map(int, seen)) == list(range(100))
    # And the next pass is whole again.
    following = [sample for reader in third for part in reader for sample in part]
    assert sorted(map(int, following)) == list(range(100))
    assert third[0].state_dict()["earlier_worlds"] == []
    for samples in passes:
        samples.close()


@pytest.mark.parametrize("place", ["threads", "process", "feeder"])
def test_other_ranks_go_on_through_threads_processes_and_feeders(place):
    with program_guard(Program()):
        feeder = DataFeeder([data("x", [1], "int64")], "cpu")

    def make(num_shards, index):
        if place == "threads":
            mapped = xmap_readers(int, shard(counting(30), num_shards, index), 2, 4, order=True)
            return batch(mapped, 2)
        batches = batch(shard(counting(30), num_shards, index), 2)
        return isolate(batches) if place == "process" else feeder.decorate_reader(batches)

    def numbers(part):
        return part["x"].numpy().ravel().tolist() if place == "feeder" else part

    first = ranks(3, make)
    passes = [reader() for reader in first]
    seen = [number for samples in passes for _ in range(2) for number in numbers(next(samples))]
    for samples in passes:
        samples.close()
    second = resume(ranks(2, make), first[0].state_dict())
    seen += [number for reader in second for part in reader for number in numbers(part)]
    assert sorted(seen) == list(range(30))


def test_at_the_beginning_of_a_pass_any_number_of_ranks_may_go_on():
    def make(num_shards, index):
        return filter(bool, shard(counting(9), num_shards, index))

    reader = make(2, 0)
    state = reader.state_dict()
    parts = [list(each) for each in resume(ranks(3, make), state)]
    assert sorted(chain.from_iterable(parts)) == list(range(1, 9))


@pytest.mark.parametrize(
    ("make", "stage"),
    [
        (lambda n, i: filter(bool, shard(counting(9), n, i)), "filter"),
        (lambda n, i: shuffle(shard(counting(9), n, i), 4, seed=1), "shuffle"),
        (lambda n, i: firstn(shard(counting(9), n, i), 4), "firstn"),
        (lambda n, i: map_readers(abs, shard(counting(9), n, i), on_error="skip"), "map_readers"),
        (lambda n, i: compose(shard(counting(9), n, i), counting(3)), "compose"),
        (lambda n, i: shard(shard(counting(9), n, i), 2, 0), "shard"),
    ],
)
def test_stages_that_hide_what_they_took_keep_the_number_of_ranks(make, stage):
    reader = make(2, 1)
    next(samples := reader())
    state = reader.state_dict()
    samples.close()
    make(2, 0).load_state_dict(state)
    with pytest.raises(ReaderError, match=rf"needs {stage} to tell how many samples each has"):
        make(3, 0).load_state_dict(state)


def test_side_by_side_shards_go_on_together():
    def make(num_shards, index):
        return compose(
            shard(counting(20), num_shards, index), shard(counting(20), num_shards, index)
        )

    first = ranks(2, make)
    passes = [reader() for reader in first]
    seen = [next(samples) for samples in passes for _ in range(3)]
    second = resume(ranks(3, make), first[0].state_dict())
    seen += [sample for reader in second for sample in reader]
    assert sorted(seen) == [(n, n) for n in range(20)]
    for samples in passes:
        samples.close()


@pytest.mark.parametrize("worlds", [None, [[1]], [[0, 1]], [[1, True]], [[1, 1]] * 3, "ab"])
def test_earlier_worlds_of_a_state_are_checked(worlds):
    reader = shard(counting(9), 2, 0)
    with pytest.raises(ReaderError, match=r"state\['earlier_worlds'\] must be pairs of whole"):
        reader.load_state_dict({**reader.state_dict(), "earlier_worlds": worlds})


def test_a_cached_reader_is_divided_too():
    reader = cache(counting(10))
    assert [list(shard(reader, 2, index)) for index in range(2)] == [
        *([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    ]
    assert [shard(reader, 3, index).count() for index in range(3)] == [4, 3, 3]
    assert shard(counting(3), 2, 0).count() is None
