"""``fluid.compiler``: programs that an executor runs on many devices.

How a network is built and scheduled is nothing here: strategies take any attribute, and change
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from gpufeed.places import PlaceLike
from gpufeed.variables import Program

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]


class BuildStrategy(SimpleNamespace):
    """How a network was built; not used."""


class ExecutionStrategy(SimpleNamespace):
    """How a network was scheduled; not used."""


class CompiledProgram:
    """A program, and the devices that `gpufeed.compat.paddle.fluid.Executor` runs it on.

    >>> from gpufeed.compat import fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 1], "int64")
    ...     main = fluid.CompiledProgram(fluid.default_main_program())
    >>> main = main.with_data_parallel(places=fluid.cpu_places(2))
    >>> fluid.Executor(fluid.CPUPlace()).run(main, [{"x": [[7]]}, {"x": [[8], [9]]}], [x])
    [array([[7],
           [8],
           [9]])]

    Args:
        program: That is run.
        build_strategy: Not used.

    Attributes:
        program: The same.
        is_data_parallel: Whether it is run on several devices.
        places: These; None is all that the executor's place has a kind of.
    """

    def __init__(self, program: Program, build_strategy: object = None) -> None:
        self.program = program
        self.is_data_parallel = False
        self.places: Sequence[PlaceLike] | None = None

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: object = None,
        exec_strategy: object = None,
        share_vars_from: object = None,
        places: Sequence[PlaceLike] | None = None,
    ) -> CompiledProgram:
        """Run on every one of ``places``; the other arguments are not used. Returns itself."""
        self.is_data_parallel = True
        self.places = places
        return self
