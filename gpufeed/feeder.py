"""`DataFeeder`: mini-batches of Python samples become feeds, on one place or on many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from gpufeed.checks import whole_number
from gpufeed.collate import BatchPlan, CollatedBatch
from gpufeed.device import backend_for, cuda_places
from gpufeed.device.pool import StagingPool
from gpufeed.device.staging import Staging
from gpufeed.errors import FieldError, PlaceError
from gpufeed.feed import Feed
from gpufeed.feed_options import feed_options, grouping_options
from gpufeed.fields import FieldMap
from gpufeed.grouping import Batch, Remainder
from gpufeed.places import CPUPlace, CUDAPlace, Place, PlaceLike, as_place, cpu_places
from gpufeed.planned import CheckIndices
from gpufeed.prefetch import FeedReader
from gpufeed.static import StaticBounds, StaticSlot, static_bounds
from gpufeed.variables import Program, Variable, default_main_program
from gpufeed.warm import warm_up

__all__ = ["DataFeeder"]


class DataFeeder:
    """Builds feeds out of mini-batches and sends them to their places.

    >>> from gpufeed.variables import data, program_guard
    >>> with program_guard(Program()):
    ...     feed_list = [data("ids", [1], "int64", lod_level=1), data("label", [1], "int64")]
    ...     feeder = DataFeeder(feed_list, "cpu")
    >>> feed = feeder.feed([([7, 8], 1), ([9], 0)])
    >>> feed["ids"].data.ravel().tolist(), feed["ids"].lod(), feed["label"].shape
    ([7, 8, 9], [[0, 2, 3]], (2, 1))

    The tensors of a feed are views into a slab, which is used again once all of them are gone. A
    feed that is kept, in a list say, keeps its values.

    Args:
        feed_list: Variables, or names of variables of ``program``.
        place: Where feeds go; a list of places for many devices, in which one may repeat.
        program: That the variables belong to; None is the default main program.
        feeding: From name to column, where samples have more fields than are fed, or another order.
        strict: Refuse what the declared shape and dtype cannot keep (`gpufeed.strict` has the
            rules); False converts dense fields as the reference does (`gpufeed.loose`).
        check_indices: ``"host"`` looks at the indices of sparse fields while they are collated.
            ``"device"`` leaves that to the kernel that reads them, in the passes of
            `decorate_reader`: an index outside ``[0, dim)`` is left out of dense rows, and is an
            error of its pass. Where the consumer is a stream, so that nobody waits for the device,
            it is raised with a later step, or at the end; of a pass that is left early, the log
            has what is known by then. `feed` and `feed_parallel`, after which nobody may come to
            be told, always look on the host.

    Attributes:
        feed_names: The keys of a feed, in order.
        feed_dtypes: Their dtypes.
        feed_lod_level: Their LoD levels.
        feed_shapes: Their declared shapes, the batch dimension first.
        places: Where feeds go.

    Raises:
        FieldError: (a ValueError) ``feed_list`` is no list, a name is not in the program, a
            Variable is of another one, or two have the same name.
        TypeError: ``feed_list`` holds something else.
        PlaceError: A place is not there.

    Source: ``fluid.DataFeeder`` of PaddlePaddle 1.x.
    """

    def __init__(
        self,
        feed_list: Sequence[Variable | str],
        place: PlaceLike | Sequence[PlaceLike],
        program: Program | None = None,
        *,
        feeding: Mapping[str, int] | None = None,
        strict: bool = True,
        check_indices: CheckIndices = "host",
    ) -> None:
        self._variables = _find_variables(feed_list, program or default_main_program())
        self.feed_names = [variable.name for variable in self._variables]
        self.feed_dtypes = [variable.dtype for variable in self._variables]
        self.feed_lod_level = [variable.lod_level for variable in self._variables]
        self.feed_shapes = [variable.shape for variable in self._variables]
        self._fields = FieldMap(self.feed_names, feeding)
        self._strict = strict
        if check_indices not in ("host", "device"):
            raise FieldError(
                f"DataFeeder.check_indices must be 'host' or 'device', got {check_indices!r}"
            )
        self._check_indices = check_indices
        self._has_many_places = not isinstance(place, (Place, str))
        self.places = _as_places(place)
        self._pool = StagingPool()
        self._direct: dict[tuple[int, Place], Staging] = {}
        self._direct_lock = threading.Lock()
        warm_up(self._variables, self.places, checks_on_device=check_indices == "device")

    @property
    def place(self) -> Place:
        """Where feeds go; the first place of many."""
        return self.places[0]

    def feed(self, batch: Batch) -> Feed:
        """Return one mini-batch on this feeder's place.

        On a device the copy is asynchronous: the caller's current stream waits for it.

        Args:
            batch: An iterable of samples: tuples or lists of fields, dicts by name, or bare values
                of the one field. No sample at all is legal, and so are empty sequences.

        Raises:
            FieldError: A sample does not fit; names field, sample, expected and got.
            PlaceError: The feeder has many places; use `feed_parallel`.
        """
        if self._has_many_places:
            raise PlaceError(
                f"DataFeeder.feed needs one place, this feeder has {len(self.places)}; "
                "use feed_parallel or decorate_reader(multi_devices=True)"
            )
        return self._feed_through(self._staging, batch)

    def feed_parallel(
        self, iterable: Iterable[Batch], num_places: int | None = None
    ) -> Iterator[Feed]:
        """Yield one feed a device, one mini-batch each.

        >>> from gpufeed.variables import data, program_guard
        >>> with program_guard(Program()):
        ...     feeder = DataFeeder([data("x", [1])], "cpu")
        >>> [feed["x"].shape for feed in feeder.feed_parallel([[1, 2], [3]], num_places=2)]
        [(2, 1), (1, 1)]

        Args:
            iterable: As many mini-batches as there are places.
            num_places: How many places; None is the feeder's list of places, else every CUDA (or
                virtual) device for a `CUDAPlace`, else ``CPU_NUM`` or 1.

        Raises:
            FieldError: (a ValueError) The counts differ; at the first iteration.
        """
        batches = list(iterable)
        places = self._places(num_places)
        if len(batches) != len(places):
            raise FieldError(
                "feed_parallel takes multiple mini-batches. The number of mini-batches and of "
                f"places must be same, got {len(batches)} and {len(places)}"
            )
        for slot, (place, batch) in enumerate(zip(places, batches, strict=True)):
            yield self._feed_through(self._direct_staging(slot, place), batch)

    def decorate_reader(
        self,
        reader: Callable[[], Iterable[Batch]],
        multi_devices: bool = False,
        num_places: int | None = None,
        drop_last: bool = True,
        *,
        prefetch: int = 2,
        remainder: Remainder | None = None,
        stream: object | None = None,
        static: bool | StaticBounds = False,
        isolate: bool = False,
        max_bytes_ahead: int | None = None,
        timeout_s: float | None = None,
        stall_warning_s: float | None = 30,
        progress: bool = False,
        trace: str | None = None,
    ) -> FeedReader:
        """Return a reader of feeds over a reader of mini-batches, read and sent ahead.

        >>> from gpufeed.variables import data, program_guard
        >>> with program_guard(Program()):
        ...     feeder = DataFeeder([data("x", [1])], "cpu")
        >>> [feed["x"].shape for feed in feeder.decorate_reader(lambda: [[1, 2], [3]])()]
        [(2, 1), (1, 1)]

        Args:
            reader: Yields mini-batches, as `gpufeed.batch` does.
            multi_devices: Yield lists of feeds, one a device and one mini-batch each.
            num_places: How many devices, as for `feed_parallel`.
            drop_last: What becomes of mini-batches that do not fill all devices: True drops them,
                False raises a ValueError after the last full group. A mini-batch that is merely
                short is always fed.
            prefetch: Steps read and sent ahead by a thread; 0 does everything in the caller's.
            remainder: Overrides ``drop_last``: ``"split"`` shares the leftover samples over all
                devices, ``"partial"`` yields a shorter list.
            stream: That the feeds are used on, for many devices a list of one each; None is the
                current one at each ``next()``.
            static: Copy every batch into the same arrays, for graphs that are captured once and
                replayed: the feed is one `gpufeed.static.StaticFeed`, each step anew. Say how
                large batches get, as ``{"ids": (most sequences, most rows), "label": most rows}``;
                True is enough where all declared shapes say it. What a batch does not fill is
                zeros, and empty sequences.
            isolate: Read and collate in a process of its own, so that the loop has the GIL to
                itself. It writes into shared memory that devices copy from, or the host's feeds
                are views of. ``reader`` is pickled, as for `gpufeed.reader.isolate`.
            max_bytes_ahead: Bound on the bytes that are ready and not yet taken; one step may
                always pass.
            timeout_s: Raise `ReaderTimeout` when no feed came for so long; needs ``prefetch``.
            stall_warning_s: Log where the producer is when no feed came for so long; without
                ``prefetch`` there is nobody to watch it.
            progress: Show a progress bar.
            trace: File for a trace of where the time went, for Perfetto or chrome://tracing.

        Raises:
            FieldError: An argument is out of range.
            PlaceError: A device is not there.

        Source: ``fluid.DataFeeder.decorate_reader`` of PaddlePaddle 1.x; all after ``drop_last``
        is ours.
        """
        if self._has_many_places and not multi_devices:
            raise PlaceError(
                f"decorate_reader: the feeder has {len(self.places)} places; set multi_devices=True"
            )
        places = self._places(num_places) if multi_devices else self.places
        options = feed_options(
            len(places),
            prefetch=prefetch,
            stream=stream,
            max_bytes_ahead=max_bytes_ahead,
            timeout_s=timeout_s,
            stall_warning_s=stall_warning_s,
            progress=progress,
            trace=trace,
        )
        grouping = grouping_options(len(places), drop_last=drop_last, remainder=remainder)
        plan = self._plan
        if isolate:
            reader, plan = self._collated(reader, places, options.prefetch), self._plan_collated
        return FeedReader(
            reader,
            plan,
            places,
            grouping if multi_devices else None,
            self._pool,
            options,
            self._static_slots(static, places),
        )

    def _plan(self, batch: Batch, place: Place) -> BatchPlan:
        columns = self._fields.columns(batch)
        return self._plan_of(columns, place, strict=self._strict)

    def _plan_collated(self, batch: Batch, place: Place) -> BatchPlan:
        """Return the plan that a batch was collated by, or plan parts of such batches."""
        if isinstance(batch, CollatedBatch):
            return batch.plan
        # Columns of what travels, which has been checked.
        columns = FieldMap(self.feed_names).columns(batch)
        return self._plan_of(columns, place, strict=True)

    def _plan_of(self, columns: Sequence[Any], place: Place, *, strict: bool) -> BatchPlan:
        return BatchPlan(
            self._variables, columns, place, strict=strict, check_indices=self._check_indices
        )

    def _collated(
        self, reader: Callable[[], Iterable[Batch]], places: Sequence[Place], num_ahead: int
    ) -> Callable[[], Iterable[Batch]]:
        from gpufeed.isolation import collate_elsewhere  # which needs all that starts processes

        return collate_elsewhere(
            reader,
            self._variables,
            self._fields,
            places,
            strict=self._strict,
            check_indices=self._check_indices,
            num_ahead=num_ahead,
            page_locks=self._pool.page_locks,
        )

    def _static_slots(
        self, static: bool | StaticBounds, places: Sequence[Place]
    ) -> list[StaticSlot]:
        if static is False:
            return []
        bounds = static_bounds(self._variables, static)
        return [StaticSlot(self._variables, bounds, place) for place in places]

    def _feed_through(self, staging: Staging, batch: Batch) -> Feed:
        staging.require_no_capture(None)
        staging.recycle()
        columns = self._fields.columns(batch)
        plan = BatchPlan(self._variables, columns, staging.place, strict=self._strict)
        return staging.deliver(staging.stage(plan))

    @cached_property
    def _staging(self) -> Staging:
        return self._direct_staging(0, self.place)

    def _direct_staging(self, slot: int, place: Place) -> Staging:
        """Return the staging of a place that is fed directly; one for the feeder's life."""
        staging = self._direct.get((slot, place))
        if staging is None:
            with self._direct_lock:
                staging = self._direct.get((slot, place)) or self._pool.take(slot, place, None)
                self._direct[slot, place] = staging
        return staging

    def _places(self, num_places: int | None) -> list[Place]:
        if num_places is None:
            if self._has_many_places:
                return self.places
            return cuda_places() if isinstance(self.place, CUDAPlace) else cpu_places()
        count = whole_number("num_places", num_places, minimum=1, error=PlaceError)
        if self._has_many_places:
            if count > len(self.places):
                raise PlaceError(f"num_places must be at most {len(self.places)}, got {count}")
            return self.places[:count]
        if isinstance(self.place, CUDAPlace):
            return cuda_places(list(range(count)))
        return cpu_places(count)


