"""``fluid.Executor`` and ``fluid.ParallelExecutor``, for programs that read and feed.

Arguments that were for the networks of a program are taken and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from gpufeed.compat.paddle.fluid.compiler import CompiledProgram
from gpufeed.compat.paddle.fluid.core import Scope
from gpufeed.device import cuda_places
from gpufeed.errors import FieldError
from gpufeed.executor import Executor as PlainExecutor
from gpufeed.executor import Fetch
from gpufeed.executor import ParallelExecutor as PlainParallelExecutor
from gpufeed.places import CPUPlace, CUDAPlace, Place, PlaceLike, cpu_places
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, Variable

__all__ = ["Executor", "ParallelExecutor", "global_scope", "scope_guard"]

Feeds = Mapping[str, Any] | Sequence[Mapping[str, Any]]


_scope = Scope()


def global_scope() -> Scope:
    """Return a scope to pass on."""
    return _scope


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Do nothing: no executor here looks into a scope."""
    yield


class Executor:
    """`gpufeed.Executor` with the order of arguments of its time.

    >>> import numpy as np
    >>> from gpufeed.compat import fluid
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main):
    ...     x = fluid.data("x", [None, 2])
    >>> fluid.Executor(fluid.CPUPlace()).run(main, {"x": np.zeros((1, 2), "float32")}, [x])
    [array([[0., 0.]], dtype=float32)]

    Args:
        place: Where what is fetched lives.
    """

    def __init__(self, place: PlaceLike) -> None:
        self._executor = PlainExecutor(place)
        self._parallel = WeakKeyDictionary[CompiledProgram, PlainParallelExecutor]()

    @property
    def place(self) -> Place:
        """Where what is fetched lives."""
        return self._executor.place

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Feeds | None = None,
        fetch_list: Fetch | Sequence[Fetch] | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: object = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
    ) -> list[Any]:
        """Run a program once; see `gpufeed.Executor.run`, and `ParallelExecutor.run`.

        Raises:
            FieldError: ``feed`` is a list of more than one mapping for one place, or as there.
        """
        if isinstance(program, CompiledProgram):
            if program.is_data_parallel:
                return _fetched(self._executor_of(program), fetch_list, feed, return_numpy)
            program = program.program
        if feed is not None and not isinstance(feed, Mapping):
            if len(feed) != 1:
                raise FieldError(
                    f"Executor.run.feed must be one for its one place, got {len(feed)}; "
                    "use ParallelExecutor"
                )
            [feed] = feed
        return self._executor.run(program, feed, _listed(fetch_list), return_numpy)

    def close(self) -> None:
        """Do nothing: it told parameter servers that this trainer is gone."""

    def _executor_of(self, compiled: CompiledProgram) -> PlainParallelExecutor:
        if compiled not in self._parallel:
            places = compiled.places
            if places is None:
                places = cuda_places() if isinstance(self.place, CUDAPlace) else cpu_places()
            self._parallel[compiled] = PlainParallelExecutor(places, compiled.program)
        return self._parallel[compiled]


class ParallelExecutor:
    """`gpufeed.ParallelExecutor` over all devices, which gives what they fetch as one.

    >>> from gpufeed.compat import fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 1], "int64")
    ...     executor = fluid.ParallelExecutor(use_cuda=False)
    ...     executor.run([x.name], feed={"x": [[7], [8], [9]]})
    [array([[7],
           [8],
           [9]])]

    Args:
        use_cuda: All CUDA (or virtual) devices, or ``CPU_NUM`` times the host.
        loss_name: Not used.
        main_program: None is the default main program, when it is run.
        options: Not used: ``share_vars_from``, ``exec_strategy``, ``build_strategy``, ...
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        *options: object,
        **more_options: object,
    ) -> None:
        places = cuda_places() if use_cuda else cpu_places()
        self._executor = PlainParallelExecutor(places, main_program)

    @property
    def device_count(self) -> int:
        """How many devices there are."""
        return self._executor.device_count

    def run(
        self,
        fetch_list: Fetch | Sequence[Fetch],
        feed: Feeds | None = None,
        feed_dict: Mapping[str, Any] | None = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Run the program on every device; return what each of ``fetch_list`` was, all together.

        Args:
            fetch_list: Variables, or their names, or one of them.
            feed: One mapping, whose samples are shared over the devices, or one a device.
            feed_dict: The old name of ``feed``.
            return_numpy: Whether tensors come back as arrays, and not as `LoDTensor`.

        Raises:
            FieldError: A tensor that is fetched as an array has a LoD, and as
                `gpufeed.ParallelExecutor.run`.
            EOFException: A reader is at its end.
        """
        given = feed_dict if feed is None else feed
        return _fetched(self._executor, fetch_list, given, return_numpy)


def _fetched(
    executor: PlainParallelExecutor,
    fetch_list: Fetch | Sequence[Fetch] | None,
    feed: Feeds | None,
    return_numpy: bool,
) -> list[Any]:
    """Run on every place; return what each of ``fetch_list`` was, all together on the host."""
    wanted = _listed(fetch_list)
    feeds = executor.run(wanted, feed)
    fetched = []
    for name in (each if isinstance(each, str) else each.name for each in wanted):
        parts: list[Any] = [each[name].to(CPUPlace()) for each in feeds]
        whole = type(parts[0]).merge(parts)
        fetched.append(_as_array(name, whole) if return_numpy else whole)
    return fetched


def _listed(fetch_list: Fetch | Sequence[Fetch] | None) -> Sequence[Fetch]:
    if isinstance(fetch_list, (str, Variable)):
        return [fetch_list]
    return fetch_list or []


def _as_array(name: str, tensor: object) -> Any:
    if isinstance(tensor, LoDTensor) and not tensor.lod_level:
        return tensor.numpy()
    raise FieldError(
        f"ParallelExecutor.run.fetch_list: {name!r} has a LoD or sparse rows, and no array form; "
        "pass return_numpy=False"
    )
