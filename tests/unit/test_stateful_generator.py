"""Random instances without end."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from gpufeed.errors import FieldError, ReaderError
from gpufeed.stateful import BatchReader, RandomDataGenerator, random_data_generator


def test_values_shapes_and_dtype():
    reader = RandomDataGenerator(-2, 3, [[50, 4], [50, 1]])
    for x, y in islice(reader(), 3):
        assert (x.shape, y.shape, x.dtype) == ((50, 4), (50, 1), np.float32)
        assert -2 <= x.data.min() < -1.5
        assert 2.5 < x.data.max() <= 3
        assert not np.array_equal(x.data[:, :1], y.data)
    assert reader.has_next()


def test_a_level_is_one_sequence():
    reader = RandomDataGenerator(0, 1, [[3, 2], [2, 1]], [1, 2])
    one, two = reader.read_next()
    assert (one.lod(), two.lod()) == ([[0, 3]], [[0, 1], [0, 2]])
    merged, _ = BatchReader(reader, 4).read_next()
    assert merged.lod() == [[0, 3, 6, 9, 12]]


def test_one_value():
    (x,) = random_data_generator(5, 5, [[2, 2]]).read_next()
    assert x.data.tolist() == [[5, 5], [5, 5]]


def values(reader, num):
    return [tensor.data.tolist() for (tensor,) in islice(reader, num)]


def test_a_seed_repeats_the_values_epoch_by_epoch():
    first, second = (random_data_generator(0, 1, [[2, 2]], seed=7) for _ in range(2))
    epochs = [values(first(), 5), values(first(), 5)]
    assert [values(second(), 5), values(second(), 5)] == epochs
    assert epochs[0] != epochs[1]
    assert values(random_data_generator(0, 1, [[2, 2]], seed=8)(), 5) != epochs[0]


def test_no_seed_draws_new_values():
    reader = random_data_generator(0, 1, [[2, 2]])
    assert values(reader(), 2) != values(reader(), 2)
    with pytest.raises(ReaderError, match=r"has no seed; pass random_data_generator\(..., seed="):
        reader.state_dict()


def test_resuming():
    reader = random_data_generator(0, 1, [[2, 2]], seed=7)
    expected = values(reader(), 6)
    again = random_data_generator(0, 1, [[2, 2]], seed=7)
    for _ in range(4):
        again.read_next()
    resumed = random_data_generator(0, 1, [[2, 2]], seed=7)
    resumed.load_state_dict(again.state_dict())
    assert values(resumed(), 2) == expected[4:]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": 2}, "low must be <= high, got 2 > 1"),
        ({"low": float("nan")}, "low must be a finite number, got nan"),
        ({"high": float("inf")}, "high must be a finite number, got inf"),
        ({"high": True}, "high must be a finite number, got True"),
        ({"low": "0"}, "low must be a finite number, got '0'"),
        ({"shapes": [[-1, 2]]}, r"shapes\[0\] must have known dimensions, got \[-1, 2\]"),
        ({"shapes": [[2], [None]]}, r"shapes\[1\] must have known dimensions, got \[None\]"),
        ({"shapes": [3]}, r"shapes\[0\] must have known dimensions, got 3"),
        ({"shapes": ["3"]}, r"shapes\[0\] must have known dimensions, got '3'"),
        ({"shapes": [[]]}, r"shapes\[0\] must have known dimensions, got \[\]"),
        ({"shapes": []}, "shapes must be a list of one entry a field"),
        ({"shapes": 3}, "shapes must be a list of one entry a field, got 3"),
        ({"lod_levels": [0, 0]}, "lod_levels must be as many as shapes, 1, got 2"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
    ],
)
def test_arguments_that_break_a_rule(arguments, message):
    with pytest.raises(FieldError, match=f"random_data_generator.{message}"):
        random_data_generator(**{"low": 0, "high": 1, "shapes": [[2, 2]], **arguments})
