"""Every state of every pipeline resumes exactly, skipping is draining, and counts are true.

For one stage, for each pair of stages, for random pipelines, and through a feeder that reads ahead.
"""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipelines import STAGES, FailedError, choosy, drawn, size_of, tagged
from support.readers import counting

from gpufeed import DataFeeder, Program, creator, data, program_guard
from gpufeed import reader as rd
from gpufeed.creator import np_array
from gpufeed.testing import assert_resumes_exactly

names = st.sampled_from(sorted(STAGES))
pipelines = st.lists(names, min_size=1, max_size=5)
lengths = st.integers(0, 14)


def build(stages: Any, num: int, *, is_counted: bool = False) -> Any:
    """Put stages on top of each other, the last one last."""
    reader: Any = np_array(range(num)) if is_counted else counting(num)
    for stage in stages:
        reader = STAGES[stage](reader)
    return reader


@pytest.mark.parametrize("num", [0, 1, 7])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_resumes_exactly(stage, num):
    assert_resumes_exactly(partial(build, [stage], num))


@pytest.mark.parametrize("stage", STAGES)
def test_a_pair_of_stages_resumes_exactly(stage):
    for other in STAGES:
        assert_resumes_exactly(partial(build, [stage, other], 5), num_samples=4)


@given(pipelines, lengths, st.booleans())
def test_a_random_pipeline_resumes_exactly(stages, num, is_counted):
    make = partial(build, stages, num, is_counted=is_counted)
    assert_resumes_exactly(make, num_samples=8)


@given(pipelines, lengths, st.booleans(), st.integers(0, 2), st.data())
def test_skipping_is_draining(stages, num, is_counted, epoch, data):
    reader = build(stages, num, is_counted=is_counted)
    everything = list(reader.open(epoch, 0))
    skip = data.draw(st.integers(0, len(everything) + 3))
    assert list(reader.open(epoch, skip)) == everything[skip:]
    step = data.draw(st.integers(1, 4))
    assert list(reader.open_every(epoch, skip, step)) == everything[skip::step]


def odd(sample: int) -> int:
    if sample % 3 == 1:
        raise FailedError(sample)
    return sample


def leaky(num: int) -> Any:
    return rd.map_readers(odd, counting(num), on_error="skip")


ENDING = {
    "the first ends": lambda num: rd.compose(
        rd.firstn(leaky(99), num), leaky(20), leaky(9), check_alignment=False
    ),
    "another ends": lambda num: rd.compose(leaky(20), leaky(num), check_alignment=False),
    "a function of both": lambda num: rd.map_readers(max, leaky(num), leaky(40)),
    "one of both ranks": lambda num: rd.shard(
        rd.map_readers(max, rd.map_readers(abs, leaky(num)), leaky(40)), 2, 1
    ),
    "in batches": lambda num: rd.batch(rd.batch(leaky(num), 2), 2, drop_last=True),
    # Which threads have nothing to do with, and which read what they keep for later passes.
    **{
        stage: lambda num, stage=stage: STAGES[stage](leaky(num))
        for stage in sorted(STAGES)
        if not stage.startswith(("xmap", "buffered", "Fake", "replay"))
    },
}


@pytest.mark.parametrize("num", [0, 1, 4, 7])
@pytest.mark.parametrize("pipeline", ENDING)
def test_a_resumed_pass_ends_with_the_same_samples_left_out(pipeline, num):
    make = partial(ENDING[pipeline], num)
    whole = make()
    states = [whole.state_dict(), *(whole.state_dict() for _ in whole)]
    for state in states:
        resumed = make()
        resumed.load_state_dict(state)
        list(resumed)
        assert resumed.skipped()["count"] == whole.skipped()["count"]


OVER_BATCHES = {
    "chain": lambda a, b: rd.chain(a, b),
    "chain, twice": lambda a, b: rd.chain(b, a, b),
    "interleave": lambda a, b: rd.interleave(a, b),
    "mix": lambda a, b: rd.mix([a, b], [3, 1], seed=2),
    "repeat": lambda a, b: rd.repeat(rd.chain(a, b), 2),
    "shuffle": lambda a, b: rd.shuffle(rd.chain(a, b), 3, seed=5),
    "filter": lambda a, b: rd.chain(rd.filter(bool, a), rd.take_while(bool, b)),
    "map or skip": lambda a, b: rd.map_readers(list, rd.chain(a, b), on_error="skip"),
    "lazy cache": lambda a, b: rd.cache(rd.chain(a, b), lazy=True),
}


