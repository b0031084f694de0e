"""Every exception that gpufeed raises itself.

    GpufeedError
    ├── FieldError (ValueError)        a sample does not fit its variable, or an argument its rule
    ├── LoDError (ValueError)          offsets or lengths do not describe the rows
    ├── PlaceError (RuntimeError)      a device that is not there, or data on the wrong one
    ├── FormatError (ValueError)       a file is damaged or not what it claims to be
    │   └── MissingFile (FileNotFoundError)  there is no such file
    ├── ComposeNotAligned (ValueError) composed readers ended at different samples
    ├── MissingExtra (ImportError)     an optional dependency is not installed
    ├── EOFException (Exception)       a stateful reader has no next item
    └── ReaderError (RuntimeError)     the machinery around a reader failed
        ├── WorkerDied                 a worker ended without saying why
        └── ReaderTimeout              nothing arrived in ``timeout_s`` seconds

Each one is also the built-in kind in parentheses, so ``except ValueError`` keeps working. An
exception of the user's own code is never wrapped: it keeps its type and traceback.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = [
    "ComposeNotAligned",
    "EOFException",
    "FieldError",
    "FormatError",
    "GpufeedError",
    "LoDError",
    "MissingExtra",
    "MissingFile",
    "PlaceError",
    "ReaderError",
    "ReaderTimeout",
    "WorkerDied",
    "import_extra",
]


class GpufeedError(Exception):
    """The root of the tree; catches whatever gpufeed raises itself."""


class FieldError(GpufeedError, ValueError):
    """A sample does not fit its variable, or an argument breaks its rule.

    Names field, sample number, expected and got; or owner, argument, rule and value.
    """


class LoDError(GpufeedError, ValueError):
    """Offsets or lengths that do not describe the rows; names level, rule and value."""


class PlaceError(GpufeedError, RuntimeError):
    """A place that does not exist here, or data that lives on another one."""


class FormatError(GpufeedError, ValueError):
    """A file that is damaged or of another format; names file, position, expected and got."""


class MissingFile(FormatError, FileNotFoundError):  # noqa: N818 - as MissingExtra
    """A file, or every file of a pattern, is not there; names it."""


class ComposeNotAligned(GpufeedError, ValueError):  # noqa: N818 - the reference's name
    """Composed readers ended at different samples."""


class MissingExtra(GpufeedError, ImportError):  # noqa: N818 - says what to do, not that it failed
    """An optional dependency is missing; the message holds the ``pip install`` line."""


class EOFException(GpufeedError):  # noqa: N818 - the reference's name
    """A stateful reader has no next item."""


class ReaderError(GpufeedError, RuntimeError):
    """The machinery around a reader failed; the reader's own exceptions are never wrapped."""


class WorkerDied(ReaderError):  # noqa: N818 - a fact, named as users say it
    """A worker ended without an exception; names pid, exit code and last sample."""


class ReaderTimeout(ReaderError):  # noqa: N818 - as TimeoutError's kin
    """Nothing arrived within ``timeout_s`` seconds; names the stage that was waited for."""


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say in one sentence how to install it.

    >>> import_extra("no_such_module", "arrow")
    Traceback (most recent call last):
        ...
    gpufeed.errors.MissingExtra: no_such_module is not installed: pip install 'gpufeed[arrow]'

    Args:
        module: Dotted name to import.
        extra: The extra of ``pyproject.toml`` that brings it.

    Raises:
        MissingExtra: ``module`` is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise MissingExtra(
            f"{error.name} is not installed: pip install 'gpufeed[{extra}]'"
        ) from None
