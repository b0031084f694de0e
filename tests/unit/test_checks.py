from __future__ import annotations

from fractions import Fraction
from threading import TIMEOUT_MAX

import numpy as np
import pytest

from gpufeed.checks import number_in_environment, positive_s, samples_of, whole_number
from gpufeed.errors import FieldError, PlaceError


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.uint8(3), np.float32(3.0), Fraction(3)])
def test_whole_numbers_of_any_type(value):
    assert whole_number("f.n", value, minimum=3) == 3
    assert type(whole_number("f.n", value)) is int


@pytest.mark.parametrize(
    "value",
    [
        *(2.7, 0, -1, float("nan"), float("inf"), np.float64(0.5), Fraction(7, 2)),
        *("2", "x", b"2", None, True, np.True_, [], 1j, np.array([2])),
    ],
)
def test_everything_else_is_refused(value):
    with pytest.raises(FieldError, match=r"^f\.n must be a whole number >= 1, got "):
        whole_number("f.n", value, minimum=1)


def test_without_a_minimum_any_whole_number_will_do():
    assert whole_number("f.n", -3.0) == -3
    with pytest.raises(PlaceError, match=r"^f\.n must be a whole number, got 0\.5$"):
        whole_number("f.n", 0.5, error=PlaceError)


@pytest.mark.parametrize("value", [None, 1, 0.001, np.float32(2), TIMEOUT_MAX])
def test_seconds(value):
    found = positive_s("f.timeout_s", value)
    assert found == value
    assert type(found) in (float, type(None))


@pytest.mark.parametrize(
    "value", [0, -1, float("nan"), float("inf"), 2 * TIMEOUT_MAX, "1", True, [1]]
)
def test_what_cannot_be_waited_for_is_refused(value):
    with pytest.raises(FieldError, match=r"^f\.timeout_s must be a finite number of seconds > 0"):
        positive_s("f.timeout_s", value)


def test_numbers_in_the_environment(monkeypatch):
    monkeypatch.delenv("NUM", raising=False)
    assert number_in_environment("NUM", 7) == 7
    monkeypatch.setenv("NUM", "")
    assert number_in_environment("NUM", 7) == 7
    monkeypatch.setenv("NUM", "12")
    assert number_in_environment("NUM", 7) == 12


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "many", " "])
def test_other_texts_in_the_environment_are_refused(monkeypatch, text):
    monkeypatch.setenv("NUM", text)
    with pytest.raises(PlaceError, match=f"^NUM must be a whole number >= 1, got '{text}'$"):
        number_in_environment("NUM", 7, minimum=1)


def forgets_to_yield():
    list("ab")


def test_a_reader_must_return_an_iterable():
    with pytest.raises(
        TypeError, match=r"^reader forgets_to_yield must return an iterable of samples, got None$"
    ):
        samples_of(forgets_to_yield)
    with pytest.raises(TypeError, match=r"got <function .*; is it a function that makes a reader"):
        samples_of(lambda: forgets_to_yield)


def test_a_reader_must_be_callable():
    with pytest.raises(TypeError, match=r"^reader must be callable, got \[1, 2\]$"):
        samples_of([1, 2])


def test_an_iterable_that_fails_by_itself_keeps_its_error():
    class Broken:
        def __iter__(self):
            raise TypeError("its own")

    with pytest.raises(TypeError, match="its own"):
        samples_of(Broken)