@pytest.mark.parametrize("pipeline", OVER_BATCHES)
def test_a_resumed_pass_counts_the_batches_that_it_delivers(pipeline):
    """None of those that are made only to come past them."""

    def make() -> tuple[Any, list[rd.Reader[Any]]]:
        batches = [
            rd.batch(leaky(7), 2),
            rd.batch(counting(9), 2, sort_window=4, length=size_of, drop_last=True),
        ]
        return OVER_BATCHES[pipeline](*batches), batches

    whole, _ = make()
    for state in [whole.state_dict(), *(whole.state_dict() for _ in whole)]:
        resumed, batches = make()
        resumed.load_state_dict(state)
        rest = list(resumed)
        stats = [each.stats() for each in batches]
        assert sum(each.num_batches for each in stats) == len(rest)
        assert sum(each.num_samples for each in stats) == sum(map(len, rest))


@given(pipelines, lengths, st.integers(0, 2))
def test_counts_are_true(stages, num, epoch):
    reader = build(stages, num, is_counted=True)
    assert reader.count() in (None, len(list(reader.open(epoch, 0))))


def test_a_state_stays_small():
    reader = counting(9)
    for number in range(60):
        reader = rd.shuffle(rd.map_readers(drawn, reader, rng=2**200 + number), 2, seed=number)
    reader = rd.chain(reader, creator.text_file("\u00e9" * 500))
    reader = rd.map_readers(choosy, rd.shard(rd.firstn(reader, 9), 2, 0), on_error="skip")
    list(reader)
    state = reader.state_dict()
    assert len(json.dumps(state)) < 1024
    reader.load_state_dict(state)


def sequences(sample: Any) -> tuple[list[int], int]:
    number = crc32(repr(sample).encode())
    return [number % 7] * (number % 4), number % 10


feeder_depths = [0, 1, 2, 5]


@given(pipelines, lengths, st.sampled_from(feeder_depths), st.sampled_from(feeder_depths))
def test_feeds_resume_exactly_at_any_depth(stages, num, depth, other):
    with program_guard(Program()):
        fields = [data("words", [1], "int64", lod_level=1), data("label", [1], "int64")]
        feeder = DataFeeder(fields, "cpu")

    def make(prefetch: int) -> Any:
        batches = rd.batch(rd.map_readers(sequences, build(stages, num)), 2)
        return feeder.decorate_reader(batches, prefetch=prefetch)

    assert_resumes_exactly(partial(make, depth), partial(make, other), num_samples=4)


@pytest.mark.parametrize(
    ("before", "after"),
    [("processes", "neither"), ("threads", "processes"), ("neither", "isolated")],
)
def test_processes_threads_and_neither_go_on_from_each_other(before, after):
    def make(how: str) -> Any:
        source = rd.shuffle(counting(9), 4, seed=1)
        if how in ("neither", "isolated"):
            batches = rd.batch(rd.map_readers(drawn, source, rng=1), 2)
            return rd.isolate(batches) if how == "isolated" else batches
        processes = how == "processes"
        mapped = rd.xmap_readers(drawn, source, 2, 3, order=True, rng=1, processes=processes)
        return rd.batch(mapped, 2)

    first, second = make(before), make(after)
    samples = list(itertools.islice(first(), 2))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert samples + list(second) == list(make("neither"))
    first.close()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), lengths)
def test_chains_skip_whole_readers_that_tell_their_count(nums, skip):
    class Untouched(rd.Reader[int]):
        def __init__(self, num: int) -> None:
            super().__init__("untouched")
            self.num, self.num_opened = num, 0

        def open(self, epoch, skip):
            self.num_opened += 1
            return iter(range(skip, self.num))

        def count(self):
            return self.num

    readers = [Untouched(num) for num in nums]
    everything = list(itertools.chain.from_iterable(map(range, nums)))
    assert list(rd.chain(*readers).open(0, skip)) == everything[skip:]
    ends = list(itertools.accumulate(nums))
    for reader, end in zip(readers, ends, strict=True):
        assert reader.num_opened == (end > skip or not skip)


@pytest.mark.parametrize("num_passes", [None, 4])
def test_repeat_skips_whole_passes_of_a_reader_that_tells_its_count(num_passes):
    mapped = []

    def seen(sample: Any) -> Any:
        mapped.append(int(sample))
        return tagged(sample)

    reader = rd.repeat(rd.map_readers(seen, np_array(range(3))), num_passes)
    rest = reader.open(0, 7)
    assert next(rest) == tagged(1)
    assert mapped == [1]
