"""The files of a provider: which there are, and their samples, several files open at once.

Memory: a generator keeps whatever its frame holds for as long as it lives. So at most
``max_open_files`` of them live, each begins when its turn comes, and one that has ended is dropped.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, count, repeat
from typing import Any, cast

import numpy as np

from gpufeed.device.threads import close_iterator
from gpufeed.errors import FieldError, GpufeedError
from gpufeed.formats import PathLike
from gpufeed.formats.source import Source
from gpufeed.formats.text import read_text
from gpufeed.provider.checking import Checks
from gpufeed.provider.options import Options, Settings
from gpufeed.provider.slots import Row, Slots
from gpufeed.reader.base import Reader
from gpufeed.reader.blocks import blocks
from gpufeed.reader.opening import drain

__all__ = ["FileList", "Files", "Process", "read_file_list"]

FileList = PathLike | Sequence[PathLike]
Process = Callable[[Any, str], Iterable[Any]]
Parts = Generator[Iterable[Row], None, None]

_DRAWS_A_STEP = 256
# Runs from each open file that fit into one shuffled block: enough for each block to be a mixture.
_RUNS_A_BLOCK = 4


def read_file_list(given: FileList) -> list[str]:
    """Return the names in a list, or in a text file with one name a line.

    Names are passed to ``process`` as they stand there; they need not be files. Blank lines are
    left out.

    >>> read_file_list(["a.txt", "b.txt"])
    ['a.txt', 'b.txt']

    Raises:
        FieldError: There is no name, or the list holds something else.
        FormatError: The text file is missing, empty, or not UTF-8.
    """
    if isinstance(given, (str, os.PathLike)):
        lines = map(str.strip, read_text(Source(os.fspath(given))))
        names: list[Any] = [line for line in lines if line]
    else:
        names = list(given) if isinstance(given, Iterable) else [given]
    for name in names:
        if not isinstance(name, (str, os.PathLike)):
            raise FieldError(f"provider.file_list must hold names of files, got {name!r}")
    if not names:
        raise FieldError(f"provider.file_list must name at least one file, got {given!r}")
    return [os.fspath(name) for name in names]


class Files(Reader[Row]):
    """The rows of every file: one file after the other, or mixed.

    Mixed, files begin in random order, and runs of rows are taken from a random one of those that
    are open. This only brings rows of distant places near each other; their order in training is
    made by the shuffle behind it.

    Args:
        process: Of the user; yields the samples of one file.
        settings: Its first argument, which holds the file list.
        options: How to read.
        slots: What makes rows of samples.
        is_mixed: Whether to mix.
        seed: Makes the mixture a function of (seed, epoch).
    """

    def __init__(
        self,
        process: Process,
        settings: Settings,
        options: Options,
        slots: Slots,
        *,
        is_mixed: bool,
        seed: int | None,
    ) -> None:
        self._process, self._settings = process, settings
        self._names = list(settings.file_list)
        self._options, self._slots = options, slots
        self._is_mixed, self._seed = is_mixed, seed
        self._run_length = max(
            1, options.block_size // (_RUNS_A_BLOCK * min(options.max_open_files, len(self._names)))
        )
        named: dict[str, Any] = {"names": self._names}
        if options.check:
            named["check"] = True
            if options.skip_policy is not None:
                named["on_error"] = options.skip_policy
        if is_mixed:
            named |= {"run_length": self._run_length, "max_open_files": options.max_open_files}
            named["seed"] = seed
        super().__init__("files", functions=(process,), **named)

    def open(self, epoch: int, skip: int) -> Iterator[Row]:
        """Read what is skipped: how many samples a file holds is known at its end."""
        checks = None
        if self._options.check:
            policy = self._options.skip_policy
            checks = Checks(self._slots, None if policy is None else self.start_skipping(policy))
        parts = self._mixed(epoch, checks) if self._is_mixed else self._in_order(checks)
        rows = _Joined.of(parts)
        try:
            drain(rows, skip)
        except BaseException:
            rows.close()
            raise
        return rows

    def unrepeatable(self) -> str | None:
        """Return that files are mixed without a seed."""
        if self._is_mixed and self._seed is None:
            return "mixes files without a seed; pass seed= to the provider"
        return None

    def _in_order(self, checks: Checks | None) -> Parts:
        for name in self._names:
            with closing(self._stream(name, checks)) as rows:
                yield rows

    def _mixed(self, epoch: int, checks: Checks | None) -> Parts:
        draws = _draws(self._seed, epoch)
        waiting, opened = list(self._names), list[Generator[list[Row], None, None]]()
        try:
            while waiting or opened:
                while waiting and len(opened) < self._options.max_open_files:
                    name = waiting.pop(next(draws) % len(waiting))
                    opened.append(self._runs(name, checks))
                chosen = next(draws) % len(opened)
                run = next(opened[chosen], None)
                if run is None:
                    del opened[chosen]
                else:
                    yield run
                    run.clear()  # the generator that made it sleeps now, and would keep the rows
        finally:
            with ExitStack() as stack:
                for runs in opened:
                    stack.callback(runs.close)

    def _stream(self, name: str, checks: Checks | None) -> Generator[Row, None, None]:
        """Yield the rows of one file, each as soon as it is read."""
        numbers = count()
        with self._reading(name, lambda: next(numbers)) as samples:
            rows = self._slots.rows(samples, numbers)
            yield from rows if checks is None else checks.admitted(rows, self._call(name))

    def _runs(self, name: str, checks: Checks | None) -> Generator[list[Row], None, None]:
        """Yield the rows of one file in lists, which costs half as much as one by one."""
        number = 0
        with self._reading(name, lambda: number) as samples:
            for run in blocks(samples, repeat(self._run_length)):
                first, number = number, number + len(run)
                for rows in self._row_lists(run, first):
                    if checks is None or checks.admits_all(rows):
                        yield rows
                    else:
                        admitted = checks.admitted(rows, self._call(name), first)
                        yield from self._emptying(rows, admitted)

    def _row_lists(self, run: list[Any], first: int) -> Iterator[list[Row]]:
        rows = self._slots.rows_at_once(run)
        if rows is None:
            yield from self._emptying(run, self._slots.rows(run, count(first)))
        else:
            if rows is not run:
                run.clear()
            yield rows

    def _emptying(self, run: list[Any], made: Iterator[Row]) -> Iterator[list[Row]]:
        """Yield what is made of a run, at most two lists: all, or what comes before an error."""
        for rows in blocks(made, repeat(self._run_length)):
            run.clear()  # or it would stay in memory as long as its file is open
            yield rows

    @contextmanager
    def _reading(self, name: str, num_read: Callable[[], int]) -> Iterator[Iterator[Any]]:
        """Call ``process`` for the length of a ``with``; errors that name no file get a note."""
        samples = None
        try:
            samples = iter(self._process(self._settings, name))
            yield samples
        except Exception as error:
            # What a check says names the call and its sample already.
            if not isinstance(error, GpufeedError) or self._call(name) not in str(error):
                error.add_note(f"in {self._call(name)}, which had yielded {num_read()} samples")
            raise
        finally:
            close_iterator(samples)

    def _call(self, name: str) -> str:
        return f"{getattr(self._process, '__name__', 'process')}({name!r})"


class _Joined(chain[Row]):
    """The rows of one part after the other, joined in C: a generator would cost thrice as much."""

    _parts: Parts

    @classmethod
    def of(cls, parts: Parts) -> _Joined:
        joined = cast(_Joined, cls.from_iterable(parts))
        joined._parts = parts
        return joined

    def close(self) -> None:
        self._parts.close()


def _draws(seed: int | None, epoch: int) -> Iterator[int]:
    """Yield random numbers below 2**64, the same ones in every release of NumPy."""
    # Another child than the one of `shuffle`, whose draws for this seed and epoch are its own.
    key, child = (random.getrandbits(64), 0) if seed is None else (seed, epoch)
    bits = np.random.Philox(np.random.SeedSequence(key, spawn_key=(child, 1)))
    while True:
        yield from bits.random_raw(_DRAWS_A_STEP).tolist()
