"""Executors: they run recorded reader operators, and hand out what was read or fed.

Neither runs network layers; a program here holds inputs and reader operators only. A run does the
operators whose variables its ``fetch_list`` names, in the order of their recording; where it names
none, all of them.

What a run reads is not lost: everything that can be wrong with its arguments is found before the
first read, and so is the end of the data of any reader that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from gpufeed.device import backend_for
from gpufeed.errors import EOFException, FieldError, PlaceError
from gpufeed.feed import Feed
from gpufeed.places import CPUPlace, CUDAPlace, Place, PlaceLike, as_place
from gpufeed.sparse import SparseRows
from gpufeed.stateful.tensors import require_tensor
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Block, Operator, Program, Variable, default_main_program

__all__ = ["Executor", "ParallelExecutor"]

Tensor = LoDTensor | SparseRows
Fetch = Variable | str


class Executor:
    """Runs programs of reader operators on one place.

    >>> from gpufeed.variables import data, program_guard
    >>> main = Program()
    >>> with program_guard(main):
    ...     x = data("x", [2], "int64")
    >>> Executor("cpu").run(main, feed={"x": [[7, 8]]}, fetch_list=[x])
    [array([[7, 8]])]

    Args:
        place: Where what is fetched lives.

    Raises:
        PlaceError: It is not there.

    Source: ``fluid.Executor`` of PaddlePaddle 1.x.
    """

    def __init__(self, place: PlaceLike) -> None:
        self.place = _present(place)
        self._plan: _Plan | None = None

    def run(
        self,
        program: Program | None = None,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Fetch] | None = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Run a program once; return the values of ``fetch_list``.

        A startup program makes its readers; run again, it leaves them as they are.

        Args:
            program: None is the default main program.
            feed: Tensors or arrays by the name of their variable.
            fetch_list: Variables of ``program``, or their names. None, or an empty list, runs every
                operator.
            return_numpy: Whether tensors come back as arrays on the host. Those with a LoD have no
                array form; False returns `LoDTensor` and `SparseRows` on this executor's place.

        Returns:
            One value for each of ``fetch_list``: of `gpufeed.layers.has_next` and ``reset`` a
            bool, of the others as ``return_numpy`` says.

        Raises:
            EOFException: A reader is at its end; nothing was read.
            FieldError: A name is not of this program, a fed tensor does not fit its variable, or
                a fetched one has no array form; nothing was read.
            ReaderError: A reader was not made or not started.
        """
        owner, fed, plan = "Executor.run", dict[str, Tensor](), self._plan
        program = default_main_program() if program is None else program
        if feed is not None:
            fed = _fed(owner, _block_of(owner, program), feed)
        if fed:
            plan = _plan(owner, program, fetch_list, fed)
        elif plan is None or not plan.is_for(program, fetch_list):
            plan = self._plan = _plan(owner, program, fetch_list, fed)
        if return_numpy and plan.no_array is not None:
            raise FieldError(
                f"Executor.run.fetch_list: {plan.no_array!r} has a LoD or sparse rows, and no "
                "array form; pass return_numpy=False"
            )
        values = plan.run(self.place, fed)
        return [*map(_as_array, values)] if return_numpy else values


