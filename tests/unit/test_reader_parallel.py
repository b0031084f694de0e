"""`buffered` and `xmap_readers`: what they deliver."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from support.readers import Gate, counting

from gpufeed.errors import ReaderTimeout
from gpufeed.reader import buffered, xmap_readers


@pytest.mark.parametrize("size", [-1, 0, *range(1, 20)])
def test_buffered_keeps_order(size):
    assert list(buffered(counting(10), size)) == list(range(10))


def test_buffered_passes_every_value():
    samples = [None, "", np.zeros(3), (), StopIteration, np.zeros(3)]
    assert all(a is b for a, b in zip(buffered(lambda: samples, 2), samples, strict=True))


def test_buffered_delivers_a_sample_as_soon_as_it_is_read():
    received = threading.Semaphore(0)

    def one_at_a_time():
        for sample in range(3):
            yield sample
            assert received.acquire(timeout=10)

    for _ in buffered(one_at_a_time, 100):
        received.release()


def test_buffered_refuses_a_fraction():
    with pytest.raises(ValueError, match=r"buffered.size must be a whole number, got 0.5"):
        buffered(counting(3), 0.5)


@pytest.mark.parametrize(
    ("order", "process_num", "buffer_size"),
    list(itertools.product([True, False], [1, 2, 4, 16], [0, 1, 2, 16])),
)
def test_xmap_maps_everything(order, process_num, buffer_size):
    reader = xmap_readers(lambda sample: sample * 2, counting(40), process_num, buffer_size, order)
    expected = [sample * 2 for sample in range(40)]
    for _ in range(2):
        mapped = list(reader)
        assert (mapped if order else sorted(mapped)) == expected


def test_xmap_passes_every_value():
    samples = [None, "", np.zeros(3), (), StopIteration, ValueError()]
    reader = xmap_readers(lambda sample: sample, lambda: samples, 2, 2, order=True)
    assert all(a is b for a, b in zip(reader, samples, strict=True))


def test_xmap_of_nothing_is_nothing():
    assert list(xmap_readers(abs, counting(0), 2, 2)) == []
    assert list(xmap_readers(abs, counting(0), 2, 2, order=True)) == []


def test_xmap_skips_without_calling():
    called = []
    reader = xmap_readers(called.append, counting(5), 2, 2, order=True)
    assert list(reader.open(0, 3)) == [None, None]
    assert sorted(called) == [3, 4]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"process_num": 0}, r"process_num must be a whole number >= 1, got 0"),
        ({"buffer_size": 1.5}, r"buffer_size must be a whole number, got 1.5"),
        ({"timeout_s": 0}, "timeout_s must be a finite number of seconds > 0 or None, got 0"),
        (
            {"timeout_s": float("nan")},
            "timeout_s must be a finite number .*, got nan",
        ),
    ],
)
def test_xmap_refuses(arguments, match):
    with pytest.raises(ValueError, match=f"xmap_readers.{match}"):
        xmap_readers(abs, counting(3), **{"process_num": 2, "buffer_size": 2, **arguments})


@pytest.mark.parametrize("order", [True, False])
def test_xmap_gives_up_after_its_timeout(order):
    gate = Gate()

    def mapper(sample):
        if sample == 3:
            gate.wait()
        return sample

    reader = xmap_readers(mapper, counting(5), 1, 2, order, timeout_s=0.2)
    samples = reader()
    assert [next(samples), next(samples), next(samples)] == [0, 1, 2]
    with (
        pytest.warns(RuntimeWarning, match="gpufeed-xmap-mapper-0 still runs"),
        pytest.raises(ReaderTimeout, match=r"xmap_readers: no sample arrived in 0.2 s"),
    ):
        next(samples)
    gate.open()
