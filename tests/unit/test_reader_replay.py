"""`replay`: what is read, what is kept, and how long a pass is."""

from __future__ import annotations

from itertools import islice

import pytest
from support.readers import Watched, counting

from gpufeed.errors import FieldError, ReaderError
from gpufeed.reader import replay


def test_only_the_first_samples_are_read_and_once():
    source = Watched(100)
    reader = replay(source, 3, num_samples=7)
    assert source.num_read == 0
    assert list(reader) == list(reader) == [0, 1, 2, 0, 1, 2, 0]
    assert source.num_read == 3
    assert source.num_open == 0


def test_the_very_objects_are_repeated():
    samples = list(replay(lambda: [object(), object()], 2, num_samples=4))
    assert samples[0] is samples[2]
    assert samples[0] is not samples[1]


def test_without_a_length_it_goes_on():
    assert list(islice(replay(counting(9), 2)(), 1000)) == [0, 1] * 500


def test_a_shorter_reader_gives_all_it_has():
    assert list(replay(counting(2), 5, num_samples=5)) == [0, 1, 0, 1, 0]


def test_skipping_is_arithmetic():
    reader = replay(counting(3), 3, num_samples=10**30)
    assert list(islice(reader.open(0, 10**29 + 1), 3)) == [2, 0, 1]
    assert list(reader.open(0, 10**30 - 2)) == [2, 0]
    assert list(reader.open(0, 10**31)) == []
    assert reader.count() == 10**30


def test_an_empty_reader_is_an_error():
    with pytest.raises(ReaderError, match=r"replay.reader must yield at least one sample"):
        list(replay(counting(0), 2))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0,), r"replay.n must be a whole number >= 1, got 0"),
        (("1",), r"replay.n must be"),
        ((1, -1), r"replay.num_samples must be a whole number >= 0, got -1"),
    ],
)
def test_arguments_are_checked(arguments, match):
    with pytest.raises(FieldError, match=match):
        replay(counting(3), *arguments)


def test_there_is_no_number_that_is_too_large():
    assert list(replay(counting(2), 10**30, 5)) == [0, 1, 0, 1, 0]
    assert list(islice(replay(counting(2), 1, 10**30), 3)) == [0, 0, 0]