class ParallelExecutor:
    """Runs a program once for each of several places: lists of feeds in, lists of feeds out.

    >>> from gpufeed.variables import data, program_guard
    >>> main = Program()
    >>> with program_guard(main):
    ...     x = data("x", [1], "int64")
    >>> feeds = ParallelExecutor(["cpu", "cpu"], main).run([x], feed={"x": [[7], [8], [9]]})
    >>> [feed["x"].to_list() for feed in feeds]
    [[[7], [8]], [[9]]]

    Args:
        places: One or more; a place may repeat.
        main_program: None is the default main program, when it is run.

    Raises:
        PlaceError: A place is not there, or there is none.

    Source: ``fluid.ParallelExecutor`` of PaddlePaddle 1.x, whose place is our list of places.
    """

    def __init__(self, places: Sequence[PlaceLike], main_program: Program | None = None) -> None:
        if isinstance(places, (str, Place)) or not isinstance(places, Iterable):
            raise PlaceError(f"ParallelExecutor.places must be a list of places, got {places!r}")
        self.places = [_present(place) for place in places]
        if not self.places:
            raise PlaceError("ParallelExecutor.places must name at least one place, got none")
        self._program = main_program
        self._failure: list[Exception] = []

    @property
    def device_count(self) -> int:
        """How many places there are."""
        return len(self.places)

    def run(
        self,
        fetch_list: Sequence[Fetch],
        feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Feed]:
        """Run the program once a place; return what each run fetches, by name.

        Readers give each place the next item. At the end of the data, or before an error, there may
        be fewer items than places: then the list is shorter, and the next run raises.

        Args:
            fetch_list: Variables, or their names, of what is read or fed.
            feed: One mapping a place; or one mapping, whose samples are shared over the places as
                `LoDTensor.split` does, so that there may be fewer feeds than places.

        Raises:
            EOFException: A reader is at its end; nothing was read.
            FieldError: There are not as many feeds as places; and as `Executor.run`.
        """
        owner = "ParallelExecutor.run"
        program = default_main_program() if self._program is None else self._program
        parts = self._parts(_block_of(owner, program), feed)
        plan = _plan(owner, program, fetch_list, parts[0] if parts else {})
        if flags := [op.type for op in plan.operators if op.has_data is None]:
            raise FieldError(
                f"{owner}.fetch_list must name tensors, got what {flags[0]} sets; "
                f"use the method {flags[0]} of the reader"
            )
        if self._failure:
            raise self._failure.pop()
        feeds: list[Feed] = []
        for place, part in zip(self.places, parts, strict=False):
            try:
                values = plan.run(place, part)
            except Exception as error:
                if not feeds:
                    raise
                if not isinstance(error, EOFException):  # that one comes again by itself
                    self._failure.append(error)
                break
            feeds.append(Feed(zip(plan.names, values, strict=True), place=place))
        return feeds

    def _parts(
        self, block: Block, feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    ) -> list[dict[str, Tensor]]:
        owner = "ParallelExecutor.run"
        if feed is None:
            return [{} for _ in self.places]
        if not isinstance(feed, (Mapping, Sequence)):
            raise FieldError(
                f"{owner}.feed must be one mapping, or a list of them, got {type(feed).__name__}"
            )
        if not isinstance(feed, Mapping):
            if len(feed) != len(self.places):
                raise FieldError(
                    f"{owner}.feed must be one for each of {len(self.places)} places, "
                    f"got {len(feed)}"
                )
            return [_fed(owner, block, each) for each in feed]
        if not feed:  # as scripts that read give it
            return [{} for _ in self.places]
        fed = _fed(owner, block, feed)
        sizes = {name: len(tensor) for name, tensor in fed.items()}
        if len(set(sizes.values())) > 1:
            raise FieldError(f"{owner}.feed must hold equally many samples each, got {sizes}")
        split = [tensor.split(len(self.places)) for tensor in fed.values()]
        return [dict(zip(fed, parts, strict=True)) for parts in zip(*split, strict=True)]


@dataclass(frozen=True)
class _Plan:
    """What a run does. If it is only read and nothing fed, the next run does the same.

    Attributes:
        program: That is run.
        num_ops: How many operators it had.
        fetch_list: As it was given.
        names: Of what is fetched.
        operators: That are run.
        questions: Of several reads, the questions whether they have data. A single one says itself
            that there is nothing.
        no_array: A name of what is fetched and has no array form; None if all have.
        is_one_read: Whether what is fetched is just what one operator sets.
    """

    program: Program
    num_ops: int
    fetch_list: tuple[Fetch, ...] | None
    names: list[str]
    operators: list[Operator]
    questions: list[Callable[[], bool]]
    no_array: str | None
    is_one_read: bool

    def is_for(self, program: Program, fetch_list: Sequence[Fetch] | None) -> bool:
        """Return whether a run that is fed nothing would make this plan again."""
        if program is not self.program or len(program.global_block().ops) != self.num_ops:
            return False
        if self.fetch_list is None or not isinstance(fetch_list, (list, tuple)):
            return self.fetch_list is fetch_list
        return len(fetch_list) == len(self.fetch_list) and all(
            map(is_, self.fetch_list, fetch_list)
        )

    def run(self, place: Place, fed: Mapping[str, Tensor]) -> list[Any]:
        """Run the operators in order; return what is fetched, on ``place``.

        Before the first of several reads, all must have data.
        """
        if self.is_one_read:
            return [*self.operators[0].run(place)]
        values: dict[str, Any] = {name: tensor.to(place) for name, tensor in fed.items()}
        questions = self.questions
        for op in self.operators:
            if questions and op.has_data is not None:
                if not all(has_data() for has_data in questions):
                    raise EOFException("There is no next data.")
                questions = []
            values.update(zip(op.outputs, op.run(place), strict=True))
        return [values[name] for name in self.names]


