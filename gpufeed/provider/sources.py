"""`define_py_data_sources2`: the line of a training configuration that names its providers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from gpufeed.errors import FieldError
from gpufeed.provider.definition import Provider, ProviderFactory
from gpufeed.provider.files import FileList

__all__ = ["define_py_data_sources2"]


def define_py_data_sources2(
    train_list: FileList | None,
    test_list: FileList | None,
    module: str | ModuleType | Sequence[str | ModuleType],
    obj: str | Sequence[str],
    args: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    *,
    input_order: Sequence[str] | None = None,
    seed: int | None = None,
) -> tuple[Provider | None, Provider | None]:
    """Return the providers for training and for testing that a module defines.

    >>> from gpufeed.provider import integer_value, provider
    >>> config = ModuleType("config")  # in real life, a file of that name
    >>> @provider(input_types=[integer_value(10)])
    ... def process(settings, filename):
    ...     yield int(filename)
    >>> config.process = process
    >>> train, test = define_py_data_sources2(["1", "2"], ["3"], config, "process")
    >>> sorted(train), list(test)
    ([(1,), (2,)], [(3,)])

    ``module``, ``obj`` and ``args`` may be pairs, first for training and then for testing.

    Args:
        train_list: A text file with one name a line, or a list of names; None for no training.
        test_list: The same for testing.
        module: Name of the module, which is imported, or the module itself.
        obj: Name of the function that `@provider` decorates.
        args: Keywords for its ``init_hook``, ``"seed"`` among them if it takes one.
        input_order: Names of the slots, in the order that samples have.
        seed: Makes the order of shuffled samples repeatable; no hook receives it.

    Raises:
        FieldError: Both lists are None, ``obj`` names no provider, or ``args`` hold something else.
        ImportError: There is no such module.
        TypeError: ``args`` are not what the ``init_hook`` takes.

    Source: ``paddle.trainer_config_helpers.define_py_data_sources2``, which told a trainer.
    """
    if train_list is None and test_list is None:
        raise FieldError("define_py_data_sources2 needs a train_list or a test_list, got neither")
    providers: list[Provider | None] = []
    for at, file_list in enumerate((train_list, test_list)):
        if file_list is None:
            providers.append(None)
            continue
        found = _find(_one_of(module, at), _one_of(obj, at))
        arguments = _one_of(args, at)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise FieldError(
                f"define_py_data_sources2.args must map keywords to values, got {arguments!r}"
            )
        providers.append(found.make(file_list, at == 0, input_order, seed=seed, args=arguments))
    train, test = providers
    return train, test


def _one_of(given: Any, at: int) -> Any:
    """Return what holds for training (0) or testing (1), of one for both or a pair."""
    if not isinstance(given, (tuple, list)):
        return given
    if len(given) != 2:
        raise FieldError(
            "define_py_data_sources2: a pair must have one for training and one for testing, "
            f"got {given!r}"
        )
    return given[at]


def _find(module: str | ModuleType, name: str) -> ProviderFactory:
    where = importlib.import_module(module) if isinstance(module, str) else module
    if not isinstance(where, ModuleType):
        raise FieldError(
            f"define_py_data_sources2.module must be a module or its name, got {where!r:.80}"
        )
    found = getattr(where, name, None) if isinstance(name, str) else None
    if not isinstance(found, ProviderFactory):
        raise FieldError(
            f"define_py_data_sources2.obj must name what @provider decorates in {where.__name__}, "
            f"got {name!r}, which is {found!r:.80}"
        )
    return found
