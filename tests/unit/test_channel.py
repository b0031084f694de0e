"""The channel alone: order, ends, errors, waits and what it says about itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from support.readers import BrokenError, function_names, taken_until

from gpufeed.device.channel import Channel, EndOfChannel
from gpufeed.errors import ReaderTimeout


def run(target: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def join(thread: threading.Thread) -> None:
    thread.join(timeout=10)
    assert not thread.is_alive()


def wait_for_consumer(channel: Channel[Any], num: int = 1) -> None:
    """Until ``num`` threads wait for an item; the state has no event of its own."""
    while channel.statistics().num_waiting_consumers < num:
        threading.Event().wait(0.001)


def wait_for_producer(channel: Channel[Any], num: int = 1) -> None:
    while channel.statistics().num_waiting_producers < num:
        threading.Event().wait(0.001)


def test_items_come_in_order_and_then_the_end():
    channel = Channel(capacity=3)
    assert [channel.put(n) for n in range(3)] == [True] * 3
    channel.finish()
    assert [channel.get(), channel.get(), channel.get()] == [0, 1, 2]
    with pytest.raises(EndOfChannel):
        channel.get()
    with pytest.raises(EndOfChannel):
        channel.get()


@pytest.mark.parametrize("item", [None, "", (), False, np.zeros(3), EndOfChannel, StopIteration()])
def test_every_value_is_an_item(item):
    channel = Channel(capacity=1)
    channel.put(item)
    assert channel.get() is item
    channel.put(item)
    channel.finish()
    (same,) = channel.drain()
    assert same is item


@pytest.mark.parametrize("capacity", [0, -1])
def test_capacity_0_or_less_is_unbounded(capacity):
    channel = Channel(capacity)
    channel.fill(range(10_000))
    assert channel.statistics().num_items == 10_000
    assert channel.statistics().capacity == 0


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 100])
def test_never_holds_more_than_its_capacity(capacity):
    channel = Channel(capacity)

    def produce():
        channel.fill(range(capacity + 5))
        channel.finish()

    thread = run(produce)
    wait_for_producer(channel)
    assert channel.statistics().num_items == capacity
    assert list(channel.drain()) == list(range(capacity + 5))
    join(thread)


def test_is_empty_until_something_is_queued_and_again_after():
    channel = Channel(2)
    assert channel.is_empty()
    channel.put(None)
    assert not channel.is_empty()
    channel.get()
    channel.finish()
    assert channel.is_empty()


def test_a_waiting_consumer_gets_the_first_item_at_once():
    channel, got = Channel(capacity=100), []
    thread = run(lambda: got.append(channel.get()))
    wait_for_consumer(channel)
    channel.put("first")
    join(thread)
    assert got == ["first"]


def test_a_waiting_producer_is_woken_at_half():
    channel = Channel(capacity=4)
    channel.fill(range(4))
    thread = run(lambda: channel.put(4))
    wait_for_producer(channel)
    channel.get()
    assert channel.statistics().num_waiting_producers == 1
    channel.get()
    join(thread)
    assert channel.statistics().num_items == 3


def test_an_error_comes_once_after_the_items_with_its_traceback():
    channel = Channel()

    def broken_source():
        raise BrokenError("at its source")

    channel.put(1)
    try:
        broken_source()
    except BrokenError as error:
        channel.finish(error)
    assert channel.get() == 1
    with pytest.raises(BrokenError, match="at its source") as caught:
        channel.get()
    assert "broken_source" in function_names(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(EndOfChannel):
        channel.get()


def test_drain_raises_the_error_after_the_items():
    channel = Channel()
    channel.fill(range(3))
    channel.finish(BrokenError())
    taken, error = taken_until(channel.drain())
    assert taken == [0, 1, 2]
    assert isinstance(error, BrokenError)


def test_ends_when_all_producers_have_finished():
    channel = Channel(num_producers=2)
    channel.finish()
    channel.put("of the second")
    channel.finish()
    assert list(channel.drain()) == ["of the second"]


def test_of_two_errors_the_first_is_raised():
    channel = Channel(num_producers=2)
    channel.finish(BrokenError("first"))
    channel.finish(BrokenError("second"))
    with pytest.raises(BrokenError, match="first"):
        channel.get()


def test_close_drops_what_is_queued_and_refuses_more():
    channel = Channel(capacity=4)
    channel.fill(range(3))
    channel.close()
    channel.close()
    assert channel.statistics().num_items == 0
    assert channel.statistics().is_closed
    assert channel.put(3) is False
    with pytest.raises(EndOfChannel):
        channel.get()
    assert list(channel.drain()) == []


def test_close_ends_fill_and_leaves_the_source_where_it_was():
    channel, source = Channel(), iter(range(10))
    channel.close()
    channel.fill(source)
    assert next(source) == 1


def test_close_drops_an_error_too():
    channel = Channel()
    channel.finish(BrokenError())
    channel.close()
    with pytest.raises(EndOfChannel):
        channel.get()


def test_close_wakes_a_waiting_producer():
    channel, answers = Channel(capacity=1), []
    channel.put(0)
    thread = run(lambda: answers.append(channel.put(1)))
    wait_for_producer(channel)
    channel.close()
    join(thread)
    assert answers == [False]


def test_close_wakes_all_waiting_consumers():
    channel, ends = Channel(), []

    def consume():
        with pytest.raises(EndOfChannel):
            channel.get()
        ends.append(True)

    threads = [run(consume) for _ in range(3)]
    wait_for_consumer(channel, 3)
    channel.close()
    for thread in threads:
        join(thread)
    assert ends == [True] * 3


def test_close_by_another_thread_ends_drain_in_the_middle():
    channel = Channel()
    channel.fill(range(10))
    items = channel.drain()
    assert next(items) == 0
    channel.close()
    assert list(items) == []


def test_a_wait_with_a_timeout_ends_with_reader_timeout():
    channel = Channel(name="xmap_readers")
    with pytest.raises(ReaderTimeout, match=r"xmap_readers: no sample arrived in 0.01 s"):
        channel.get(timeout_s=0.01)
    with pytest.raises(ReaderTimeout):
        next(channel.drain(timeout_s=0.01))
    channel.put("late")
    assert channel.get(timeout_s=0.01) == "late"
    assert channel.statistics().num_waiting_consumers == 0


def test_a_timeout_longer_than_the_platform_allows_is_for_ever():
    channel, got = Channel(), []
    thread = run(lambda: got.append(channel.get(timeout_s=threading.TIMEOUT_MAX * 2)))
    wait_for_consumer(channel)
    channel.put(1)
    join(thread)
    assert got == [1]


def test_drained_items_are_not_kept():
    channel = Channel()
    channel.fill([object() for _ in range(4)])
    channel.finish()
    items = channel.drain()
    for _ in range(4):
        item = next(items)
        assert sys.getrefcount(item) == 2  # the variable and getrefcount's own argument
        del item


@pytest.mark.parametrize("capacity", [1, 2, 5, 64, 0])
@pytest.mark.parametrize(("num_producers", "num_consumers"), [(1, 1), (1, 4), (4, 1), (3, 3)])
def test_many_threads_lose_and_double_nothing(capacity, num_producers, num_consumers):
    channel: Channel[int] = Channel(capacity, num_producers=num_producers)
    received: list[list[int]] = [[] for _ in range(num_consumers)]
    num_items = 400

    def produce(number: int) -> None:
        channel.fill(range(number, num_items, num_producers))
        channel.finish()

    def consume(into: list[int]) -> None:
        while True:
            try:
                into.append(channel.get())
            except EndOfChannel:
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [run(lambda n=n: produce(n)) for n in range(num_producers)]
        threads += [run(lambda into=into: consume(into)) for into in received]
        for thread in threads:
            join(thread)
    finally:
        sys.setswitchinterval(interval)
    assert sorted(chain(*received)) == list(range(num_items))
    if num_producers == 1:
        assert all(part == sorted(part) for part in received)
