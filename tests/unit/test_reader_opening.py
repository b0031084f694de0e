"""What any reader can be asked, plain functions too."""

from __future__ import annotations

from support.readers import Watched, counting

from gpufeed import reader as rd
from gpufeed.reader.opening import (
    count_of,
    counters_of,
    counts_of,
    drain,
    open_every,
    open_reader,
    reading,
    stages_of,
)


def test_any_reader_can_be_opened():
    assert list(open_reader(counting(5), epoch=3, skip=2)) == [2, 3, 4]
    assert list(open_reader(lambda: [1, 2], epoch=0, skip=5)) == []
    assert list(open_reader(rd.firstn(counting(5), 4), epoch=3, skip=1)) == [1, 2, 3]


def test_any_reader_can_be_opened_at_every_nth_sample():
    for reader in (counting(9), rd.firstn(counting(9), 9)):
        assert list(open_every(reader, epoch=0, skip=2, step=3)) == [2, 5, 8]
        assert list(open_every(reader, epoch=0, skip=7, step=1)) == [7, 8]


def test_what_was_opened_is_closed():
    for step in (1, 2):
        samples = open_every(source := Watched(9), epoch=0, skip=1, step=step)
        next(samples)
        samples.close()
        assert source.num_open == 0
    with reading(source, epoch=0, skip=3) as samples:
        assert next(samples) == 3
        assert source.num_open == 1
    assert source.num_open == 0


def test_drain_tells_how_many_there_were():
    samples = iter(range(5))
    assert [drain(samples, 0), drain(samples, 3), drain(samples, 3)] == [0, 3, 2]


def test_of_a_plain_function_nothing_is_known():
    plain = counting(3)
    assert count_of(plain) is None
    assert counts_of([rd.Fake()(plain, 2), plain]) is None
    assert list(stages_of(plain)) == []
    assert counters_of(plain) == []
