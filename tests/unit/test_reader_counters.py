"""Counts of stages that run in a process: told with the samples that they belong to."""

from __future__ import annotations

import pytest
from support.readers import BrokenError, counting

import gpufeed as gf
from gpufeed import reader as rd
from gpufeed.reader.counters import Telling, count_changes
from gpufeed.reader.padding import BatchStats
from gpufeed.reader.skipping import NUM_ORDINALS, Skip, Skipped


def fail_on_sevens(sample):
    if sample % 7 == 3:
        raise BrokenError(sample)
    return sample


def skipping(num=60, on_error="skip"):
    return rd.map_readers(fail_on_sevens, counting(num), on_error=on_error)


def in_batches(num=60):
    return gf.batch(skipping(num), max_tokens=20, length=lambda sample: sample % 5 + 1)


@pytest.mark.parametrize("num", [1, NUM_ORDINALS, 3 * NUM_ORDINALS])
def test_counters_tell_what_they_counted_since(num):
    there, here = Skipped(), Skipped()
    there.add(1000)
    telling = Telling([BatchStats(), there])
    for ordinal in range(num):
        there.add(ordinal)
    changes = telling()
    count_changes([BatchStats(), here], changes)
    assert here.count == num
    assert list(here.ordinals) == list(range(num))[-NUM_ORDINALS:]
    assert telling() == []


def test_batches_are_added():
    there, here = BatchStats(1, 2, 3, 4, max_tokens=9), BatchStats(5, 5, 5, 5, max_tokens=9)
    telling = Telling([there])
    there.num_batches, there.num_samples, there.num_tokens, there.num_padded_tokens = 3, 3, 3, 8
    count_changes([here], telling())
    assert here == BatchStats(7, 6, 5, 9, max_tokens=9)


IN_PROCESSES = {
    "isolate": rd.isolate,
    "isolate, one ahead": lambda reader: rd.isolate(reader, buffer_size=1),
    "isolate, twice": lambda reader: rd.isolate(rd.isolate(reader)),
    "multiprocess_reader": lambda reader: rd.multiprocess_reader([reader], order=True),
}


@pytest.mark.parametrize("stage", IN_PROCESSES)
def test_a_state_counts_what_was_delivered(stage):
    """And nothing of what the process has read ahead."""
    plain, elsewhere = in_batches(), IN_PROCESSES[stage](batches := in_batches())
    samples = iter(elsewhere)
    for number, expected in enumerate(plain):
        assert next(samples) == expected
        assert elsewhere.state_dict()["skipped"] == plain.state_dict()["skipped"]
        assert batches.stats() == plain.stats()
        if number == 4:
            state = elsewhere.state_dict()
    assert next(samples, None) is None
    assert elsewhere.skipped() == plain.skipped()
    assert batches.stats() == plain.stats()

    resumed = IN_PROCESSES[stage](in_batches())
    resumed.load_state_dict(state)
    assert resumed.skipped() == state["skipped"]
    assert list(resumed) == list(in_batches())[5:]
    assert resumed.skipped() == plain.skipped()


def test_threads_in_a_process_count_as_they_do_here():
    elsewhere = rd.isolate(rd.buffered(skipping(), 1))
    for _ in range(2):  # each pass anew
        assert len(list(elsewhere)) == 60 - 9
        assert elsewhere.skipped() == {"count": 9, "ordinals": list(range(3, 60, 7))}


def test_what_was_counted_before_a_failure_is_told_before_it():
    elsewhere = rd.isolate(skipping(on_error=Skip(max=2)))
    samples = iter(elsewhere)
    with pytest.raises(BrokenError, match="17"):
        list(samples)
    assert elsewhere.skipped() == {"count": 2, "ordinals": [3, 10]}


def test_readers_of_several_processes_count_together():
    def in_pairs():
        return [gf.batch(skipping(10), 2), gf.batch(skipping(80), 2)]

    merged = rd.multiprocess_reader(in_pairs(), order=True)
    first = list(merged)
    assert merged.skipped()["count"] == 1 + 11
    readers = in_pairs()
    again = rd.multiprocess_reader(readers, order=True)
    samples = iter(merged)
    for _ in range(30):  # beyond the end of the first
        next(samples)
    again.load_state_dict(merged.state_dict())
    samples.close()
    assert list(again) == first[30:]
    assert again.skipped()["count"] == 1 + 11
    assert [reader.stats().num_batches for reader in readers] == [0, len(first) - 30]


def test_isolated_feeds_count_what_their_process_skipped_and_batched():
    with gf.program_guard(gf.Program()):
        feeder = gf.DataFeeder([gf.data("x", [1], "int64")], gf.CPUPlace())
    feeds = feeder.decorate_reader(in_batches(), isolate=True)
    num_samples = sum(len(feed["x"].numpy()) for feed in feeds)
    stats = feeds.stats()
    assert stats.num_skipped == 9
    assert stats.batches.num_samples == num_samples == 60 - 9
    assert stats.batches.num_batches == len(list(in_batches()))
