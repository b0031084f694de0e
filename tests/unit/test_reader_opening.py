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
    pass_by,
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


def test_what_is_drained_was_made_for_nobody():
    reader = rd.batch(counting(9), 2)
    samples = open_reader(reader, epoch=0, skip=0)
    assert drain(samples, 2, reader) == 2
    assert len(list(samples)) == reader.stats().num_batches == 3


def test_passing_by_counts_what_is_left_out_on_the_way():
    def fail_on_odd(sample):
        if sample % 2:
            raise ValueError(sample)
        return sample

    reader = rd.batch(rd.map_readers(fail_on_odd, counting(20), on_error="skip"), 2)
    pass_by(reader, epoch=0, num=3)
    assert reader.skipped() == {"count": 5, "ordinals": [1, 3, 5, 7, 9]}
    assert reader.stats().num_batches == 0


def test_passing_by_reads_nothing_where_nothing_may_be_left_out():
    source = Watched(20)
    pass_by(rd.batch(source, 2), epoch=0, num=3)
    pass_by(source, epoch=0, num=3)
    assert source.num_read == 0


def test_of_a_plain_function_nothing_is_known():
    plain = counting(3)
    assert count_of(plain) is None
    assert counts_of([rd.Fake()(plain, 2), plain]) is None
    assert list(stages_of(plain)) == []
    assert counters_of(plain) == []
