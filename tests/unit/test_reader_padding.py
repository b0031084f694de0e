"""What batches held: tokens, padding, fill; asked of the reader and of a feed reader over it."""

from __future__ import annotations

import pytest

from gpufeed.feeder import DataFeeder
from gpufeed.reader import batch, buffered
from gpufeed.reader.padding import BatchStats, Filling
from gpufeed.variables import Program, data, program_guard

SAMPLES = [[1], [1, 2, 3, 4], [1, 2], [1, 2]]


def test_a_filling_knows_its_tokens_and_when_it_is_full():
    filling = Filling(2)
    assert (filling.num_tokens, filling.longest, filling.is_full) == (0, 0, False)
    filling.add(3, "abc")
    filling.add(1, "d")
    assert filling.samples == ["abc", "d"]
    assert (filling.num_tokens, filling.longest, filling.is_full) == (4, 3, True)


def test_nothing_is_measured_of_nothing():
    assert BatchStats(max_tokens=9).fill is None
    assert BatchStats(max_tokens=9).padding_waste is None
    assert BatchStats(num_batches=1).fill is None


def test_plain_batches_are_counted_and_not_measured():
    reader = batch(lambda: SAMPLES, 3)
    list(reader)
    assert reader.stats() == BatchStats(num_batches=2, num_samples=4)


def test_a_length_function_is_enough_to_measure_plain_batches():
    reader = batch(lambda: SAMPLES, 2, length=len)
    list(reader)
    stats = reader.stats()
    assert (stats.num_tokens, stats.num_padded_tokens, stats.fill) == (9, 12, None)
    assert stats.padding_waste == 0.25


def test_the_fill_is_of_the_budget():
    reader = batch(lambda: SAMPLES, max_tokens=6)
    assert list(map(len, reader)) == [2, 2]
    assert reader.stats().fill == 9 / 12


def test_sorting_wastes_less():
    def waste(window):
        samples = [[1], [1, 2, 3, 4], [1], [1, 2, 3, 4]]
        reader = batch(lambda: samples, 2, sort_window=window)
        list(reader)
        return reader.stats().padding_waste

    assert waste(4) == 0
    assert waste(1) == 1 - 10 / 16


def test_passes_add_up():
    reader = batch(lambda: SAMPLES, max_tokens=4)
    list(reader), list(reader)
    assert reader.stats().num_samples == 8


def test_only_what_was_delivered_counts():
    reader = batch(lambda: SAMPLES, max_tokens=4)
    batches = reader()
    next(batches)
    assert reader.stats().num_samples == 1
    state = reader.state_dict()
    batches.close()
    again = batch(lambda: SAMPLES, max_tokens=4)
    again.load_state_dict(state)
    list(again)
    assert again.stats().num_samples == 3


def test_stats_are_a_copy():
    reader = batch(lambda: SAMPLES, 2)
    before = reader.stats()
    list(reader)
    assert before.num_batches == 0


@pytest.mark.parametrize("wrap", [lambda r: r, lambda r: buffered(r, 2)])
def test_a_feed_reader_tells_what_its_batches_held(wrap):
    with program_guard(Program()):
        feeder = DataFeeder([data("ids", [1], "int64", lod_level=1)], "cpu")
    batches = batch(lambda: [(ids,) for ids in SAMPLES], max_tokens=6)
    reader = feeder.decorate_reader(wrap(batches))
    assert [feed["ids"].shape[0] for feed in reader] == [5, 4]
    assert reader.stats().batches == batches.stats()
    assert reader.stats().batches.padding_waste == 1 - 9 / 12


def test_a_feed_reader_over_any_other_reader_has_no_batch_stats():
    with program_guard(Program()):
        feeder = DataFeeder([data("ids", [1], "int64", lod_level=1)], "cpu")
    reader = feeder.decorate_reader(lambda: [[([1],)]])
    list(reader)
    assert reader.stats().batches is None
