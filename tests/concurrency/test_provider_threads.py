"""Providers that load on a thread: what is in memory, what ends with the loop, and errors."""

from __future__ import annotations

import threading
from collections import deque
from itertools import count
from weakref import WeakSet

import pytest
from support.readers import BrokenError, function_names, taken_until

from gpufeed.provider import CacheType, integer_value, integer_value_sequence, provider

TYPES = {"x": integer_value(10**6), "y": integer_value(10**6)}


class Field:
    """A value of a sample that can be counted while it lives."""

    def __init__(self, alive: WeakSet[Field]) -> None:
        alive.add(self)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("gpufeed-")]


@pytest.mark.parametrize("form", [tuple, list, dict])
@pytest.mark.parametrize(
    ("pool", "most"),
    [
        # The block, what waits in batches, and a batch each in the hands of thread and loop.
        ({"pool_size": 100, "min_pool_size": 60}, 100 + 3 * 10),
        ({"pool_size": 60}, 60 + 4 * 10),
        ({"pool_size": 5}, 5 + 4 * 10),
        ({"pool_size": 100, "should_shuffle": False}, 100 + 3 * 10),
    ],
)
def test_the_pool_bounds_what_is_in_memory(pool, most, form):
    alive: WeakSet[Field] = WeakSet()

    @provider(input_types=TYPES, **pool)
    def process(settings, name):
        for number in range(200):
            fields = {"x": Field(alive), "y": number}
            yield fields if form is dict else form(fields.values())
            del fields

    highest = 0
    for rows in process(list("abcde"), seed=1).batches(10):
        highest = max(highest, len(alive))
        del rows
    assert highest <= most


def test_leaving_the_loop_ends_the_thread_and_closes_the_files():
    closed = []

    @provider(input_types=TYPES, min_pool_size=8, max_open_files=3)
    def process(settings, name):
        try:
            yield from ((0, number % 1000) for number in count())
        finally:
            closed.append(name)

    before = threads()
    for _ in process(list("abcdef"), seed=1).batches(4):
        assert len(threads()) == len(before) + 1
        break
    assert threads() == before
    assert len(closed) == 3


def test_process_runs_on_a_thread_unless_nothing_is_to_wait():
    names = []

    @provider(input_types=TYPES)
    def process(settings, name):
        names.append(threading.current_thread().name)
        yield 0, 1

    reader = process(["a"])
    assert len(list(reader.batches(2))) == 1
    assert len(list(reader.batches(2, prefetch=0))) == 1
    assert len(list(reader)) == 1
    here = threading.current_thread().name
    assert names == ["gpufeed-buffered", here, here]


@pytest.mark.parametrize("cache", CacheType)
def test_an_error_of_process_arrives_as_it_is(cache):
    @provider(input_types=TYPES, cache=cache)
    def process(settings, name):
        yield from ((0, number) for number in range(5))
        raise BrokenError(name)

    taken, error = taken_until(process(["a.txt"], is_train=False).batches(2))
    assert [len(rows) for rows in taken] == [2, 2, 1]
    assert isinstance(error, BrokenError)
    assert "process" in function_names(error)
    assert error.__notes__ == ["in process('a.txt'), which had yielded 5 samples"]


def test_an_error_while_feeding_ends_everything():
    @provider(input_types={"words": integer_value_sequence(10)})
    def process(settings, name):
        yield from ([number] for number in range(1000))
        yield ["text"]

    reader = process(["a"], is_train=False)
    feeds = reader.feeder("cpu").decorate_reader(reader.batches(8))
    with pytest.raises(ValueError, match=r"field 'words', sample 0: .*text"):
        deque(feeds, maxlen=0)


def test_passes_may_run_side_by_side():
    @provider(input_types=TYPES, cache=CacheType.CACHE_PASS_IN_MEM, min_pool_size=16)
    def process(settings, name):
        yield from ((0, number) for number in range(100))

    reader = process(["a", "b"], seed=1).batches(7)
    with reader:
        both = [rows for pair in zip(reader(), reader(), strict=True) for rows in pair]
    assert sum(map(len, both)) == 400
