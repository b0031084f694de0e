"""Instances: what a stateful reader of tensors reads, a tuple of `LoDTensor`, one a field.

A file format yields samples of two kinds. One is a tuple of tensors already, with its own rows and
LoD; it is compared with what was declared. The other is a row of plain fields; it goes through the
same `DataFeeder` as any mini-batch does, under the same strict rules.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpufeed.errors import FieldError, LoDError
from gpufeed.feeder import DataFeeder
from gpufeed.sparse import SparseRows
from gpufeed.strict import matches
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, Variable, data, program_guard

__all__ = [
    "Instance",
    "TensorFields",
    "batched",
    "free_rows",
    "merge_instances",
    "require_list",
    "require_tensor",
]

Instance = tuple[LoDTensor, ...]

_MOST_NAMED = 3  # files in a note
_ROWS, _VALUES = {tuple, list}, {list, tuple, np.ndarray, int, float, bool, str}


class TensorFields:
    """The declared fields of a reader, and what makes samples into instances of them.

    >>> fields = TensorFields("open_files", [[-1, 1], [-1, 2]], [1, 0], ["int64", "float32"])
    >>> ids, position = fields(([7, 8], [0.5, 1]))
    >>> ids.lod(), position.shape
    ([[0, 2]], (1, 2))

    Args:
        owner: The function that the user calls, for messages.
        shapes: Of the fields, as for `gpufeed.data`; -1 is any size.
        lod_levels: Of the fields; None is 0 for all.
        dtypes: Of the fields.
        files: That samples come from, as the user names them; what does not fit is told with them.
        strict: As for `DataFeeder`. False takes tensors as they are, too.

    Attributes:
        variables: The fields, called ``field_0``, ``field_1`` and so on.

    Raises:
        FieldError: The lists differ in length or hold no field, or one breaks a rule of
            `gpufeed.data`.
    """

    def __init__(
        self,
        owner: str,
        shapes: Sequence[Sequence[int]],
        lod_levels: Sequence[int] | None,
        dtypes: Sequence[Any],
        files: Sequence[str] = (),
        *,
        strict: bool = True,
    ) -> None:
        require_list(f"{owner}.shapes", shapes)
        lod_levels = [0] * len(shapes) if lod_levels is None else lod_levels
        for name, given in (("lod_levels", lod_levels), ("dtypes", dtypes)):
            require_list(f"{owner}.{name}", given)
            if len(given) != len(shapes):
                raise FieldError(
                    f"{owner}.{name} must be as many as shapes, {len(shapes)}, got {len(given)}"
                )
        self.owner = owner
        self._files = tuple(files)
        self._strict = strict
        self._program = Program()
        with program_guard(self._program):
            self.variables = [
                data(f"field_{number}", shape, dtype, lod_level)
                for number, (shape, dtype, lod_level) in enumerate(
                    zip(shapes, dtypes, lod_levels, strict=True)
                )
            ]
        self._merged = [free_rows(variable) for variable in self.variables]
        self._has_fixed_rows = any(variable.shape[0] != -1 for variable in self.variables)
        self._feeder: DataFeeder | None = None
        self._lock = threading.Lock()  # a feeder is for one thread, but passes may be on several

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feeder": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __call__(self, sample: Any) -> Instance:
        """Return one sample as an instance.

        Raises:
            FieldError: It does not fit; names field, expected and got.
        """
        try:
            return self._instance(sample)
        except FieldError as error:
            self._name_files(error)
            raise

    def batch(self, samples: Iterable[Any]) -> Instance:
        """Return samples as one instance: rows are fed together, tensors are merged.

        Raises:
            FieldError: A sample does not fit; names field, sample, expected and got.
        """
        try:
            if isinstance(samples, list) and samples and _as_tensors(samples[0]) is not None:
                return self._merge(samples)
            return self._feed(samples)
        except (FieldError, LoDError) as error:
            self._name_files(error)
            raise

    def _instance(self, sample: Any) -> Instance:
        tensors = _as_tensors(sample)
        if tensors is None:
            return self._feed([sample])
        self._require(tensors, self.variables)
        return tensors

    def _name_files(self, error: Exception) -> None:
        """Say in a note what is being read; which of many files it was, samples do not know."""
        if self._files:
            more = len(self._files) - _MOST_NAMED
            names = ", ".join(self._files[:_MOST_NAMED]) + f" and {more} more" * (more > 0)
            error.add_note(f"while reading {names}")

    def _merge(self, samples: list[Any]) -> Instance:
        """Merge tensors and compare the result; if it does not fit, find the sample to blame."""
        instances = samples
        # What a merged tensor does not show: how many rows each had, and where a bare one ended.
        if self._has_fixed_rows or not set(map(type, samples)) <= {tuple, list}:
            instances = [self._instance(sample) for sample in samples]
        try:
            merged = merge_instances(instances)
            self._require(merged, self._merged)
        except (FieldError, LoDError):
            for sample in samples:
                self._instance(sample)
            raise
        return merged

    def _require(self, tensors: Instance, variables: Sequence[Variable]) -> None:
        if len(tensors) != len(variables):
            raise FieldError(
                f"{self.owner}: expected {len(variables)} tensors a sample, got {len(tensors)}"
            )
        if self._strict:
            for variable, tensor in zip(variables, tensors, strict=True):
                require_tensor(self.owner, variable, tensor)

    def of_arrays(self, arrays: Iterable[Any]) -> Instance:
        """Return one array or tensor a field, taken as they are, as an instance.

        Raises:
            FieldError: One does not fit; names field, expected and got.
        """
        return self(
            tuple(each if isinstance(each, LoDTensor) else LoDTensor(each) for each in arrays)
        )

    def _feed(self, samples: Iterable[Any]) -> Instance:
        with self._lock:
            if self._feeder is None:
                # Not before it is needed: tensors that are read as they are need no collation.
                self._feeder = DataFeeder(self.variables, "cpu", self._program, strict=self._strict)
            feed: dict[str, Any] = self._feeder.feed(samples)
        return tuple(feed.values())


def batched(convert: Callable[[Any], Any] | None) -> Callable[[list[Any]], Any]:
    """Return what makes a list of samples into one item, given what makes one of each.

    >>> batched(None)(["a", "b"])
    ['a', 'b']
    """
    if isinstance(convert, TensorFields):
        return convert.batch
    return _Merged(convert)


class _Merged:
    def __init__(self, convert: Callable[[Any], Any] | None) -> None:
        self._convert = convert

    def __call__(self, samples: list[Any]) -> Any:
        items = samples if self._convert is None else [self._convert(each) for each in samples]
        return items if _as_tensors(items[0]) is None else merge_instances(items)


def merge_instances(instances: Sequence[Any]) -> Instance:
    """Return instances as one: each field's rows and sequences end to end.

    >>> a, b = LoDTensor([7, 8], [[0, 2]]), LoDTensor([9, 6, 5], [[0, 1, 3]])
    >>> merge_instances([(a,), (b,)])[0].lod()
    [[0, 2, 3, 5]]

    Raises:
        FieldError: They differ in their number of fields, or a field in dtype or item shape.
        LoDError: A field differs in its number of LoD levels.
    """
    widths = set(map(len, instances))
    if len(widths) != 1:
        got = sorted(widths)
        raise FieldError(f"merge_instances: expected equally many tensors in each, got {got}")
    return tuple(LoDTensor.merge(parts) for parts in zip(*instances, strict=True))


def require_tensor(owner: str, variable: Variable, tensor: LoDTensor | SparseRows) -> None:
    """Refuse a tensor that is not what ``variable`` declares: shape, dtype, LoD level.

    Raises:
        FieldError: Names the field, expected and got.
    """
    name = variable.name
    if not matches(tensor.shape, variable.shape):
        raise _misfit(owner, name, "shape", variable.shape, tensor.shape)
    if tensor.dtype != variable.dtype:
        raise _misfit(owner, name, "dtype", variable.dtype, tensor.dtype)
    if tensor.lod_level != variable.lod_level:
        raise _misfit(owner, name, "lod_level", variable.lod_level, tensor.lod_level)


def _misfit(owner: str, name: str, what: str, expected: object, got: object) -> FieldError:
    return FieldError(f"{owner}: field {name!r}: expected {what} {expected}, got {got}")


def free_rows(variable: Variable) -> Variable:
    """Return the variable of batches of what ``variable`` declares: any number of rows."""
    return replace(variable, shape=(-1, *variable.shape[1:]))


def _as_tensors(sample: Any) -> Instance | None:
    """Return a sample that consists of tensors as a tuple of them; None for any other."""
    if type(sample) in _ROWS and sample and type(sample[0]) in _VALUES:
        return None  # as most; an abstract class has more to say before it says no
    if isinstance(sample, LoDTensor):
        return (sample,)
    if isinstance(sample, (tuple, list)) and sample and isinstance(sample[0], LoDTensor):
        return tuple(sample)
    return None


def require_list(name: str, given: object) -> None:
    """Refuse what is no list, or an empty one, where one entry a field is wanted."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise FieldError(f"{name} must be a list of one entry a field, got {given!r}")
