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
from support.pipelines import STAGES, choosy, drawn, tagged
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