def _plan(
    owner: str, program: Program, fetch_list: Sequence[Fetch] | None, fed: Mapping[str, Tensor]
) -> _Plan:
    """Find the operators that set what is fetched, or all; what none sets has to be fed."""
    block = _block_of(owner, program)
    operators = list(block.ops)
    names = [] if fetch_list is None else _fetched(owner, block, fetch_list)
    if names:  # or a loop that fetches nothing would never come to the end of the data
        wanted = set(names).difference(fed)
        operators = [op for op in operators if not wanted.isdisjoint(op.outputs)]
        if unset := wanted.difference(*(op.outputs for op in operators)):
            raise FieldError(
                f"{owner}.feed must hold {min(unset)!r}, which is fetched and never read"
            )
    questions = [op.has_data for op in operators if op.has_data is not None]
    return _Plan(
        program,
        num_ops=len(block.ops),
        fetch_list=None if fetch_list is None else tuple(fetch_list),
        names=names,
        operators=operators,
        questions=questions if len(questions) > 1 else [],
        no_array=next((name for name in names if _is_no_array(block, name, fed)), None),
        is_one_read=[op.outputs for op in operators] == [tuple(names)],
    )


def _is_no_array(block: Block, name: str, fed: Mapping[str, Tensor]) -> bool:
    holder = fed.get(name, block.vars[name])
    return holder.lod_level > 0 or isinstance(holder, SparseRows)


def _present(place: PlaceLike) -> Place:
    found = as_place(place)
    if isinstance(found, CUDAPlace):
        backend_for(found)  # says at once if it is not there
    elif not isinstance(found, CPUPlace):
        raise PlaceError(f"Executor.place must be a CPUPlace or CUDAPlace, got {found}")
    return found


def _block_of(owner: str, program: Program) -> Block:
    if not isinstance(program, Program):
        raise FieldError(f"{owner}.program must be a Program, got {type(program).__name__}")
    return program.global_block()


def _fetched(owner: str, block: Block, fetch_list: Sequence[Fetch]) -> list[str]:
    """Return the names of what is fetched, all of them variables of the program."""
    if isinstance(fetch_list, str) or not isinstance(fetch_list, Sequence):
        raise FieldError(
            f"{owner}.fetch_list must be a list of Variables or names, got {fetch_list!r}"
        )
    names = []
    for each in fetch_list:
        name = each.name if isinstance(each, Variable) else each
        known = block.vars.get(name) if isinstance(name, str) else None
        if known is None or (known is not each and name is not each):
            raise FieldError(
                f"{owner}.fetch_list must name variables of the program, got {name!r}; gpufeed "
                "reads and feeds data, it runs no network layers"
            )
        names.append(name)
    return names


def _fed(owner: str, block: Block, feed: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return what is fed as tensors, each as its variable declares it."""
    if not isinstance(feed, Mapping):
        raise FieldError(f"{owner}.feed must map names to tensors, got {type(feed).__name__}")
    fed: dict[str, Tensor] = {}
    for name, given in feed.items():
        if name not in block.vars:
            raise FieldError(f"{owner}.feed must name variables of the program, got {name!r}")
        if name not in block.unchecked:
            _require_kind(owner, block.vars[name], given)
        tensor = given if isinstance(given, (LoDTensor, SparseRows)) else LoDTensor(given)
        if name not in block.unchecked:
            require_tensor(owner, block.vars[name], tensor)
        fed[name] = tensor
    return fed


def _require_kind(owner: str, variable: Variable, given: Any) -> None:
    wants_sparse = variable.is_sparse and not variable.densify
    if wants_sparse != isinstance(given, SparseRows):
        expected = "SparseRows" if wants_sparse else "dense rows"
        raise FieldError(
            f"{owner}: field {variable.name!r}: expected {expected}, got {type(given).__name__}"
        )


def _as_array(value: Any) -> Any:
    return value.numpy() if isinstance(value, LoDTensor) else value
