"""``paddle.v2.DataFeeder``: mini-batches as the arguments of networks, by data layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpufeed.fields import FieldMap
from gpufeed.provider.converter import Argument, DataProviderConverter
from gpufeed.provider.types import InputType

__all__ = ["DataFeeder"]


class DataFeeder(DataProviderConverter):
    """Converts batches, one `gpufeed.provider.Argument` a data layer.

    >>> from gpufeed.compat.paddle import data_type
    >>> types = [("image", data_type.dense_vector(2)), ("label", data_type.integer_value(10))]
    >>> image, label = DataFeeder(types, {"image": 1, "label": 0})([(7, [0.5, 1.5])])
    >>> image.value.to_list(), label.value.to_list()
    ([[0.5, 1.5]], [[7]])

    Args:
        data_types: Name and type of each data layer.
        feeding: From name to item of a sample; None is their order. Items may be reused and left
            out.

    Raises:
        FieldError: (a ValueError) ``feeding`` does not name just these layers.
        TypeError: The second of a pair is no type.
    """

    def __init__(
        self,
        data_types: Sequence[tuple[str, InputType]],
        feeding: Mapping[str, int] | None = None,
    ) -> None:
        for name, kind in data_types:
            if not isinstance(kind, InputType):
                raise TypeError(
                    f"second item in each data_type should be an InputType, got {kind!r} of {name}"
                )
        names = [name for name, _ in data_types]
        if feeding is None:
            feeding = {name: number for number, name in enumerate(names)}
        self._fields = FieldMap(names, feeding)
        super().__init__([kind for _, kind in data_types])

    def convert(
        self, dat: Iterable[Sequence[Any]], argument: list[Argument] | None = None
    ) -> list[Argument]:
        """Convert a batch of tuples or lists; see `DataProviderConverter.convert`."""
        columns = self._fields.columns(dat)
        return super().convert(list(zip(*columns, strict=True)), argument)
