"""`cache` and `Fake`: what is kept, and when it is read."""

from __future__ import annotations

import pytest
from support.readers import BrokenError, Watched, counting, failing, taken_until

from gpufeed.errors import ReaderError
from gpufeed.reader import Fake, buffered, cache, firstn, shuffle, xmap_readers


def test_cache_reads_at_the_call_and_never_again():
    source = Watched(4)
    reader = cache(source)
    assert source.num_read == 4
    assert list(reader) == list(reader) == [0, 1, 2, 3]
    assert source.num_read == 4
    assert source.num_open == 0


def test_cache_keeps_the_very_objects():
    reader = cache(lambda: [object(), object()])
    assert all(a is b for a, b in zip(reader(), reader(), strict=True))


def test_cache_keeps_one_order():
    reader = cache(shuffle(counting(20), 20, seed=1))
    assert list(reader) == list(reader)


def test_cache_raises_at_the_call():
    with pytest.raises(BrokenError):
        cache(failing(2))


def test_a_lazy_cache_reads_with_the_first_pass():
    source = Watched(4)
    reader = cache(source, lazy=True)
    assert source.num_read == 0
    assert list(reader) == list(reader) == [0, 1, 2, 3]
    assert source.num_read == 4


def test_a_lazy_cache_keeps_no_unfinished_pass():
    reader = cache(counting(4), lazy=True)
    for _ in firstn(reader, 2):
        pass
    assert list(reader) == [0, 1, 2, 3]


def test_a_lazy_cache_that_begins_in_the_middle_keeps_everything():
    reader = cache(counting(4), lazy=True)
    assert list(reader.open(0, 2)) == [2, 3]
    assert list(reader.open(1, 0)) == [0, 1, 2, 3]


@pytest.mark.parametrize("stage", [buffered, lambda r, n: xmap_readers(abs, r, 2, n, order=True)])
def test_a_lazy_cache_takes_a_closed_source_for_no_end(stage):
    for _ in range(40):  # about every third of them is closed between two samples
        reader = cache(stage(counting(50), 2), lazy=True)
        ahead = buffered(reader, 2)()
        assert [next(ahead), next(ahead)] == [0, 1]
        ahead.close()
        assert list(reader) == list(range(50))


def test_a_lazy_cache_delivers_what_comes_before_a_failure():
    assert taken_until(cache(failing(2), lazy=True))[0] == [0, 1]


def test_fake_repeats_the_first_sample_itself():
    sample = object()
    reader = Fake()(lambda: [sample, object()], 100)
    for _ in range(10):
        assert all(same is sample for same in reader())
        assert len(list(reader())) == 100


def test_fake_reads_one_sample_only():
    source = Watched(5)
    reader = Fake()(source, 3)
    assert list(reader) == list(reader) == [0, 0, 0]
    assert source.num_read == 1
    assert source.num_open == 0


def test_one_fake_serves_two_readers():
    fake = Fake()
    assert list(fake(lambda: "a", 1)) + list(fake(lambda: "b", 1)) == ["a", "b"]


def test_an_abandoned_pass_does_not_shorten_the_next():
    reader = Fake()(counting(3), 4)
    next(reader())
    assert len(list(reader)) == 4


def test_fake_of_nothing_is_an_error():
    with pytest.raises(ReaderError, match=r"Fake.reader must yield at least one sample"):
        list(Fake()(counting(0), 3))


def test_fake_refuses_a_wrong_number():
    with pytest.raises(ValueError, match=r"Fake.data_num must be a whole number >= 0, got -1"):
        Fake()(counting(3), -1)


def test_fake_takes_any_number():
    assert list(firstn(Fake()(counting(3), 10**30), 2)) == [0, 0]
