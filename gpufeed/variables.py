"""Declared inputs: what a feed holds under which name, and the program that declares them.

A `Variable` is a description only: name, shape, dtype, LoD level and layout. It owns no data.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpufeed.errors import FieldError

__all__ = [
    "Block",
    "Program",
    "Variable",
    "data",
    "default_main_program",
    "default_startup_program",
    "program_guard",
]

Layout = Literal["dense", "sparse_binary", "sparse_float"]
Densify = Literal[False, True, "reuse"]

DTYPES = (
    *("bool", "float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64", "uint8"),
)
LAYOUTS = ("dense", "sparse_binary", "sparse_float")


@dataclass(frozen=True)
class Variable:
    """One declared input of a program; make it with `data`.

    Attributes:
        name: Key of the feed.
        shape: With the batch (or row) dimension first; -1 is any size.
        dtype: Of the values the user receives.
        lod_level: 0 for one row a sample; k for sequences nested k deep.
        layout: ``"dense"``, ``"sparse_binary"`` (indices) or ``"sparse_float"`` (indices, values).
        densify: Whether sparse rows become a dense tensor on the device; ``"reuse"`` clears only
            what the previous batch wrote, so the user must not write into the tensor.
        wire_dtype: Of the values as they travel, when narrower than ``dtype``.
        scale: Factor applied after the transfer.
        shift: Term added after scaling.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    lod_level: int = 0
    layout: Layout = "dense"
    densify: Densify = False
    wire_dtype: np.dtype[np.generic] | None = None
    scale: float | None = None
    shift: float | None = None

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of one row, without the batch dimension."""
        return self.shape[1:]

    @property
    def is_sparse(self) -> bool:
        """Whether samples are given as indices (and values) rather than rows."""
        return self.layout != "dense"

    @property
    def dim(self) -> int:
        """Width of a sparse row: indices are in ``[0, dim)``."""
        return self.shape[-1]


class Block:
    """The variables of a program, in declaration order."""

    def __init__(self) -> None:
        self.vars: dict[str, Variable] = {}

    def var(self, name: str) -> Variable:
        """Return the variable called ``name``.

        Raises:
            FieldError: This block declares no such variable.
        """
        try:
            return self.vars[name]
        except KeyError:
            declared = ", ".join(self.vars) or "none"
            raise FieldError(
                f"var {name} not in this block; declared variables: {declared}"
            ) from None


class Program:
    """A set of declared variables.

    >>> main = Program()
    >>> with program_guard(main):
    ...     ids = data("ids", [1], "int64", lod_level=1)
    >>> main.global_block().var("ids") is ids
    True
    """

    def __init__(self) -> None:
        self._block = Block()

    def global_block(self) -> Block:
        """Return the block that holds this program's variables."""
        return self._block


class _Defaults(threading.local):
    """The default programs, per thread, so that a guard in one thread is not seen in another."""

    def __init__(self) -> None:
        self.main, self.startup = _process_main, _process_startup


_process_main, _process_startup = Program(), Program()
_defaults = _Defaults()


def default_main_program() -> Program:
    """Return the program that `data` declares into."""
    return _defaults.main


def default_startup_program() -> Program:
    """Return the program that holds creating operators."""
    return _defaults.startup


@contextmanager
def program_guard(main: Program, startup: Program | None = None) -> Iterator[None]:
    """Make ``main`` (and ``startup``) the default programs of this thread inside the ``with``.

    >>> with program_guard(Program()):
    ...     _ = data("x", [3])
    ...     list(default_main_program().global_block().vars)
    ['x']
    """
    before = _defaults.main, _defaults.startup
    _defaults.main = main
    _defaults.startup = before[1] if startup is None else startup
    try:
        yield
    finally:
        _defaults.main, _defaults.startup = before


