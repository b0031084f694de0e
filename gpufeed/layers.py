"""Reader operators: calls that programs record and `gpufeed.executor` runs.

    startup program     open_files, batch, double_buffer ...    run once; makes the readers
    main program        read_file, has_next, reset              run in every step

A reader variable is in both programs and persists: what the startup program made is what every run
of the main program reads, by whichever executor. Loops are Python loops around `Executor.run`:

>>> from gpufeed.executor import Executor
>>> from gpufeed.variables import Program, program_guard
>>> main, startup = Program(), Program()
>>> with program_guard(main, startup):
...     reader = batch(random_data_generator(0, 1, [[1, 2]]), batch_size=4)
...     x = read_file(reader)
>>> executor = Executor("cpu")
>>> _ = executor.run(startup)
>>> executor.run(main, fetch_list=[x])[0].shape
(4, 2)

Making a reader opens nothing, so arguments are checked when a call is recorded, and files, threads
and devices are met when the main program reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpufeed.errors import FieldError
from gpufeed.formats import PathLike
from gpufeed.places import Place, PlaceLike
from gpufeed.stateful import functions
from gpufeed.stateful.base import ReaderHolder
from gpufeed.stateful.decorated import (
    BatchReader,
    DoubleBufferReader,
    MultiPassReader,
    ShuffleReader,
)
from gpufeed.stateful.files import Filenames
from gpufeed.stateful.tensors import TensorFields, free_rows
from gpufeed.stateful.variable import ReaderVariable
from gpufeed.variables import (
    Operator,
    Program,
    Variable,
    data,
    default_main_program,
    default_startup_program,
)

__all__ = [
    "ReaderVariable",
    "batch",
    "data",
    "double_buffer",
    "has_next",
    "multi_pass",
    "open_files",
    "open_recordio_file",
    "py_reader",
    "random_data_generator",
    "read_file",
    "reset",
    "shuffle",
]

FLAG_SHAPE = (1,)  # of what `has_next` and `reset` set


def open_files(
    filenames: Filenames,
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int] | None,
    dtypes: Sequence[Any],
    thread_num: int | None = None,
    buffer_size: int | None = None,
    pass_num: int = 1,
    is_test: bool = False,
    **options: Any,
) -> ReaderVariable:
    """Record `gpufeed.open_files`."""
    reader = functions.open_files(
        *(filenames, shapes, lod_levels, dtypes, thread_num, buffer_size, pass_num, is_test),
        **options,
    )
    return _record("open_files", TensorFields("open_files", shapes, lod_levels, dtypes), reader)


def open_recordio_file(
    filename: PathLike,
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int] | None,
    dtypes: Sequence[Any],
    pass_num: int = 1,
    for_parallel: bool = True,
) -> ReaderVariable:
    """Record `gpufeed.open_recordio_file`."""
    name = "open_recordio_file"
    reader = functions.open_recordio_file(filename, shapes, lod_levels, dtypes, pass_num)
    return _record(name, TensorFields(name, shapes, lod_levels, dtypes), reader)


def random_data_generator(
    low: float,
    high: float,
    shapes: Sequence[Sequence[int]],
    lod_levels: Sequence[int] | None = None,
    for_parallel: bool = True,
    *,
    seed: int | None = None,
) -> ReaderVariable:
    """Record `gpufeed.random_data_generator`."""
    reader = functions.random_data_generator(low, high, shapes, lod_levels, seed=seed)
    return _record("random_data_generator", reader.fields, reader)


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
    *,
    strict: bool = True,
) -> ReaderVariable:
    """Record `gpufeed.py_reader`; its methods are those of the variable."""
    reader = functions.py_reader(
        *(capacity, shapes, dtypes, lod_levels, name, use_double_buffer), strict=strict
    )
    return _record("py_reader", reader.fields, reader, name=name)


def shuffle(reader: ReaderVariable, buffer_size: int, *, seed: int | None = None) -> ReaderVariable:
    """Record a `ShuffleReader` over ``reader``."""
    return _decorate("shuffle", reader, partial(ShuffleReader, buffer_size=buffer_size, seed=seed))


def batch(reader: ReaderVariable, batch_size: int, *, drop_last: bool = False) -> ReaderVariable:
    """Record a `BatchReader` over ``reader``."""
    made = partial(BatchReader, batch_size=batch_size, drop_last=drop_last)
    return _decorate("batch", reader, made, is_batched=True)


def double_buffer(
    reader: ReaderVariable, place: PlaceLike | None = None, name: str | None = None
) -> ReaderVariable:
    """Record a `DoubleBufferReader` over ``reader``.

    Args:
        reader: Whose items are sent.
        place: Where to; None is the place of the executor that runs the startup program.
        name: Of the variable.
    """
    return _decorate("double_buffer", reader, partial(DoubleBufferReader, place=place), name=name)


def multi_pass(reader: ReaderVariable, pass_num: int) -> ReaderVariable:
    """Record a `MultiPassReader` over ``reader``."""
    return _decorate("multi_pass", reader, partial(MultiPassReader, pass_num=pass_num))


def read_file(
    reader: ReaderVariable, *, out: Sequence[Variable] | None = None
) -> Variable | list[Variable]:
    """Record a read in the main program: the next item, one variable a field.

    Args:
        reader: What is read.
        out: Variables of the main program that a read sets; None declares new ones.

    Returns:
        The variables to fetch; of one field the variable itself.

    Raises:
        FieldError: The main program reads ``reader`` already: a second read would take the next
            item, and lose the first at an odd end. Fetch the variables of the first read.
    """
    _require_reader("read_file", reader)
    block = default_main_program().global_block()
    if any(op.type == "read_file" and op.run == reader._read for op in block.ops):
        raise FieldError(f"read_file.reader must be read once in a program, got {reader.name!r}")
    variables = list(out or ())
    if out is None:
        variables = [replace(field, name=f"{reader.name}.{field.name}") for field in reader.fields]
        block.vars.update({variable.name: variable for variable in variables})
    elif len(out) != len(reader.fields) or any(block.vars.get(one.name) != one for one in out):
        raise FieldError(
            f"read_file.out must be {len(reader.fields)} variables of the main program, "
            f"got {[one.name for one in out]}"
        )
    block.readers[reader.name] = reader
    names = tuple(variable.name for variable in variables)
    block.ops.append(Operator("read_file", names, reader._read, reader.has_next))
    return variables[0] if len(variables) == 1 else variables


def has_next(reader: ReaderVariable) -> Variable:
    """Record in the main program the question whether there is another item.

    Returns:
        The variable to fetch; its value is a bool.
    """
    return _record_flag("has_next", reader, lambda place: [reader.has_next()])


def reset(reader: ReaderVariable) -> Variable:
    """Record in the main program that ``reader`` begins again; see `ReaderVariable.reset`.

    Returns:
        The variable to fetch for it: a run does what its ``fetch_list`` needs. Its value is True.
    """

    def run(place: Place) -> Sequence[Any]:
        reader.reset()
        return [True]

    return _record_flag("reset", reader, run)


def _record(
    function: str,
    fields: TensorFields,
    reader: ReaderHolder[Any],
    *,
    name: str | None = None,
) -> ReaderVariable:
    return _install(function, ReaderVariable(_name(function, name), fields.variables, reader))


def _decorate(
    function: str,
    source: ReaderVariable,
    decorate: Callable[[ReaderHolder[Any]], ReaderHolder[Any]],
    *,
    is_batched: bool = False,
    name: str | None = None,
) -> ReaderVariable:
    _require_reader(function, source)
    fields = [free_rows(field) if is_batched else field for field in source.fields]
    made = ReaderVariable(_name(function, name), fields, decorate(source._reader), source)
    return _install(function, made)


def _install(function: str, variable: ReaderVariable) -> ReaderVariable:
    """Put a reader variable into both programs, and its creation into the startup program."""
    for program in (default_startup_program(), default_main_program()):
        program.global_block().readers[variable.name] = variable
    default_startup_program().global_block().ops.append(Operator(function, (), variable.make))
    return variable


def _record_flag(
    function: str, reader: ReaderVariable, run: Callable[[Place], Sequence[Any]]
) -> Variable:
    _require_reader(function, reader)
    program = default_main_program()
    name = _unused(f"{reader.name}.{function}", [program])
    flag = data(name, FLAG_SHAPE, "bool", append_batch_size=False)
    program.global_block().readers[reader.name] = reader
    program.global_block().ops.append(Operator(function, (name,), run))
    return flag


def _require_reader(function: str, reader: object) -> None:
    if not isinstance(reader, ReaderVariable):
        raise FieldError(
            f"{function}.reader must be a reader variable of gpufeed.layers, "
            f"got {type(reader).__name__}"
        )


def _name(function: str, wanted: str | None) -> str:
    programs = [default_startup_program(), default_main_program()]
    if wanted is None:
        return _unused(function, programs)
    if _is_used(wanted, programs):
        raise FieldError(f"{function}.name must be new in its programs, got {wanted!r}")
    return wanted


def _unused(prefix: str, programs: Sequence[Program]) -> str:
    number = 0
    while _is_used(f"{prefix}_{number}", programs):
        number += 1
    return f"{prefix}_{number}"


def _is_used(name: str, programs: Sequence[Program]) -> bool:
    blocks = [program.global_block() for program in programs]
    return any(name in block.vars or name in block.readers for block in blocks)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'gpufeed.layers' has no attribute {name!r}: it records readers, no network layers"
    )
