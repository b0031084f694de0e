from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from gpufeed.errors import PlaceError
from gpufeed.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    as_place,
    cpu_places,
    local_place,
)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("cpu", CPUPlace()),
        ("cuda_pinned", CUDAPinnedPlace()),
        ("cuda:0", CUDAPlace()),
        ("cuda:12", CUDAPlace(12)),
    ],
)
def test_names_of_places(name, place):
    assert as_place(name) == place
    assert str(place) == name
    assert as_place(place) is place
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(place, protocol)) == place


def test_a_device_without_number_is_the_first():
    assert as_place("cuda") == CUDAPlace(0)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:1 ", "CPU", "", 0, None])
def test_other_names_are_refused(name):
    with pytest.raises(PlaceError, match="place must be a Place, 'cpu', 'cuda:N' or 'cuda_pinned'"):
        as_place(name)


@pytest.mark.parametrize("number", [-1, True, 1.5, "0", None])
def test_device_numbers(number):
    with pytest.raises(PlaceError, match=r"CUDAPlace\.device_id must be a whole number >= 0"):
        CUDAPlace(number)


def test_device_numbers_may_be_of_any_numeric_type():
    assert CUDAPlace(np.int64(1)) == CUDAPlace(1.0) == CUDAPlace(1)
    assert str(CUDAPlace(np.int64(1))) == "cuda:1"


def test_places_are_values():
    assert {CPUPlace(), CPUPlace(), CUDAPlace(0), CUDAPlace(0), CUDAPlace(1)} == {
        CPUPlace(),
        CUDAPlace(0),
        CUDAPlace(1),
    }


def test_cpu_places(monkeypatch):
    assert cpu_places(3) == [CPUPlace()] * 3
    monkeypatch.delenv("CPU_NUM", raising=False)
    assert cpu_places() == [CPUPlace()]
    monkeypatch.setenv("CPU_NUM", "4")
    assert len(cpu_places()) == 4
    monkeypatch.setenv("CPU_NUM", "many")
    with pytest.raises(PlaceError, match="CPU_NUM must be a whole number >= 1, got 'many'"):
        cpu_places()
    for wrong in (0, -2, 1.5):
        with pytest.raises(PlaceError, match=r"cpu_places\.n must be a whole number >= 1"):
            cpu_places(wrong)


def test_local_place_is_the_launcher_s(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert local_place() == CUDAPlace(0)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert local_place() == CUDAPlace(3)
    monkeypatch.setenv("LOCAL_RANK", "-3")
    with pytest.raises(PlaceError, match="LOCAL_RANK must be a whole number >= 0, got '-3'"):
        local_place()


def test_entering_places_makes_them_current_and_nests(monkeypatch):
    current: list[str] = []

    @contextmanager
    def make_current(place: Place) -> Iterator[None]:
        current.append(str(place))
        yield
        current.append(f"not {place}")

    monkeypatch.setattr(Place, "make_current", make_current)
    with CUDAPlace(0) as entered, CUDAPlace(1), CUDAPlace(0):
        assert entered == CUDAPlace(0)
    assert current == ["cuda:0", "cuda:1", "cuda:0", "not cuda:0", "not cuda:1", "not cuda:0"]


def test_entering_the_host_changes_nothing():
    with CPUPlace() as host, CUDAPinnedPlace() as pinned:
        assert (host, pinned) == (CPUPlace(), CUDAPinnedPlace())
