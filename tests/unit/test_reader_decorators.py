"""Decorators that run in the consumer's thread, each against what it says."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from support.readers import Watched, counting, failing, taken_until

from gpufeed import reader as rd
from gpufeed.errors import ComposeNotAligned
from gpufeed.reader import (
    chain,
    combine,
    compose,
    firstn,
    map_readers,
    repeat,
    skip,
    take_while,
)


def test_everything_is_exported():
    assert all(callable(getattr(rd, name)) for name in rd.__all__)


def test_map_gets_one_argument_a_reader():
    assert list(map_readers(lambda pair: pair, lambda: [(1, 2)])) == [(1, 2)]
    assert list(map_readers(pow, counting(4), lambda: [2, 2, 2])) == [0, 1, 4]


def test_map_without_a_reader_is_refused():
    with pytest.raises(TypeError, match=r"map_readers.readers must be at least one"):
        map_readers(abs)


def test_map_skips_without_calling():
    called = []
    assert list(map_readers(called.append, counting(5)).open(0, 3)) == [None, None]
    assert called == [3, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda func: map_readers(func, counting(3)),
        lambda func: rd.filter(func, counting(3)),
        lambda func: take_while(func, counting(3)),
    ],
)
def test_stop_iteration_out_of_a_function_is_no_end(make):
    def stop(sample):
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(make(stop))


def test_compose_splices_tuples_and_nothing_else():
    pair = namedtuple("pair", "a b")
    rows = list(compose(lambda: [(1, 2)], lambda: [[3]], lambda: [pair(4, 5)], lambda: [None]))
    assert rows == [(1, 2, [3], 4, 5, None)]


def test_compose_takes_none_and_arrays_as_data():
    array = np.arange(3)
    ((none, same),) = compose(lambda: [None], lambda: [array])
    assert none is None
    assert same is array


def test_compose_complains_after_all_aligned_rows():
    reader = compose(chain(counting(10), counting(10)), counting(10))
    taken, error = taken_until(reader)
    assert len(taken) == 10
    assert isinstance(error, ComposeNotAligned)
    assert isinstance(error, ValueError)
    assert "end of reader 1 after 10 samples" in str(error)


@pytest.mark.parametrize("lengths", [(3, 4), (4, 3), (0, 1), (3, 3, 4), (4, 3, 3)])
def test_compose_sees_every_misalignment(lengths):
    taken, error = taken_until(compose(*map(counting, lengths)))
    assert len(taken) == min(lengths)
    assert isinstance(error, ComposeNotAligned)


def test_compose_unaligned_stops_at_the_shortest():
    assert list(compose(counting(2), counting(5), check_alignment=False)) == [(0, 0), (1, 1)]


def test_compose_resumed_counts_rows_from_the_beginning():
    with pytest.raises(ComposeNotAligned, match="after 3 samples"):
        list(compose(counting(3), counting(4)).open(0, 2))


def test_compose_refuses_unknown_keywords():
    with pytest.raises(TypeError, match="foo"):
        compose(counting(2), foo=1)


def test_nothing_composed_or_chained_is_nothing():
    assert list(compose()) == []
    assert list(chain()) == []


def test_combine_is_compose():
    assert combine is compose


def test_chain_opens_a_reader_when_the_one_before_has_ended():
    first, second = Watched(2), Watched(2)
    samples = chain(first, second)()
    assert [next(samples), next(samples)] == [0, 1]
    assert second.num_read == 0
    assert list(samples) == [0, 1]
    assert first.num_open == second.num_open == 0


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (2, 2), (2.0, 2), (9, 5), (-1, 5), (None, 5)])
def test_firstn(n, expected):
    assert list(firstn(counting(5), n)) == list(range(expected))


def test_firstn_reads_no_more_than_it_gives():
    source = Watched(5)
    list(firstn(source, 2))
    assert source.num_read == 2
    list(firstn(source, 0))
    assert source.num_read == 2


@pytest.mark.parametrize("n", [1.5, "1"])
def test_firstn_refuses(n):
    with pytest.raises(ValueError, match=r"firstn.n must be a whole number, got"):
        firstn(counting(5), n)


@pytest.mark.parametrize(("n", "expected"), [(0, [0, 1, 2]), (2, [2]), (5, [])])
def test_skip(n, expected):
    assert list(skip(counting(3), n)) == expected


def test_skip_refuses():
    with pytest.raises(ValueError, match=r"skip.n must be a whole number >= 0, got -1"):
        skip(counting(3), -1)


def test_filter_takes_any_truth_value():
    assert list(rd.filter(lambda sample: sample % 2, counting(5))) == [1, 3]


def test_take_while_stops_reading():
    source = Watched(9)
    assert list(take_while(lambda sample: sample < 3, source)) == [0, 1, 2]
    assert source.num_read == 4


def test_repeat_is_many_passes():
    assert list(repeat(counting(2), 3)) == [0, 1] * 3
    assert list(repeat(counting(2), 0)) == []


def test_repeat_without_end():
    assert list(firstn(repeat(counting(3)), 7)) == [0, 1, 2, 0, 1, 2, 0]


def test_repeat_of_nothing_ends():
    assert list(repeat(counting(0))) == []


def test_repeat_without_end_resumes_behind_an_exhausted_pass():
    assert list(firstn(repeat(counting(3)), 7).open(0, 3)) == [0, 1, 2, 0]


def test_repeat_gives_every_pass_its_own_epoch():
    shuffled = rd.shuffle(counting(20), 20, seed=1)
    samples = list(repeat(shuffled, 2))
    assert samples[:20] != samples[20:]
    alone = rd.shuffle(counting(20), 20, seed=1)
    assert samples == list(alone) + list(alone)
    twice = repeat(shuffled, 2)
    twice.set_epoch(1)
    assert list(twice) == list(alone) + list(alone)


def test_repeat_stops_at_an_error():
    taken, _ = taken_until(repeat(failing(2), 3))
    assert taken == [0, 1]


def test_numbers_beyond_any_count_of_samples_mean_all():
    assert list(firstn(counting(3), 10**30)) == [0, 1, 2]
    assert list(skip(counting(3), 10**30)) == []
