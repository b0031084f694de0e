"""``paddle.layer``: data layers. There are no others here."""

from __future__ import annotations

from gpufeed.errors import FieldError
from gpufeed.provider.types import InputType
from gpufeed.variables import Variable
from gpufeed.variables import data as declare

__all__ = ["data"]


def data(
    name: str,
    type: InputType,  # noqa: A002 - the reference's name
    height: int | None = None,
    width: int | None = None,
    layer_attr: object = None,
) -> Variable:
    """Declare an input of the default main program by its `gpufeed.compat.paddle.data_type`.

    >>> from gpufeed.compat.paddle import data_type, fluid
    >>> with fluid.program_guard(fluid.Program()):
    ...     data("words", data_type.integer_value_sequence(5000)).lod_level
    1

    ``height``, ``width`` and ``layer_attr`` were for the layers above it, and change nothing.

    Raises:
        FieldError: ``type`` is no input type, or ``name`` is declared already as something else.
    """
    if not isinstance(type, InputType):
        raise FieldError(f"layer.data.type must be a paddle.data_type, got {type!r}")
    variable = type.variable(name)
    return declare(
        name,
        variable.shape,
        variable.dtype,
        variable.lod_level,
        layout=variable.layout,
        append_batch_size=False,
    )
