"""Grouping: how mini-batches are dealt out over devices, and what becomes of the last ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Any, Literal, cast

from gpufeed.columnar import ColumnarBatch
from gpufeed.errors import FieldError

__all__ = ["Batch", "Remainder", "deal", "group_batches"]

Remainder = Literal["split", "partial"]
Batch = Iterable[Any]


def group_batches(
    batches: Iterable[Batch], num_places: int, *, drop_last: bool, remainder: Remainder | None
) -> Iterator[list[Batch]]:
    """Yield lists of ``num_places`` batches, one a device.

    >>> list(group_batches([[1, 2], [3, 4], [5]], 2, drop_last=True, remainder=None))
    [[[1, 2], [3, 4]]]
    >>> list(group_batches([[1, 2], [3, 4], [5]], 2, drop_last=True, remainder="split"))
    [[[1, 2], [3, 4]], [[5], []]]

    Args:
        batches: Mini-batches, of any size each.
        num_places: How many make a group.
        drop_last: Whether batches that do not fill a group are dropped, or a ValueError at the end.
        remainder: Overrides ``drop_last``: ``"split"`` shares the leftover samples over all
            devices, ``"partial"`` yields a shorter list.

    Raises:
        FieldError: (a ValueError) Batches are left over and ``drop_last`` is False.

    Source: ``DataFeeder.decorate_reader`` of PaddlePaddle 1.x; ``remainder`` is ours.
    """
    source = iter(batches)
    error: BaseException | None = None
    while error is None:
        group: list[Batch] = []
        try:
            group.extend(islice(source, num_places))
        except Exception as caught:  # noqa: BLE001 - raised below, after what was read before it
            error = caught
        if len(group) < num_places:
            break
        yield group
        del group
    if group and remainder == "partial":
        yield group
    elif group and remainder == "split":
        yield deal(_joined(group), num_places)
    elif group and not drop_last and error is None:
        raise FieldError(
            f"decorate_reader: {len(group)} batches are left over, which do not fill "
            f"{num_places} devices; drop_last=True drops them, remainder='split' shares them"
        )
    if error is not None:
        raise error


def _joined(batches: list[Batch]) -> list[Any] | ColumnarBatch:
    if all(isinstance(batch, ColumnarBatch) for batch in batches):
        return ColumnarBatch.concat(cast("list[ColumnarBatch]", batches))
    return list(chain.from_iterable(batches))


def deal(samples: list[Any] | ColumnarBatch, num_places: int) -> list[Batch]:
    """Cut samples into ``num_places`` consecutive batches whose sizes differ by one at most.

    >>> deal([1, 2, 3, 4, 5], 3)
    [[1, 2], [3, 4], [5]]
    """
    size, longer = divmod(len(samples), num_places)
    starts = [place * size + min(place, longer) for place in range(num_places + 1)]
    return [samples[start:end] for start, end in pairwise(starts)]
