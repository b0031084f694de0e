"""Declared inputs: what a feed holds under which name, and the program that declares them.

A `Variable` is a description only: name, shape, dtype, LoD level and layout. It owns no data. A
program also lists the operators that `gpufeed.layers` records and `gpufeed.executor` runs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.kernels.checks import VALUE_DTYPES
from gpufeed.places import Place

__all__ = [
    "Block",
    "Operator",
    "Program",
    "Variable",
    "data",
    "default_main_program",
    "default_startup_program",
    "program_guard",
]

Layout = Literal["dense", "sparse_binary", "sparse_float"]
Densify = bool | Literal["reuse"]
Factor = float | tuple[float, ...]  # for all values, or one for each channel

LAYOUTS = get_args(Layout)
DTYPES = tuple(dtype.name for dtype in VALUE_DTYPES)  # what is fed, kernels can convert


@dataclass(frozen=True)
class Variable:
    """One declared input of a program; make it with `data`.

    Attributes:
        name: Key of the feed.
        shape: With the batch (or row) dimension first; -1 is any size.
        dtype: Of the values the user receives.
        lod_level: 0 for one row a sample; k for sequences nested k deep.
        layout: ``"dense"``, ``"sparse_binary"`` (indices) or ``"sparse_float"`` (indices, values).
        densify: Whether sparse rows become a dense tensor on the device; ``"reuse"``: where one of
            the same shape was before, by clearing only what it wrote.
        wire_dtype: Of the values as they travel, when narrower than ``dtype``; ``"auto"``: the
            narrowest that keeps every value of a batch.
        scale: Factor applied after the transfer; a tuple has one for each channel.
        shift: Term added after scaling; a tuple has one for each channel.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    lod_level: int = 0
    layout: Layout = "dense"
    densify: Densify = False
    wire_dtype: np.dtype[np.generic] | Literal["auto"] | None = None
    scale: Factor | None = None
    shift: Factor | None = None

    @cached_property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of one row, without the batch dimension."""
        return self.shape[1:]

    @cached_property
    def is_sparse(self) -> bool:
        """Whether samples are given as indices (and values) rather than rows."""
        return self.layout != "dense"

    @cached_property
    def is_scaled(self) -> bool:
        """Whether values are scaled or shifted after they have travelled."""
        return self.scale is not None or self.shift is not None

    @cached_property
    def is_converted(self) -> bool:
        """Whether values travel in another form than they are fed in."""
        return self.wire_dtype is not None or self.is_scaled

    @cached_property
    def channel_axis(self) -> int | None:
        """Axis of ``shape`` along which ``scale`` and ``shift`` differ; None where they do not.

        That is the first dimension of a row (images of shape ``[channels, height, width]``), or
        else its last, whichever has as many channels as there are factors.
        """
        counts = {len(given) for given in (self.scale, self.shift) if isinstance(given, tuple)}
        for axis in (1, len(self.shape) - 1):
            if counts == {dict(enumerate(self.shape)).get(axis)}:
                return axis
        return None

    @cached_property
    def dim(self) -> int:
        """Width of a sparse row: indices are in ``[0, dim)``."""
        return self.shape[-1]


@dataclass(frozen=True)
class Operator:
    """One recorded call.

    Attributes:
        type: The function that recorded it.
        outputs: Names of the variables that it sets.
        run: Does it, on a place, and returns the values of the outputs.
        has_data: Whether there is something to read; asked before anything is read. None for an
            operator that reads nothing.
    """

    type: str
    outputs: tuple[str, ...]
    run: Callable[[Place], Sequence[Any]]
    has_data: Callable[[], bool] | None = None


class Block:
    """The variables of a program, in declaration order, and its operators, as recorded.

    Attributes:
        vars: Variables by name.
        ops: Operators; of a startup program those that make readers, of a main program those that
            read.
        readers: Reader variables by name; they persist, in the startup and in the main program.
        unchecked: Names of variables that executors take anything for.
    """

    def __init__(self) -> None:
        self.vars: dict[str, Variable] = {}
        self.ops: list[Operator] = []
        # `gpufeed.layers.ReaderVariable`, of a layer that this one knows nothing of.
        self.readers: dict[str, Any] = {}
        self.unchecked: set[str] = set()

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
    """A set of declared variables, and the operators recorded with them.

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

    def clone(self, for_test: bool = False) -> Program:
        """Return a program that begins as this one; what comes to either later is its own.

        Readers are shared, and so is their position. ``for_test`` was for networks, and changes
        nothing.
        """
        clone = Program()
        for name, held in vars(self._block).items():
            setattr(clone._block, name, held.copy())
        return clone


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
    scale: float | Sequence[float] | None = None,
    shift: float | Sequence[float] | None = None,
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
            ``"reuse"`` makes it in memory where a tensor of that shape was before, and clears
            only what was written there: two to ten times faster for large tensors of few entries,
            where batches have equally many rows. Such a tensor must not be written to, or what is
            written shows up in a later batch.
        wire_dtype: Of the values as they travel, which ``dtype`` can hold; samples must fit it.
            ``"auto"`` takes, for each batch that goes to a device, the narrowest dtype that keeps
            every value: whole numbers as int8 to int32 or uint8, bools as bits, float64 as float32
            and so on.
        scale: The user receives ``wire * scale + shift``: one number, or one for each channel,
            which are the first dimension of a row, or else its last.
        shift: See ``scale``. With ``scale=1 / (255 * std)`` and ``shift=-mean / std``, arrays of
            one number a channel, images travel as bytes and arrive normalized.

    Raises:
        FieldError: An argument breaks a rule above, or ``name`` is already declared in this
            program with another meaning.

    Source: ``fluid.layers.data`` and ``fluid.data`` of PaddlePaddle 1.x, whose two spellings of
    ``shape`` are both accepted.
    """
    if not isinstance(name, str) or not name:
        raise FieldError(f"data.name must be a non-empty string, got {name!r}")
    variable = Variable(
        name,
        _as_shape(name, shape, append_batch_size),
        _as_dtype(name, "dtype", dtype),
        whole_number(f"data({name!r}).lod_level", lod_level, minimum=0),
        layout,
        densify,
        _as_wire_dtype(name, wire_dtype),
        _as_factor(scale),
        _as_factor(shift),
    )
    _check_layout(variable)
    _check_conversion(variable)
    known = default_main_program().global_block().vars
    if known.setdefault(name, variable) != variable:
        raise FieldError(
            f"data({name!r}): already declared in this program as {known[name]}, got {variable}"
        )
    return known[name]


def _error(name: str, argument: str, rule: str, got: object) -> FieldError:
    return FieldError(f"data({name!r}).{argument} must {rule}, got {got!r}")


def _as_shape(name: str, shape: object, append_batch_size: bool) -> tuple[int, ...]:
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        raise _error(name, "shape", "be a list of whole numbers or None", shape)
    dims = tuple(
        -1 if dim is None else max(-1, whole_number(f"data({name!r}).shape[{axis}]", dim))
        for axis, dim in enumerate(shape)
    )
    if append_batch_size and -1 not in dims:
        dims = (-1, *dims)
    if not dims:
        raise _error(name, "shape", "have a batch dimension", shape)
    return dims


def _as_dtype(name: str, argument: str, dtype: object) -> np.dtype[np.generic]:
    rule = f"be any of {', '.join(DTYPES)}"
    if dtype is None:  # NumPy takes it for float64
        raise _error(name, argument, rule, dtype)
    try:
        found = np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        raise _error(name, argument, rule, dtype) from None
    if found not in DTYPES:
        raise _error(name, argument, rule, dtype)
    plain: np.dtype[np.generic] = np.dtype(found)
    return plain


def _as_wire_dtype(name: str, dtype: object) -> np.dtype[np.generic] | Literal["auto"] | None:
    if dtype is None or (isinstance(dtype, str) and dtype == "auto"):
        return None if dtype is None else "auto"
    return _as_dtype(name, "wire_dtype", dtype)


def _as_factor(given: Any) -> Any:
    """Return a list or a flat array of numbers as a tuple, and anything else as it is."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    return tuple(given) if isinstance(given, list) else given


