"""A reader or mapper that raises: everything before arrives, then its own exception, then rest."""

from __future__ import annotations

import threading

import pytest
from support.readers import BrokenError, Watched, counting, failing, function_names, taken_until

from gpufeed import reader as rd

AT = 5


def fails_at(sample: int) -> int:
    if sample == AT:
        raise BrokenError(sample)
    return sample


def flat(taken: list) -> list[int]:
    return sorted(x for sample in taken for x in (sample if isinstance(sample, list) else [sample]))


IN_READER = {
    "batch": lambda source: rd.batch(source, 2),
    "buffered": lambda source: rd.buffered(source, 2),
    "buffered unbounded": lambda source: rd.buffered(source, 0),
    "cache lazy": lambda source: rd.cache(source, lazy=True),
    "chain first": lambda source: rd.chain(source, counting(3)),
    "filter": lambda source: rd.filter(lambda sample: True, source),
    "firstn": lambda source: rd.firstn(source, 100),
    "map_readers": lambda source: rd.map_readers(lambda sample: sample, source),
    "repeat": lambda source: rd.repeat(source, 2),
    "shuffle": lambda source: rd.shuffle(source, 3, seed=0),
    "skip": lambda source: rd.skip(source, 0),
    "take_while": lambda source: rd.take_while(lambda sample: True, source),
    "xmap": lambda source: rd.xmap_readers(lambda sample: sample, source, 3, 2),
    "xmap ordered": lambda source: rd.xmap_readers(lambda sample: sample, source, 3, 2, True),
    "many": lambda source: rd.batch(
        rd.buffered(rd.shuffle(rd.xmap_readers(abs, source, 2, 3, True), 4, seed=1), 3), 3
    ),
}


@pytest.mark.parametrize("stage", IN_READER)
def test_a_failing_reader_behind(stage):
    reader = IN_READER[stage](failing(AT))
    for _ in range(2):
        taken, error = taken_until(reader)
        assert flat(taken) == list(range(AT))
        assert type(error) is BrokenError
        assert error.args == (AT,)
        assert "read_until_broken" in function_names(error)
        assert error.__context__ is None


def test_a_failing_reader_in_compose():
    taken, error = taken_until(rd.compose(counting(9), failing(AT)))
    assert taken == [(n, n) for n in range(AT)]
    assert type(error) is BrokenError


@pytest.mark.parametrize("stage", IN_READER)
def test_a_reader_that_fails_when_called_behind(stage):
    def broken():
        raise BrokenError

    taken, error = taken_until(IN_READER[stage](broken))
    assert taken == []
    assert type(error) is BrokenError
    assert "broken" in function_names(error)


@pytest.mark.parametrize("stage", IN_READER)
def test_a_reader_that_returns_no_iterable_behind(stage):
    taken, error = taken_until(IN_READER[stage](lambda: 5))
    assert taken == []
    assert type(error) is TypeError


IN_FUNCTION = {
    "map_readers": lambda source: rd.map_readers(fails_at, source),
    "filter": lambda source: rd.filter(lambda sample: fails_at(sample) is not None, source),
    "take_while": lambda source: rd.take_while(lambda sample: fails_at(sample) is not None, source),
    "xmap ordered": lambda source: rd.xmap_readers(fails_at, source, 3, 4, True),
    "xmap": lambda source: rd.xmap_readers(fails_at, source, 3, 4),
    "xmap unbounded": lambda source: rd.xmap_readers(fails_at, source, 3, 0, True),
}


@pytest.mark.parametrize("stage", IN_FUNCTION)
def test_a_failing_function_in(stage):
    source = Watched(20)
    taken, error = taken_until(IN_FUNCTION[stage](source))
    assert set(range(AT)) <= set(taken)
    if stage != "xmap":  # unordered, a few after the failure may have been done before it
        assert taken == list(range(AT))
    assert AT not in taken
    assert type(error) is BrokenError
    assert "fails_at" in function_names(error)
    assert source.num_open == 0


def test_the_earliest_of_several_failures_is_raised():
    everybody = threading.Barrier(4)

    def fail_together(sample):
        if sample >= 4:
            everybody.wait(10)
            raise BrokenError(sample)
        return sample

    for order in (True, False):
        everybody.reset()
        reader = rd.xmap_readers(fail_together, counting(8), 4, 8, order)
        taken, error = taken_until(reader)
        assert sorted(taken) == [0, 1, 2, 3]
        assert error.args == (4,)


def test_a_failure_in_a_mapper_outranks_a_later_one_of_the_reader():
    for order in (True, False):
        reader = rd.xmap_readers(fails_at, failing(AT + 2, ValueError()), 2, 20, order)
        assert type(taken_until(reader)[1]) is BrokenError


def test_nothing_queued_behind_a_failure_is_mapped():
    mapped = []

    def mapper(sample):
        mapped.append(sample)
        return fails_at(sample)

    taken_until(rd.xmap_readers(mapper, counting(1000), 1, 0))
    assert mapped == list(range(AT + 1))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_even_what_is_no_exception_arrives(error):
    for reader in (
        rd.buffered(failing(2, error), 4),
        rd.xmap_readers(abs, failing(2, error), 2, 4, order=True),
    ):
        samples = reader()
        assert [next(samples), next(samples)] == [0, 1]
        with pytest.raises(type(error)):
            next(samples)


def test_stop_iteration_out_of_a_mapper_is_no_end():
    def stop(sample):
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(rd.xmap_readers(stop, counting(3), 2, 2, order=True))


def test_an_iterator_is_over_after_its_failure():
    samples = rd.buffered(failing(1), 2)()
    assert next(samples) == 0
    with pytest.raises(BrokenError):
        next(samples)
    assert list(samples) == []
