"""What `@provider` is told, checked in one place, and the settings that a hook may still change."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from types import SimpleNamespace
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.provider.types import CacheType, InputType
from gpufeed.reader.skipping import Skip, skip_policy

__all__ = ["DEFAULT_POOL_SIZE", "Options", "Settings", "call_hook"]

# What is shuffled at once, and read ahead, when the provider names no size of its pool. Enough for
# batches of a few hundred; all of a data set is what the reference took, and ran out of memory.
DEFAULT_POOL_SIZE = 4096

InputTypes = Sequence[InputType] | Mapping[str, InputType]

_TRUE, _FALSE = ("1", "t", "true", "on"), ("0", "f", "false", "off")


@dataclass(frozen=True)
class Options:
    """The arguments of `@provider`, which documents them.

    >>> Options(should_shuffle="off", pool_size=1000).should_shuffle
    False

    Raises:
        FieldError: An argument breaks its rule.
    """

    input_types: InputTypes | None = None
    should_shuffle: bool | int | str | None = None
    pool_size: int = -1
    min_pool_size: int = -1
    can_over_batch_size: bool = True
    calc_batch_size: Callable[[Sequence[Any]], int] | None = None
    cache: CacheType | int = CacheType.NO_CACHE
    check: bool = False
    check_fail_continue: bool | Skip = False
    max_open_files: int = 8

    def __post_init__(self) -> None:
        for name in ("should_shuffle", "can_over_batch_size", "check", "check_fail_continue"):
            object.__setattr__(self, name, _truth(name, getattr(self, name)))
        for name, zero in (("pool_size", False), ("min_pool_size", True)):
            size = whole_number(f"provider.{name}", getattr(self, name))
            if size < -1 or (size == 0 and not zero):
                least = 0 if zero else 1
                raise FieldError(f"provider.{name} must be -1 or >= {least}, got {size}")
            object.__setattr__(self, name, size)
        open_files = whole_number("provider.max_open_files", self.max_open_files, minimum=1)
        object.__setattr__(self, "max_open_files", open_files)
        if not isinstance(self.cache, int) or self.cache not in list(CacheType):
            choices = ", ".join(f"CacheType.{choice.name}" for choice in CacheType)
            raise FieldError(f"provider.cache must be one of {choices}, got {self.cache!r}")
        if self.calc_batch_size is not None and not callable(self.calc_batch_size):
            raise FieldError(
                f"provider.calc_batch_size must be a function or None, got {self.calc_batch_size!r}"
            )

    @property
    def skip_policy(self) -> Skip | None:
        """How many samples that fail `check` may be left out; None raises at the first."""
        on_error = self.check_fail_continue
        if isinstance(on_error, Skip):
            return on_error
        return skip_policy("provider.check_fail_continue", "skip" if on_error else "raise")

    @property
    def block_size(self) -> int:
        """How many samples are shuffled at once."""
        return min((size for size in self._sizes if size >= 0), default=DEFAULT_POOL_SIZE)

    @property
    def num_ahead(self) -> int:
        """How many samples may wait in batches, besides those being shuffled."""
        if self.pool_size < 0:
            return max(self.block_size, DEFAULT_POOL_SIZE)
        return self.pool_size - self.block_size

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.min_pool_size, self.pool_size


class Settings(SimpleNamespace):
    """What ``process`` and ``init_hook`` receive first: the options, and whatever the hook adds.

    Attributes:
        input_types: Of the slots; a hook that learns them from its arguments sets them here.
        logger: ``logging.getLogger("gpufeed.provider")``.
        file_list: The names that ``process`` is called with.
        is_train: Whether this provider is for training.
        input_order: Names of the slots in order, or None.

    The other `Options` are attributes too, and a hook may set those as well.
    """

    input_types: InputTypes | None
    logger: logging.Logger
    file_list: list[str]
    is_train: bool
    input_order: Sequence[str] | None

    @classmethod
    def of(
        cls,
        options: Options,
        file_list: Sequence[str],
        is_train: bool,
        input_order: Sequence[str] | None,
    ) -> Settings:
        """Return the settings of one provider, for its hook."""
        given = {field.name: getattr(options, field.name) for field in fields(Options)}
        return cls(
            **given,
            logger=logging.getLogger("gpufeed.provider"),
            file_list=list(file_list),
            is_train=is_train,
            input_order=input_order,
        )

    def options(self) -> Options:
        """Return the options as they stand now, checked again."""
        slots = vars(self).get("slots")
        if self.input_types is None and slots is not None:
            warnings.warn("settings.slots is settings.input_types", DeprecationWarning, 2)
            self.input_types = slots
        return Options(**{field.name: getattr(self, field.name) for field in fields(Options)})


def call_hook(
    hook: Callable[..., object] | None, settings: Settings, arguments: Mapping[str, Any]
) -> None:
    """Call ``init_hook`` with the user's arguments, and with those of ours that it takes.

    Raises:
        TypeError: There is no hook that could take the user's arguments, it does not take them, or
            they hold one of ours.
    """
    if hook is None:
        if arguments:
            raise TypeError(
                f"provider: arguments {', '.join(arguments)} are for an init_hook, got none"
            )
        return
    offered = {name: getattr(settings, name) for name in ("file_list", "is_train", "input_order")}
    parameters = signature(hook).parameters
    if all(parameter.kind != Parameter.VAR_KEYWORD for parameter in parameters.values()):
        offered = {name: value for name, value in offered.items() if name in parameters}
    first = [one.name for one in parameters.values() if one.kind == one.POSITIONAL_OR_KEYWORD][:1]
    twice = [name for name in (*first, *offered) if name in arguments]
    if twice:
        raise TypeError(
            f"provider: an init_hook receives {', '.join(twice)} from the provider itself; "
            f"leave it out of the arguments, which are {', '.join(arguments)}"
        )
    hook(settings, **offered, **arguments)


def _truth(name: str, given: Any) -> bool | Skip | None:
    others: dict[str, type[Any]] = {"should_shuffle": type(None), "check_fail_continue": Skip}
    if isinstance(given, (bool, others.get(name, bool))):
        return given
    word = str(given).lower() if isinstance(given, (int, str)) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    choices = ", ".join((*_TRUE, *_FALSE))
    rule = {"should_shuffle": "a bool, None", "check_fail_continue": "a bool, a gpufeed.Skip"}
    raise FieldError(
        f"provider.{name} must be {rule.get(name, 'a bool')} or any of {choices}, got {given!r}"
    )