def _check_layout(variable: Variable) -> None:
    name, shape, layout = variable.name, variable.shape, variable.layout
    if layout not in LAYOUTS:
        raise _error(name, "layout", f"be one of {', '.join(LAYOUTS)}", layout)
    if variable.is_sparse and (len(shape) != 2 or shape[0] != -1 or shape[1] < 1):
        raise _error(name, "shape", f"be [dim] with dim >= 1 for layout {layout!r}", list(shape))
    if not isinstance(variable.densify, bool) and variable.densify != "reuse":
        raise _error(name, "densify", "be True, False or 'reuse'", variable.densify)
    if variable.densify and not variable.is_sparse:
        raise _error(name, "densify", "be False for layout 'dense'", variable.densify)
    if variable.lod_level and shape[:1] != (-1,):
        rule = "leave its first dimension free (-1) when lod_level > 0"
        raise _error(name, "shape", rule, list(shape))


def _check_conversion(variable: Variable) -> None:
    for argument in ("wire_dtype", "scale", "shift"):
        given = getattr(variable, argument)
        if given is not None and variable.is_sparse:
            raise _error(variable.name, argument, f"be None for layout {variable.layout!r}", given)
    for argument in ("scale", "shift"):
        factor = getattr(variable, argument)
        if factor is None:
            continue
        numbers = factor if isinstance(factor, tuple) else (factor,)
        if not all(map(_is_finite, numbers)):
            raise _error(variable.name, argument, "be a finite number, or one a channel", factor)
        if variable.dtype.kind != "f":
            raise _error(variable.name, argument, f"be None for dtype {variable.dtype}", factor)
        row = variable.shape[1:]
        if isinstance(factor, tuple) and len(factor) not in (*row[:1], *row[-1:]):
            rule = f"have one number for each channel of {list(variable.shape)}"
            raise _error(variable.name, argument, rule, factor)
    both = variable.scale, variable.shift
    if any(isinstance(factor, tuple) for factor in both) and variable.channel_axis is None:
        raise _error(variable.name, "scale", "have as many numbers as shift", both)
    wire = variable.wire_dtype
    if isinstance(wire, np.dtype) and not _can_hold(variable.dtype, wire):
        rule = f"have values that {variable.dtype} can hold"
        raise _error(variable.name, "wire_dtype", rule, wire.name)


def _can_hold(dtype: np.dtype[Any], wire: np.dtype[Any]) -> bool:
    """Return whether each value of ``wire`` is in the range of ``dtype``; some may be rounded."""
    if dtype.kind == "f" and wire.kind in "iu":
        return float(np.iinfo(wire).max) <= float(np.finfo(dtype).max)
    return np.can_cast(wire, dtype)


def _is_finite(factor: object) -> bool:
    if isinstance(factor, bool) or not isinstance(factor, Real):
        return False
    return math.isfinite(factor)
