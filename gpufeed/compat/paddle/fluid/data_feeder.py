"""``fluid.DataFeeder``: converts what it is given, where `gpufeed.DataFeeder` refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gpufeed.columnar import Column
from gpufeed.feeder import DataFeeder as StrictFeeder
from gpufeed.fields import FieldMap
from gpufeed.places import PlaceLike
from gpufeed.variables import Program, Variable

__all__ = ["DataFeeder"]


class DataFeeder(StrictFeeder):
    """`gpufeed.DataFeeder` with ``strict=False``.

    >>> from gpufeed.compat import fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     x = fluid.data("x", [None, 1], "int64")
    ...     feeder = DataFeeder([x], fluid.CPUPlace())
    >>> feeder.feed([(1.9,), ("3",)])["x"].to_list()
    [[1], [3]]

    Floats are cut to integers, integers wrap, and the declared shape is used only where its rank is
    another (`gpufeed.loose` has the rules). A sample that is an array is a row of fields, unless
    there is but one.

    Args:
        feed_list: Variables, or names of variables of ``program``.
        place: Where feeds go, or a list of places.
        program: That the variables belong to; None is the default main program.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str],
        place: PlaceLike | Sequence[PlaceLike],
        program: Program | None = None,
    ) -> None:
        super().__init__(feed_list, place, program, strict=False)
        if len(self.feed_names) > 1:
            self._fields = _ArraysAreRows(self.feed_names)


class _ArraysAreRows(FieldMap):
    def columns(self, batch: Iterable[Any]) -> Sequence[Sequence[Any] | Column]:
        if isinstance(batch, np.ndarray):
            batch = list(batch)
        if isinstance(batch, list) and batch and isinstance(batch[0], np.ndarray):
            batch = list(map(tuple, batch))
        return super().columns(batch)
