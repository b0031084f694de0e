"""`firstn`, `skip`, `filter` and `take_while`, each against what it says."""

from __future__ import annotations

import pytest
from support.readers import BrokenError, Watched, counting

from gpufeed import reader as rd
from gpufeed.errors import FieldError
from gpufeed.reader import firstn, map_readers, skip, take_while


def test_everything_is_exported():
    assert all(callable(getattr(rd, name)) for name in rd.__all__)


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


def test_filter_leaves_out_what_its_predicate_fails_on():
    def is_odd(sample):
        if sample in (2, 7):
            raise BrokenError(sample)
        return sample % 2

    def make(on_error="skip"):
        return rd.filter(is_odd, counting(12), on_error=on_error)

    reader = make()
    samples = iter(reader)
    assert [next(samples) for _ in range(4)] == [1, 3, 5, 9]
    assert reader.skipped() == {"count": 2, "ordinals": [2, 7]}
    again = make()
    again.load_state_dict(reader.state_dict())
    assert list(again) == [11]
    assert again.skipped() == reader.skipped()
    with pytest.raises(BrokenError, match="7"):
        list(make(rd.Skip(max=1)))
    with pytest.raises(BrokenError, match="2"):
        list(make("raise"))
    with pytest.raises(FieldError, match=r"filter.on_error must be 'raise', 'skip' or a Skip"):
        make("ignore")


def test_filter_takes_any_truth_value():
    assert list(rd.filter(lambda sample: sample % 2, counting(5))) == [1, 3]


def test_take_while_stops_reading():
    source = Watched(9)
    assert list(take_while(lambda sample: sample < 3, source)) == [0, 1, 2]
    assert source.num_read == 4


def test_numbers_beyond_any_count_of_samples_mean_all():
    assert list(firstn(counting(3), 10**30)) == [0, 1, 2]
    assert list(skip(counting(3), 10**30)) == []