def _as_places(place: PlaceLike | Sequence[PlaceLike]) -> list[Place]:
    places = [as_place(each) for each in _listed(place)]
    if not places:
        raise PlaceError("DataFeeder.place must name at least one place, got an empty list")
    for each in places:
        if isinstance(each, CUDAPlace):
            backend_for(each)  # says at once if it is not there
        elif not isinstance(each, CPUPlace):
            raise PlaceError(f"DataFeeder.place must be a CPUPlace or CUDAPlace, got {each}")
    return places


def _listed(place: PlaceLike | Iterable[PlaceLike]) -> Iterable[PlaceLike]:
    # What is no place at all is one that `as_place` refuses.
    return place if isinstance(place, Iterable) and not isinstance(place, str) else [place]


def _find_variables(feed_list: Sequence[Variable | str], program: Program) -> list[Variable]:
    if isinstance(feed_list, str) or not isinstance(feed_list, Iterable):
        raise FieldError(
            f"DataFeeder.feed_list must be a list of Variables or names, got {feed_list!r}"
        )
    block = program.global_block()
    variables = []
    for each in feed_list:
        if isinstance(each, str):
            variables.append(block.var(each))
        elif not isinstance(each, Variable):
            raise TypeError(
                f"Feed list should contain a list of variable, got {type(each).__name__}"
            )
        elif block.vars.get(each.name) is not each:
            raise FieldError(
                f"Variable {each.name!r} is not of the program of this DataFeeder; make the feeder "
                "within the same program_guard, or name the program"
            )
        else:
            variables.append(each)
    names = [variable.name for variable in variables]
    if not names or len(set(names)) != len(names):
        raise FieldError(f"DataFeeder.feed_list must name each field once, got {names}")
    return variables
