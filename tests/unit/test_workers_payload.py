"""What travels by value, what by reference, and what cannot travel."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from types import ModuleType

import pytest

from gpufeed.errors import ReaderError
from gpufeed.reader import map_readers
from gpufeed.workers.payload import Payload, _is_importable, pack


@pytest.fixture
def made_by_hand(monkeypatch):
    module = ModuleType("made_by_hand")
    exec("class Point:\n    pass\ndef made(sample):\n    return Point", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    return module


def test_what_can_be_imported_goes_by_reference():
    payload = pack("isolate", threading.Event, {})
    assert payload.modules == set()
    assert len(payload.data) < 100


@pytest.mark.parametrize(
    ("name", "is_found"),
    [("threading", True), ("sys", True), ("os.path", True), ("numpy", True), ("__main__", False)],
)
def test_modules_that_a_worker_finds(name, is_found):
    assert _is_importable(name) == is_found


def test_a_module_made_by_hand_goes_by_value(made_by_hand):
    payload = pack("isolate", made_by_hand.made, {})
    assert payload.modules == {"made_by_hand"}
    again = pickle.loads(payload.data)
    assert again is not made_by_hand.made
    assert again(1) is made_by_hand.Point  # a class that comes back is the one that went


def test_samples_of_its_classes_go_by_value_too(made_by_hand):
    payload = pack("isolate", made_by_hand.made, {})
    encoded = payload.encode([made_by_hand.Point()])
    assert b"class_tracker_id" in encoded.data or len(encoded.data) > 200
    (point,) = pickle.loads(encoded.data)
    assert type(point) is made_by_hand.Point


def test_a_class_that_goes_by_value_is_made_with_its_slots(made_by_hand):
    exec("class Slots:\n    __slots__ = ('number',)", made_by_hand.__dict__)
    payload = pack("isolate", made_by_hand.Slots, {})
    source = f"""
import pickle
made = pickle.loads({payload.data!r})
print(made.__slots__, hasattr(made(), "__dict__"), type(made.number).__name__)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("('number',) False member_descriptor\n", "")


def test_the_registry_of_cloudpickle_is_left_as_it_was(made_by_hand):
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    pack("isolate", made_by_hand.made, {})
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_a_module_under_another_ones_name_is_not_found(monkeypatch, tmp_path):
    import textwrap

    impostor = ModuleType("textwrap")
    impostor.__spec__ = type(textwrap.__spec__)("textwrap", None, origin=str(tmp_path / "x.py"))
    monkeypatch.setitem(sys.modules, "textwrap", impostor)
    assert not _is_importable("textwrap")


LOCK = threading.Lock()


def uses_a_global():
    return LOCK


def test_what_cannot_be_pickled_is_named(monkeypatch):
    monkeypatch.setattr(uses_a_global, "__module__", "__main__")  # whose functions go by value
    lock = threading.Lock()

    def inner():
        return lock

    def outer():
        return inner()

    for part, names in [
        (outer, r"<locals>.outer': its 'inner': its 'lock': cannot pickle"),
        (map_readers(outer, list), r"map_readers.*outer': its 'inner': its 'lock': cannot pickle"),
        (uses_a_global, r"'uses_a_global': its 'LOCK': cannot pickle"),
        (lock, "cannot pickle '_thread.lock' object"),
    ]:
        with pytest.raises(ReaderError, match=rf"isolate.reader must be picklable .*{names}"):
            pack("isolate", part, {"reader": part})


def test_what_is_not_the_users_keeps_its_own_error():
    with pytest.raises(TypeError, match="cannot pickle"):
        pack("isolate", threading.Lock(), {"reader": list})


def test_a_process_without_the_module_may_send_its_name():
    payload = Payload(b"", {"never_loaded_here"})
    encoded = payload.encode(["never_loaded_here", 1])
    assert pickle.loads(encoded.data) == ["never_loaded_here", 1]
