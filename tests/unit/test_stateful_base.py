"""`ReaderBase` and `ReaderHolder`: three questions, and what happens at every edge of a pass."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from support.readers import BrokenError, Gate, Watched, counting, failing, function_names

from gpufeed.errors import EOFException, ReaderError
from gpufeed.reader import batch, cache, firstn, map_readers, shard, shuffle
from gpufeed.stateful import ReaderBase, ReaderHolder


class Cursor(ReaderBase[int]):
    """The smallest reader that a user may write."""

    def __init__(self, num):
        self.num, self.at, self.num_reinit = num, 0, 0

    def read_next(self):
        if not self.has_next():
            raise EOFException("There is no next data.")
        self.at += 1
        return self.at - 1

    def has_next(self):
        return self.at < self.num

    def reinit(self):
        self.num_reinit += 1
        self.at = 0


def rest_of(reader):
    items = []
    while reader.has_next():
        items.append(reader.read_next())
    return items


def test_the_interface_has_to_be_implemented():
    with pytest.raises(TypeError, match="abstract"):
        ReaderBase()


def test_a_cursor_is_a_reader():
    cursor = Cursor(3)
    assert cursor.read_next() == 0
    assert list(cursor()) == [0, 1, 2]
    assert list(cursor) == [0, 1, 2]
    assert cursor.num_reinit == 2
    assert list(batch(cursor, 2)) == [[0, 1], [2]]
    assert rest_of(ReaderHolder(cursor)) == [0, 1, 2]


def test_a_cursor_that_others_read_too_ends_where_they_leave_nothing():
    class Hopeful(Cursor):
        def has_next(self):
            return True

        def read_next(self):
            if self.at == self.num:
                raise EOFException("There is no next data.")
            return super().read_next()

    assert list(Hopeful(3)()) == [0, 1, 2]


def test_what_the_source_knows_the_holder_knows():
    held = ReaderHolder(firstn(cache(counting(9)), 7))
    assert held.count() == 7
    assert ReaderHolder(counting(9)).count() is None
    assert list(shard(held, 3, 1)()) == [1, 4]
    assert list(shard(ReaderHolder(counting(9), str), 3, 1)()) == ["1", "4", "7"]


def test_a_divided_pass_goes_on_with_another_number_of_ranks():
    def rank(index, num):
        return ReaderHolder(shard(ReaderHolder(cache(counting(20))), num, index))

    ranks = [rank(0, 2), rank(1, 2)]
    taken = [held.read_next() for _ in range(3) for held in ranks]
    again = rank(0, 1)
    again.load_state_dict(ranks[0].state_dict())
    assert taken + rest_of(again) == list(range(20))


def test_reading_to_the_end():
    held = ReaderHolder(counting(3))
    assert rest_of(held) == [0, 1, 2]
    for _ in range(3):
        assert not held.has_next()
        with pytest.raises(EOFException, match=r"There is no next data\."):
            held.read_next()


def test_reading_without_asking():
    held = ReaderHolder(counting(2))
    assert [held.read_next(), held.read_next()] == [0, 1]
    with pytest.raises(EOFException):
        held.read_next()


def test_asking_takes_nothing_away():
    held = ReaderHolder(counting(2))
    assert [held.has_next() for _ in range(3)] == [True] * 3
    assert rest_of(held) == [0, 1]


def test_every_value_is_an_item():
    samples = [None, "", np.zeros(3), (), StopIteration, EOFException("x")]
    held = ReaderHolder(lambda: samples)
    assert all(held.read_next() is sample for sample in samples)


def test_an_empty_reader():
    held = ReaderHolder(counting(0))
    assert not held.has_next()
    held.reinit()
    assert not held.has_next()


def test_nothing_is_opened_before_it_is_asked_for():
    source = Watched(3)
    held = ReaderHolder(source)
    assert source.num_open == 0
    held.has_next()
    assert (source.num_open, source.num_read) == (1, 1)
    held.close()
    assert source.num_open == 0


def test_reinit_at_the_end_begins_the_next_epoch():
    held = ReaderHolder(shuffle(counting(20), 20, seed=1))
    passes = [rest_of(held)]
    held.reinit()
    passes.append(rest_of(held))
    expected = shuffle(counting(20), 20, seed=1)
    assert passes == [list(expected()), list(expected())]
    assert passes[0] != passes[1]


def test_reinit_in_the_middle_closes_the_pass_and_begins_the_next():
    source = Watched(5)
    held = ReaderHolder(source)
    held.read_next()
    held.has_next()
    held.reinit()
    assert source.num_open == 0
    assert rest_of(held) == [0, 1, 2, 3, 4]


def test_reinit_of_a_pass_that_said_nothing_changes_nothing():
    held = ReaderHolder(shuffle(counting(20), 20, seed=1))
    held.reinit()
    held.has_next()
    held.reinit()
    held.reinit()
    assert rest_of(held) == list(shuffle(counting(20), 20, seed=1))


def test_an_error_comes_once_in_its_place_and_ends_the_pass():
    held = ReaderHolder(failing(2))
    assert [held.read_next(), held.read_next()] == [0, 1]
    assert held.has_next()
    with pytest.raises(BrokenError) as caught:
        held.read_next()
    assert "read_until_broken" in function_names(caught.value)
    assert not held.has_next()
    with pytest.raises(EOFException):
        held.read_next()
    held.reinit()
    assert held.read_next() == 0


def test_an_error_that_was_seen_and_not_raised_outlives_a_reinit():
    held = ReaderHolder(failing(0))
    assert held.has_next()
    held.reinit()
    with pytest.raises(BrokenError):
        held.read_next()


def test_a_reader_that_cannot_be_called():
    with pytest.raises(TypeError, match="must be callable, got 3"):
        ReaderHolder(3)


def test_converting():
    held = ReaderHolder(counting(3), str)
    assert held.read_next() == "0"
    assert list(held()) == ["0", "1", "2"]


def test_calling_takes_nothing_away_from_the_held_pass():
    held = ReaderHolder(counting(4))
    assert held.read_next() == 0
    assert list(held()) == [0, 1, 2, 3]
    assert list(held) == [0, 1, 2, 3]
    assert rest_of(held) == [1, 2, 3]


def test_two_holders_of_one_reader_count_for_themselves():
    reader = shuffle(counting(20), 20, seed=1)
    first, second = ReaderHolder(reader), ReaderHolder(reader)
    assert rest_of(first) == rest_of(second)


def test_closing():
    source = Watched(5)
    held = ReaderHolder(source)
    held.read_next()
    held.has_next()
    held.close()
    held.close()
    assert source.num_open == 0
    assert not held.has_next()
    held.reinit()
    assert rest_of(held) == [0, 1, 2, 3, 4]


def test_it_is_a_context_manager():
    source = Watched(5)
    with ReaderHolder(source) as held:
        held.read_next()
    assert source.num_open == 0


def test_closing_while_another_thread_reads_is_refused():
    gate, items = Gate(), []

    def source():
        gate.wait()
        yield 1

    held = ReaderHolder(source)
    thread = threading.Thread(target=lambda: items.append(held.read_next()))
    thread.start()
    gate.wait_for_arrival()
    with pytest.raises(ReaderError, match="another thread is taking a sample"):
        held.close()
    gate.open()
    thread.join(10)
    assert items == [1]


@pytest.mark.parametrize("looks_ahead", [True, False])
@pytest.mark.parametrize("num", [0, 1, 7, 19, 20])
def test_resuming(num, looks_ahead):
    def make():
        return ReaderHolder(shuffle(counting(20), 7, seed=3))

    held = make()
    for _ in range(num):
        held.read_next()
    if looks_ahead:
        held.has_next()
    state = json.loads(json.dumps(held.state_dict()))
    again = make()
    again.read_next()
    again.load_state_dict(state)
    remainder = rest_of(held)
    assert rest_of(again) == remainder
    held.reinit()
    again.reinit()
    assert rest_of(again) == rest_of(held)


def test_a_state_fits_the_reader_that_is_held():
    reader = firstn(counting(9), 5)
    held = ReaderHolder(reader)
    assert [held.read_next(), held.read_next()] == [0, 1]
    reader.load_state_dict(held.state_dict())
    assert list(reader) == [2, 3, 4]


def test_setting_the_epoch():
    held = ReaderHolder(shuffle(counting(20), 20, seed=1))
    held.read_next()
    held.set_epoch(4)
    expected = shuffle(counting(20), 20, seed=1)
    expected.set_epoch(4)
    assert rest_of(held) == list(expected)


def test_what_was_skipped_is_told():
    held = ReaderHolder(map_readers(int, lambda: ["1", "x", "3"], on_error="skip"))
    assert rest_of(held) == [1, 3]
    assert held.skipped() == {"count": 1, "ordinals": [1]}


def test_several_threads_share_a_pass():
    held, taken, lock = ReaderHolder(counting(500)), [], threading.Lock()

    def take():
        while True:
            try:
                item = held.read_next()
            except EOFException:
                return
            with lock:
                taken.append(item)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == list(range(500))


def test_a_reader_that_reads_itself_is_an_error_and_no_deadlock():
    def source():
        yield held.read_next()

    held = ReaderHolder(source)
    with pytest.raises(ValueError, match="generator already executing"):
        held.read_next()


def test_its_name_tells_what_it_holds():
    assert repr(ReaderHolder(firstn(counting(3), 2))) == "ReaderHolder(firstn(read, n=2))"
    assert repr(ReaderHolder(counting(3))) == "ReaderHolder(read)"
    assert repr(ReaderHolder(counting(3), str)) == "ReaderHolder(map_readers(str, read))"
