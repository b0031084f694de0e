"""What a process takes over from its parent when it starts, and keeps.

Where any of it has changed since, one that is started now would be another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

__all__ = ["surroundings"]

# Whose sources nobody edits.
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD = str(Path(os.__file__).parent) + os.sep

# Of each source that was looked at, what tells that it has been edited; and how many had been.
_seen: dict[str, tuple[int, ...]] = {}
_edited: list[str] = []


def surroundings() -> tuple[object, ...]:
    """Return what is equal as long as a process would start with the same.

    A script's processes keep the code that they have imported, as it does itself, whatever is saved
    while it runs. In an interactive session, where ``%autoreload`` changes code in place, sources
    that are edited count too.
    """
    is_interactive = hasattr(sys, "ps1")
    folder, prints = os.stat("."), [_identity(fd) for fd in (1, 2)]
    edits = _num_edits() if is_interactive else 0
    return list(sys.path), dict(os.environ), (folder.st_dev, folder.st_ino), prints, edits


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        file = os.fstat(fd)
    except OSError:  # closed
        return None
    return file.st_dev, file.st_ino


def _num_edits() -> int:
    """Return how often a source of the user's own was found edited since it was first seen."""
    for file in _sources():
        try:
            found = os.stat(file)
        except OSError:
            continue  # deleted, or being saved
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if _seen.setdefault(file, stamp) != stamp:
            _seen[file] = stamp
            _edited.append(file)
    return len(_edited)


def _sources() -> Iterator[str]:
    """Yield the files of loaded modules that are neither installed nor Python's own."""
    for module in sys.modules.copy().values():
        if isinstance(module, ModuleType):
            # Not by attribute, which would load one that waits to be used.
            file = object.__getattribute__(module, "__dict__").get("__file__")
            is_file = isinstance(file, str) and not file.startswith(_STANDARD)
            if is_file and not any(folder in file for folder in _LIBRARIES):
                yield file
