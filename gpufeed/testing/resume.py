"""`assert_resumes_exactly`: that a pipeline goes on, from any of its states, with what was left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

from gpufeed.checks import whole_number
from gpufeed.device.threads import close_iterator
from gpufeed.testing.compare import difference

__all__ = ["Pipeline", "assert_resumes_exactly"]


class Pipeline(Protocol):
    """What can be resumed: readers of this package, and what ``decorate_reader`` returns."""

    def __call__(self) -> Iterator[Any]:
        """Start a pass."""

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there with the next pass."""


def assert_resumes_exactly(
    make_pipeline: Callable[[], Pipeline],
    *others: Callable[[], Pipeline],
    num_samples: int | None = None,
) -> None:
    """Fail unless every state of a pipeline resumes to exactly what was left.

    >>> from gpufeed.reader import batch, shuffle
    >>> assert_resumes_exactly(lambda: batch(shuffle(lambda: range(9), 4, seed=1), 2))

    Runs a pass, takes the state in front of every sample and at the end, sends each through JSON
    into a new pipeline, and requires the rest of the pass, sample by sample as `assert_equal` has
    it, then the beginning of the next. That makes as many passes as there are samples.

    Args:
        make_pipeline: Returns a new pipeline; its samples may be anything, feeds too.
        others: Make pipelines that must be able to go on with its states: with another number of
            workers, say, or none.
        num_samples: Look at the first few of each pass only; needed where it has no end.

    Raises:
        AssertionError: A pipeline goes on with something else; says from which state.
        FieldError: ``num_samples`` is not a whole number >= 0.
        TypeError: ``make_pipeline`` makes none, as when it is the pipeline itself.
    """
    if num_samples is not None:
        num_samples = whole_number("assert_resumes_exactly.num_samples", num_samples, minimum=0)
    with _closing(_made(make_pipeline)) as pipeline:
        states, samples = [pipeline.state_dict()], []
        with _closing(pipeline()) as samples_left:
            for sample in islice(samples_left, num_samples):
                samples.append(sample)
                states.append(pipeline.state_dict())
        following = _taken(pipeline, num_samples)
    for number, state in enumerate(states):
        for which, make in enumerate((make_pipeline, *others)):
            with _closing(_made(make)) as again:
                found = _compare(again, state, samples[number:], following, num_samples)
            if found is not None:
                pipeline_name = f"others[{which - 1}]" if which else "the pipeline"
                raise AssertionError(f"{pipeline_name}, resumed before sample {number}: {found}")


def _compare(
    pipeline: Pipeline,
    state: Mapping[str, Any],
    rest: list[Any],
    following: list[Any],
    num_samples: int | None,
) -> str | None:
    """Resume a pipeline and return what differs first, if anything does."""
    pipeline.load_state_dict(json.loads(json.dumps(state)))
    loaded = pipeline.state_dict()
    if loaded != state:
        return f"its state is {loaded}, not the one that it loaded, {state}"
    # Of an endless pass, only as many as are known.
    bound = None if num_samples is None else len(rest)
    return difference(_taken(pipeline, bound), rest, "the rest") or difference(
        _taken(pipeline, num_samples), following, "the next pass"
    )


def _taken(pipeline: Pipeline, num: int | None) -> list[Any]:
    with _closing(pipeline()) as samples:
        return list(islice(samples, num))


def _made(make_pipeline: Callable[[], Pipeline]) -> Pipeline:
    # A pipeline can be called, too, and gives an iterator.
    pipeline = make_pipeline()
    if not hasattr(pipeline, "load_state_dict"):
        raise TypeError(
            "assert_resumes_exactly.make_pipeline must return a new pipeline with load_state_dict, "
            f"got {pipeline!r:.80}; make it in there: lambda: batch(...)"
        )
    return pipeline


@contextmanager
def _closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        close_iterator(thing)
