"""`chain` and `repeat`: readers one after the other."""

from __future__ import annotations

from support.readers import Watched, counting, failing, taken_until

from gpufeed import reader as rd
from gpufeed.reader import chain, firstn, repeat


def test_chain_opens_a_reader_when_the_one_before_has_ended():
    first, second = Watched(2), Watched(2)
    samples = chain(first, second)()
    assert [next(samples), next(samples)] == [0, 1]
    assert second.num_read == 0
    assert list(samples) == [0, 1]
    assert first.num_open == second.num_open == 0


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
