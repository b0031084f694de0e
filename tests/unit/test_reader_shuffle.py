"""Block shuffle: its blocks, its order and its seed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.readers import Watched, counting, failing, taken_until

from gpufeed.reader import batch, shuffle


def test_samples_do_not_cross_blocks():
    samples = list(shuffle(counting(10), 4, seed=0))
    assert [sorted(samples[at : at + 4]) for at in (0, 4, 8)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


@pytest.mark.parametrize("buf_size", [1, 0, -1])
def test_small_buffers_keep_the_order(buf_size):
    assert list(shuffle(counting(9), buf_size)) == list(range(9))


@pytest.mark.parametrize("buf_size", [2, 3, 10, 100, 10**12])
def test_keeps_every_sample(buf_size):
    samples = list(shuffle(counting(57), buf_size, seed=5))
    assert sorted(samples) == list(range(57))
    assert samples != list(range(57))


def test_the_order_is_a_function_of_seed_and_epoch():
    def passes(seed):
        reader = shuffle(counting(50), 20, seed=seed)
        return [list(reader) for _ in range(3)]

    assert passes(1) == passes(1)
    first, second, third = passes(1)
    assert first != second != third != first
    assert passes(2)[0] != first


def test_the_order_is_the_same_on_every_machine():
    assert list(shuffle(counting(10), 5, seed=2024)) == [2, 4, 1, 3, 0, 8, 6, 7, 9, 5]


def test_blocks_have_different_orders():
    samples = list(shuffle(counting(60), 20, seed=1))
    orders = {tuple(sample - at for sample in samples[at : at + 20]) for at in (0, 20, 40)}
    assert len(orders) == 3


def test_without_a_seed_passes_differ_and_random_seed_fixes_them():
    reader = shuffle(counting(50), 50)
    random.seed(3)
    first, second = list(reader), list(reader)
    random.seed(3)
    assert [list(reader), list(reader)] == [first, second]
    assert first != second


def test_every_position_is_equally_likely():
    reader = shuffle(counting(5), 5, seed=11)
    counts = np.zeros((5, 5), int)
    for _ in range(2000):
        counts[np.arange(5), list(reader)] += 1
    # Binomial(2000, 1/5) has a standard deviation of 18.
    assert abs(counts - 400).max() < 5 * 18


def test_skipping_whole_blocks_draws_nothing_of_them():
    reader = shuffle(counting(50), 7, seed=4)
    everything = list(reader.open(3, 0))
    for skip in range(51):
        assert list(reader.open(3, skip)) == everything[skip:]


def test_samples_of_any_kind_are_passed_as_they_are():
    samples = [np.zeros(2), (1, 2), [3], None, "text", np.zeros((2, 2)), {}]
    shuffled = list(shuffle(lambda: samples, 10, seed=0))
    assert {id(sample) for sample in shuffled} == {id(sample) for sample in samples}


def test_the_samples_before_a_failure_come_first():
    taken, error = taken_until(shuffle(failing(6), 4, seed=0))
    assert sorted(taken[:4]) == [0, 1, 2, 3]
    assert sorted(taken[4:]) == [4, 5]
    assert error is not None


def test_reads_one_block_at_a_time():
    source = Watched(20)
    samples = shuffle(source, 5, seed=0)()
    next(samples)
    assert source.num_read == 5
    samples.close()


@pytest.mark.parametrize("arguments", [{"buf_size": 2.5}, {"buf_size": 4, "seed": -1}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"shuffle\.(buf_size|seed) must be a whole number"):
        shuffle(counting(3), **arguments)


def test_a_seed_may_have_any_size():
    assert sorted(batch(shuffle(counting(4), 4, seed=2**200), 4).open(0, 0))
