"""`check=True`: rows are held against their types before training sees them.

Rows that come in lists are first fed to the host, all at once, which refuses what no variable can
take, and then looked at for what only an input type forbids. That costs as much as feeding. Only a
list that fails is gone through row by row, to find the rows that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.lod import segment_ids
from gpufeed.provider.slots import Row, Slots
from gpufeed.provider.types import DataType, InputType
from gpufeed.reader.skipping import SkipLog
from gpufeed.variables import Program

__all__ = ["Checks"]


class Checks:
    """The checks of one pass: rows that fail are left out as long as the log allows it.

    >>> from gpufeed.provider.types import integer_value
    >>> checks = Checks(Slots([integer_value(10)]), None)
    >>> checks.admits_all([(7,), (9,)]), checks.admits_all([(7,), (10,)])
    (True, False)

    Args:
        slots: What to check.
        log: Where rows that are left out are counted; None raises at the first.
    """

    def __init__(self, slots: Slots, log: SkipLog | None) -> None:
        self._slots = slots
        self._log = log
        self._num_seen = 0
        program = Program()
        program.global_block().vars.update((one.name, one) for one in slots.declared)
        self._feeder = DataFeeder(slots.declared, "cpu", program)

    def admits_all(self, rows: list[Row]) -> bool:
        """Return whether all rows are in order; if not, ask `admitted` which ones are."""
        try:
            feed = self._feeder.feed(rows)
        except FieldError:
            return False
        if not all(map(_is_in_order, self._slots.types, feed.values())):
            return False
        self._num_seen += len(rows)
        return True

    def admitted(self, rows: Iterable[Row], call: str, first: int = 0) -> Iterator[Row]:
        """Yield the rows that are in order.

        Args:
            rows: Of one file.
            call: What made them, for messages.
            first: Number of the first one in its file.

        Raises:
            FieldError: One is not, and may not be left out; names file, sample, slot and value.
        """
        for number, row in enumerate(rows, first):
            ordinal = self._num_seen
            self._num_seen += 1
            try:
                self._slots.check(row, number)
            except FieldError as error:
                located = FieldError(f"{call}: {error}")
                if self._log is None:
                    raise located from error
                self._log.skip(ordinal, located)
            else:
                yield row


def _is_in_order(kind: InputType, fed: Any) -> bool:
    """Return whether what could be fed is also what its type allows."""
    if kind.type == DataType.Index:
        return not fed.data.size or (fed.data.min() >= 0 and fed.data.max() < kind.dim)
    if kind.type == DataType.Dense:
        return True
    entries = segment_ids(fed.offsets) * np.int64(kind.size) + fed.indices
    return len(np.unique(entries)) == len(entries)