def data(
    name: str,
    shape: Sequence[int | None],
    dtype: str | type | np.dtype[np.generic] = "float32",
    lod_level: int = 0,
    *,
    layout: Layout = "dense",
    append_batch_size: bool = True,
    densify: Densify = False,
    wire_dtype: str | type | np.dtype[np.generic] | None = None,
    scale: float | None = None,
    shift: float | None = None,
) -> Variable:
    """Declare an input in the default main program.

    >>> with program_guard(Program()):
    ...     data("image", [1, 28, 28]).shape
    ...     data("label", [None, 1], "int64").shape
    (-1, 1, 28, 28)
    (-1, 1)

    Args:
        name: Key of the feed.
        shape: Of one row. A batch dimension of -1 is put in front, unless a dimension is already
            None or negative. For sparse layouts: ``[dim]``.
        dtype: bool, float16/32/64, int8/16/32/64 or uint8; of the values the user receives.
        lod_level: 0 for one row a sample; k for sequences nested k deep.
        layout: ``"dense"``, ``"sparse_binary"`` or ``"sparse_float"``.
        append_batch_size: False takes ``shape`` as it is.
        densify: For sparse layouts: feed a dense ``(rows, dim)`` tensor instead of `SparseRows`.
        wire_dtype: Of the values as they travel; samples must fit it.
        scale: The user receives ``wire * scale + shift``.
        shift: See ``scale``.

    Raises:
        FieldError: An argument breaks a rule above, or ``name`` is already declared in this
            program with another meaning.

    Source: ``fluid.layers.data`` and ``fluid.data`` of PaddlePaddle 1.x, whose two spellings of
    ``shape`` are both accepted.
    """
    if not isinstance(name, str) or not name:
        raise FieldError(f"data.name must be a non-empty string, got {name!r}")

    def rule(argument: str, must: str, got: object) -> FieldError:
        return FieldError(f"data({name!r}).{argument} must {must}, got {got!r}")

    try:
        dims = tuple(-1 if dim is None else max(-1, operator.index(dim)) for dim in shape)
    except TypeError:
        raise rule("shape", "be a list of whole numbers or None", shape) from None
    if append_batch_size and -1 not in dims:
        dims = (-1, *dims)
    if layout not in LAYOUTS:
        raise rule("layout", f"be one of {', '.join(LAYOUTS)}", layout)
    if layout != "dense" and (len(dims) != 2 or dims[0] != -1 or dims[1] < 1):
        raise rule("shape", f"be [dim] with dim >= 1 for layout {layout!r}", list(shape))
    if densify not in (False, True, "reuse"):
        raise rule("densify", "be False, True or 'reuse'", densify)
    if densify and layout == "dense":
        raise rule("densify", "be False for layout 'dense'", densify)
    if isinstance(lod_level, bool) or not isinstance(lod_level, int) or lod_level < 0:
        raise rule("lod_level", "be a whole number >= 0", lod_level)
    if lod_level and dims and dims[0] != -1:
        raise rule("shape", "leave its first dimension free (-1) when lod_level > 0", list(shape))
    for argument, factor in (("scale", scale), ("shift", shift)):
        if factor is not None and not math.isfinite(factor):
            raise rule(argument, "be finite", factor)
    variable = Variable(
        name,
        dims,
        _as_dtype(dtype, lambda got: rule("dtype", f"be any of {', '.join(DTYPES)}", got)),
        lod_level,
        layout,
        densify,
        None
        if wire_dtype is None
        else _as_dtype(
            wire_dtype, lambda got: rule("wire_dtype", f"be any of {', '.join(DTYPES)}", got)
        ),
        scale,
        shift,
    )
    known = default_main_program().global_block().vars
    if known.setdefault(name, variable) != variable:
        raise FieldError(
            f"data({name!r}): already declared in this program as {known[name]}, got {variable}"
        )
    return known[name]


def _as_dtype(dtype: object, error: Callable[[object], FieldError]) -> np.dtype[np.generic]:
    try:
        found: np.dtype[np.generic] = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        raise error(dtype) from None
    if found.name not in DTYPES:
        raise error(dtype)
    return found
