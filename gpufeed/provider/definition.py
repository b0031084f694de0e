"""`@provider`: a function that reads one file becomes a reader over many.

    process(settings, file) ─┐
    process(settings, file) ─┼─> Files ─> cache ─> shuffle ─> batch ─> buffered ─> training
    process(settings, file) ─┘ (mixed)     (kept)    (pool)           (on a thread)

Every stage but the first is a decorator of `gpufeed.reader`; nothing here shuffles, cuts batches by
number or reads ahead by itself.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import update_wrapper
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.errors import FieldError
from gpufeed.feeder import DataFeeder
from gpufeed.places import PlaceLike
from gpufeed.provider.files import FileList, Files, Process, read_file_list
from gpufeed.provider.options import InputTypes, Options, Settings, call_hook
from gpufeed.provider.sizes import batch_reaching, checked_size
from gpufeed.provider.slots import Row, Slots
from gpufeed.provider.types import CacheType, InputType
from gpufeed.reader.base import Reader
from gpufeed.reader.batch import batch
from gpufeed.reader.cache import cache as keep
from gpufeed.reader.opening import count_of
from gpufeed.reader.parallel import buffered
from gpufeed.reader.shuffle import shuffle
from gpufeed.reader.skipping import Skip
from gpufeed.variables import Program, Variable, default_main_program

__all__ = ["Provider", "ProviderFactory", "provider"]


def provider(
    input_types: InputTypes | None = None,
    should_shuffle: bool | int | str | None = None,
    pool_size: int = -1,
    min_pool_size: int = -1,
    can_over_batch_size: bool = True,
    calc_batch_size: Callable[[Row], int] | None = None,
    cache: CacheType = CacheType.NO_CACHE,
    check: bool = False,
    check_fail_continue: bool | Skip = False,
    init_hook: Callable[..., object] | None = None,
    *,
    max_open_files: int = 8,
    slots: InputTypes | None = None,
) -> Callable[[Process], ProviderFactory]:
    """Make a provider of a generator function ``process(settings, filename)``.

    >>> from gpufeed.provider import integer_value, integer_value_sequence
    >>> @provider(input_types={"ids": integer_value_sequence(100), "label": integer_value(2)})
    ... def process(settings, filename):
    ...     for number in range(3):
    ...         yield {"ids": [number] * number, "label": number % 2}
    >>> test = process(["any"], is_train=False)
    >>> for feed in test.feeder("cpu").decorate_reader(test.batches(2)):
    ...     feed["ids"].lod(), feed["label"].to_list()
    ([[0, 0, 1]], [[0], [1]])
    ([[0, 2]], [[0]])

    Args:
        input_types: The slots of a sample: a list by position, or a dict by name. None where
            ``init_hook`` sets ``settings.input_types``, which wins.
        should_shuffle: A bool, or 1, "t", "true", "on", or 0, "f", "false", "off". None shuffles
            for training and not for testing.
        pool_size: Most samples in memory, besides the batch being cut and one that waits. -1
            leaves that to ``min_pool_size``. It may be smaller than a batch.
        min_pool_size: How many samples are shuffled at once; at most ``pool_size``. -1 is all of
            ``pool_size``, or 4,096 where neither is given; a large number shuffles a whole pass.
            What ``pool_size`` leaves beside it is read ahead.
        can_over_batch_size: Whether a batch may exceed its size by ``calc_batch_size``.
        calc_batch_size: How much of a batch's size a sample takes, given its slots; None is 1.
        cache: ``CacheType.CACHE_PASS_IN_MEM`` keeps what the first full pass reads; the passes
            after it do not call ``process``, and shuffle all samples at once.
        check: Hold every sample against its types, where `DataFeeder` does not: the range of
            indices, indices given twice, and in which file it is.
        check_fail_continue: Leave samples out that fail ``check``, and log that; a `gpufeed.Skip`
            says how many at most.
        init_hook: Called as ``init_hook(settings, file_list=..., is_train=..., input_order=...,
            **args)`` for each provider that is made, with those of the first three that it takes.
        max_open_files: How many generators live at once while shuffling. Without shuffling it is
            one.
        slots: The old name of ``input_types``.

    Returns:
        A `ProviderFactory`; calling it with files makes a `Provider`.

    Raises:
        FieldError: An argument breaks its rule.
        TypeError: It is written without arguments.

    Source: ``paddle.trainer.PyDataProvider2.provider``. There the default pool held all data, a
    pool smaller than a batch hung, ``check`` let negative indices pass and refused NumPy's
    numbers, and a sample larger than a batch that must not be exceeded ended the pass.
    """
    if callable(input_types):
        raise TypeError(
            f"provider must be called before it decorates: @provider(input_types=...), "
            f"got {input_types!r}"
        )
    if init_hook is not None and not callable(init_hook):
        raise FieldError(f"provider.init_hook must be a function or None, got {init_hook!r}")
    if slots is not None:
        warnings.warn("provider: slots= is input_types=", DeprecationWarning, stacklevel=2)
        input_types = slots if input_types is None else input_types
    options = Options(
        input_types=input_types,
        should_shuffle=should_shuffle,
        pool_size=pool_size,
        min_pool_size=min_pool_size,
        can_over_batch_size=can_over_batch_size,
        calc_batch_size=calc_batch_size,
        cache=cache,
        check=check,
        check_fail_continue=check_fail_continue,
        max_open_files=max_open_files,
    )
    return lambda process: ProviderFactory(process, options, init_hook)


class ProviderFactory:
    """What `@provider` makes of a function: call it with files to get a `Provider`.

    Attributes:
        process: The function.
        options: The arguments of the decorator.
    """

    def __init__(
        self, process: Process, options: Options, init_hook: Callable[..., object] | None
    ) -> None:
        if not callable(process):
            raise TypeError(f"provider must decorate a function, got {process!r}")
        self.process = process
        self.options = options
        self._init_hook = init_hook
        update_wrapper(self, process)

    def __call__(
        self,
        file_list: FileList,
        is_train: bool = True,
        input_order: Sequence[str] | None = None,
        *,
        seed: int | None = None,
        **args: Any,
    ) -> Provider:
        """Return a provider over files.

        Args:
            file_list: Names, each one given to ``process``; or a text file with one name a line.
            is_train: Whether it is for training: what ``should_shuffle=None`` asks for.
            input_order: Names of the slots, in the order that samples have.
            seed: Makes the order of a shuffling provider a function of (seed, epoch), and so
                resumable.
            args: For ``init_hook``.

        Raises:
            FieldError: An argument breaks its rule, or ``input_types`` are missing.
            FormatError: The text file cannot be read.
            TypeError: ``args`` are not what ``init_hook`` takes.
        """
        return self.make(file_list, is_train, input_order, seed=seed, args=args)

    def make(
        self,
        file_list: FileList,
        is_train: bool,
        input_order: Sequence[str] | None,
        *,
        seed: int | None,
        args: Mapping[str, Any],
    ) -> Provider:
        """Return what a call returns, for hooks whose keywords are named as those of the call are.

        >>> from gpufeed.provider import integer_value
        >>> def hook(settings, seed):
        ...     settings.first = seed
        >>> @provider(input_types=[integer_value(10)], init_hook=hook)
        ... def process(settings, filename):
        ...     yield settings.first
        >>> list(process.make(["any"], False, None, seed=None, args={"seed": 7}))
        [(7,)]

        Args:
            file_list: As for a call, and so the next three.
            is_train: For training or not.
            input_order: Names of the slots.
            seed: Of the order, not for the hook.
            args: For ``init_hook``.

        Raises:
            FieldError: An argument breaks its rule, or ``input_types`` are missing.
            FormatError: The text file cannot be read.
            TypeError: ``args`` are not what ``init_hook`` takes.
        """
        settings = Settings.of(self.options, read_file_list(file_list), bool(is_train), input_order)
        call_hook(self._init_hook, settings, args)
        return Provider(self.process, settings, seed=seed)

    def __repr__(self) -> str:
        return f"<provider {getattr(self.process, '__qualname__', self.process)}>"


class Provider(Reader[Row]):
    """A reader of samples, each a tuple or list with one value a slot; made by a `ProviderFactory`.

    The generators run in the thread that reads; `batches` gives them one of their own.

    A provider that shuffles repeats its order, and so can be resumed, if it has a seed. Resuming
    calls ``process`` again for what was delivered: only it knows where a file's samples are.

    Attributes:
        settings: What ``process`` and ``init_hook`` receive.
        is_shuffled: Whether this provider shuffles.
    """

    def __init__(self, process: Process, settings: Settings, *, seed: int | None = None) -> None:
        self.settings = settings
        self._options = options = settings.options()
        self._slots = Slots(options.input_types, settings.input_order)
        self.is_shuffled = settings.is_train
        if isinstance(options.should_shuffle, bool):
            self.is_shuffled = options.should_shuffle
        if seed is not None:
            seed = whole_number("provider.seed", seed, minimum=0)
        self._seed = seed
        samples: Reader[Row] = Files(
            process, settings, options, self._slots, is_mixed=self.is_shuffled, seed=seed
        )
        is_kept = options.cache == CacheType.CACHE_PASS_IN_MEM
        if is_kept:
            samples = keep(samples, lazy=True)
        self._first = self._later = samples
        if self.is_shuffled:
            self._first = shuffle(samples, options.block_size, seed=seed)
            # What is in memory anyway needs no blocks, across which samples would never meet.
            self._later = shuffle(samples, sys.maxsize, seed=seed) if is_kept else self._first
        super().__init__("provider", self._first)

    def open(self, epoch: int, skip: int) -> Iterator[Row]:
        """Read pass ``epoch`` in blocks, or out of memory once a first pass may be there."""
        return (self._later if epoch else self._first).open(epoch, skip)

    def count(self) -> int | None:
        """Return how many samples a pass has, once a first one is kept in memory."""
        return count_of(self._first)

    def num_taken(self, num: int) -> int:
        """Return ``num``: a sample here is one there."""
        return num

    def unrepeatable(self) -> str | None:
        """Return that a shuffle has no seed."""
        if self.is_shuffled and self._seed is None:
            return "shuffles without a seed, so its order cannot be repeated; pass it seed="
        return None

    @property
    def input_types(self) -> tuple[InputType, ...]:
        """The types of the slots, in order."""
        return self._slots.types

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the slots, in order; None where only the program knows them."""
        return self._slots.names

    def batches(
        self, batch_size: int, *, drop_last: bool = False, prefetch: int | None = None
    ) -> Reader[list[Row]]:
        """Return a reader of mini-batches, made ahead by a thread.

        A shuffled block is read whole before its first sample comes. What waits in batches until
        then keeps training busy; with ``prefetch=0`` it has to wait, and costs a thread less.

        Args:
            batch_size: Samples a batch; where there is a ``calc_batch_size``, the sum of what it
                gives, which a batch reaches, and exceeds only if ``can_over_batch_size``.
            drop_last: Whether a last batch that does not reach its size is left out.
            prefetch: Batches that may wait; 0 makes them in the thread that reads. None is one,
                and more as far as the pool has room.

        Raises:
            FieldError: ``batch_size`` is not a whole number >= 1, or ``prefetch`` not one >= 0. On
                iteration: a sample is larger than a batch that must not be exceeded.
        """
        size = whole_number("provider.batches.batch_size", batch_size, minimum=1)
        options, calc = self._options, self._options.calc_batch_size
        batches: Reader[list[Row]]
        if calc is None:
            batches = batch(self, size, drop_last)
        elif options.can_over_batch_size:
            batches = batch_reaching(self, size, checked_size(calc), drop_last=drop_last)
        else:
            length = checked_size(calc, size)
            batches = batch(self, None, drop_last, max_tokens=size, length=length)
        if prefetch is None:
            prefetch = max(1, options.num_ahead // size)
        prefetch = whole_number("provider.batches.prefetch", prefetch, minimum=0)
        return buffered(batches, prefetch) if prefetch else batches

    def variables(self, program: Program | None = None) -> list[Variable]:
        """Return a variable for each slot, in order.

        Args:
            program: Whose variables are taken where it declares the slots; None is the default
                main program. It also names the slots that have no names, in declaration order.

        Raises:
            FieldError: The program's variables do not fit the slots.
        """
        return self._slots.variables(program or default_main_program())

    def feeder(
        self,
        place: PlaceLike | Sequence[PlaceLike],
        program: Program | None = None,
        *,
        strict: bool = True,
    ) -> DataFeeder:
        """Return a feeder for this provider's batches.

        Args:
            place: Where feeds go, or a list of places.
            program: As for `variables`.
            strict: As for `DataFeeder`.
        """
        # A program of its own: feeding declares nothing in the user's.
        own = Program()
        variables = self.variables(program)
        own.global_block().vars.update((variable.name, variable) for variable in variables)
        return DataFeeder(variables, place, own, strict=strict)
