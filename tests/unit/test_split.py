from __future__ import annotations

import numpy as np
import pytest

from gpufeed.errors import FieldError
from gpufeed.split import split_points


def sizes(samples: int, n: int, policy: str) -> list[int]:
    return np.diff(split_points(np.arange(samples + 1), n, policy)).tolist()


@pytest.mark.parametrize(
    ("samples", "n", "floor", "ceil"),
    [
        (7, 3, [2, 2, 3], [3, 3, 1]),
        (5, 4, [1, 1, 1, 2], [2, 2, 1]),
        (6, 4, [1, 1, 1, 3], [2, 2, 2]),
        (4, 3, [1, 1, 2], [2, 2]),
        (2, 3, [1, 1], [1, 1]),
        (6, 3, [2, 2, 2], [2, 2, 2]),
        (0, 3, [0, 0, 0], [0, 0, 0]),
        (9, 1, [9], [9]),
    ],
)
def test_the_reference_s_two_algorithms(samples, n, floor, ceil):
    assert sizes(samples, n, "floor") == floor
    assert sizes(samples, n, "ceil") == ceil


@pytest.mark.parametrize(
    ("lengths", "n", "parts"),
    [
        ([90, 10, 10, 10], 2, [1, 3]),
        ([10, 10, 10, 90], 2, [3, 1]),
        ([1, 1, 1, 1000], 4, [1, 1, 1, 1]),
        ([1000, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([0, 0, 0], 2, [1, 2]),
        ([5, 5], 3, [1, 1]),
        ([], 3, [0, 0, 0]),
    ],
)
def test_tokens_balances_rows(lengths, n, parts):
    rows = np.cumsum([0, *lengths])
    assert np.diff(split_points(rows, n, "tokens")).tolist() == parts


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "2"])
def test_n_is_a_whole_number(n):
    with pytest.raises(FieldError, match=r"split\.n must be a whole number >= 1"):
        split_points(np.arange(3), n, "ceil")


def test_an_unknown_policy_is_refused():
    with pytest.raises(FieldError, match=r"split\.policy must be one of ceil, floor, tokens"):
        split_points(np.arange(3), 2, "random")
