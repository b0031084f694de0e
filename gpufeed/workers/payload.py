"""What a worker is given to run: the user's functions, by value where a worker cannot import them.

A worker never runs the user's script again. So functions and classes of ``__main__`` travel by
value, whether that is a script, ``python -`` or a notebook; and so do those of modules that the
import system does not find under their name, or finds elsewhere: made by hand, or loaded by a path.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from gpufeed.errors import ReaderError
from gpufeed.workers.frames import Encoded, encode

__all__ = ["Payload", "pack"]

# `cloudpickle` keeps one list of modules whose contents travel by value.
_by_value_lock = threading.RLock()


class Payload:
    """Pickled work for workers, and the pickling of samples that goes with it.

    Attributes:
        data: For `pickle.loads`, in the worker.
        modules: Names of those whose contents travel by value.
    """

    def __init__(self, data: bytes, modules: set[str]) -> None:
        self.data = data
        self.modules = modules
        self._names = [name.encode() for name in modules | {"__main__"}]

    def encode(self, value: object) -> Encoded:
        """Encode a sample, by value what the other process cannot import."""
        try:
            encoded = encode(value)
            for name in self._names:
                if name in encoded.data:
                    break
            else:
                return encoded
        except Exception:  # noqa: BLE001 - of a class without a module here, perhaps
            pass
        return encode(value, partial(_dumps, modules=set(self.modules)))


def pack(stage: str, work: object, parts: dict[str, object]) -> Payload:
    """Pickle what a worker is to run.

    >>> payload = pack("xmap_readers", lambda sample: sample + 1, {})
    >>> pickle.loads(payload.data)(1)
    2

    Args:
        stage: Named in the error.
        work: The whole.
        parts: The user's functions in it, by the name of the argument.

    Raises:
        ReaderError: One of them cannot be pickled; says which, and what in it.
    """
    modules: set[str] = set()
    try:
        data = _dumps(work, modules=modules)
    except Exception as error:
        for name, part in parts.items():
            reason = _unpicklable(part)
            if reason:
                raise ReaderError(
                    f"{stage}.{name} must be picklable to run in another process, got "
                    f"{getattr(part, '__qualname__', part)!r}: {reason}"
                ) from error
        raise
    return Payload(data, modules)


def _unpicklable(part: object) -> str:
    """Return why ``part`` cannot be pickled, by the name of what it refers to; empty if it can."""
    try:
        _dumps(part, modules=set())
    except Exception as error:  # noqa: BLE001 - told
        for name, value in _referred(part):
            inner = _unpicklable(value)
            if inner:
                return f"its {name!r}: {inner}"
        return str(error)
    return ""


def _referred(part: object) -> Iterator[tuple[str, object]]:
    for inner in (*getattr(part, "functions", ()), *getattr(part, "sources", ())):
        yield getattr(inner, "__qualname__", None) or str(inner), inner
    if isinstance(part, FunctionType):
        for name, cell in zip(part.__code__.co_freevars, part.__closure__ or (), strict=True):
            yield name, cell.cell_contents
        for name in part.__code__.co_names:
            value = part.__globals__.get(name)
            if not isinstance(value, ModuleType | FunctionType | type | None):
                yield name, value


def _dumps(
    work: object,
    *,
    modules: set[str],
    protocol: int = 5,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
) -> bytes:
    """Pickle by value what has to be; adds the modules that it found to ``modules``."""
    import cloudpickle

    seen: set[str | None] = set()

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type | FunctionType | ModuleType):
                name = obj.__name__ if isinstance(obj, ModuleType) else obj.__module__
                if name not in seen and name in sys.modules and not _is_importable(name):
                    modules.add(name)
                    cloudpickle.register_pickle_by_value(sys.modules[name])
                seen.add(name)
            reduced = super().reducer_override(obj)
            return _with_slots(obj, reduced) if isinstance(obj, type) else reduced

    file = io.BytesIO()
    with _by_value_lock, _registered(cloudpickle, modules):
        Pickler(file, protocol=protocol, buffer_callback=buffer_callback).dump(work)
    return file.getvalue()


def _with_slots(kind: type, reduced: Any) -> Any:
    """Let a class that goes by value be made with its slots, which `cloudpickle` leaves out.

    An instance would have a ``__dict__`` there in place of them, which it cannot have here.
    """
    own = kind.__dict__
    match reduced:
        case (make, (type() as metaclass, name, bases, dict() as namespace, *more), *state) if (
            "__slots__" in own and NamedTuple not in bases  # which makes them itself
        ):
            namespace = {**namespace, "__slots__": own["__slots__"]}
            return (make, (metaclass, name, bases, namespace, *more), *state)
    return reduced


@contextmanager
def _registered(cloudpickle: ModuleType, modules: set[str]) -> Iterator[None]:
    """Let the contents of ``modules`` travel by value, those added meanwhile too."""
    before = set(cloudpickle.list_registry_pickle_by_value())
    # A worker never loads the modules whose contents came to it by value.
    for name in (modules - before) & sys.modules.keys():
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        yield
    finally:
        for name in (modules - before) & sys.modules.keys():
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def _is_importable(name: str) -> bool:
    """Whether a worker that imports ``name`` would find the module that is loaded here."""
    spec = getattr(sys.modules[name], "__spec__", None)
    if spec is None or name == "__main__":
        return False
    if spec.origin in (None, "built-in", "frozen"):
        return True
    path, parts = None, name.split(".")
    for depth in range(1, len(parts) + 1):
        found = _find_spec(".".join(parts[:depth]), path)
        if found is None:
            return False
        path = found.submodule_search_locations
    return found.origin is not None and os.path.realpath(found.origin) == os.path.realpath(
        spec.origin
    )


def _find_spec(name: str, path: Any) -> Any:
    # Not `importlib.util.find_spec`, which says of a loaded module that it is loaded.
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None
