"""Names of columns, as the formats that have them take them."""

from __future__ import annotations

from gpufeed.errors import FieldError

__all__ = ["check_columns"]


def check_columns(name: str, columns: object) -> None:
    """Refuse what is not None and no list of different names.

    >>> check_columns("parquet.columns", "ids")
    Traceback (most recent call last):
        ...
    gpufeed.errors.FieldError: parquet.columns must be a list of different names, got 'ids'

    Args:
        name: ``owner.argument``, for the message.
        columns: What the user gave.

    Raises:
        FieldError: It is something else.
    """
    if columns is None:
        return
    if (
        not isinstance(columns, (list, tuple))
        or not columns
        or not all(isinstance(column, str) for column in columns)
        or len(set(columns)) < len(columns)
    ):
        raise FieldError(f"{name} must be a list of different names, got {columns!r:.80}")
