"""Laws of all readers: stages mean what the same things mean for lists.

A pipeline is drawn as a list of stages; each stage is a pair of the decorator and the same thing
done to a list. That states resume exactly stands in ``test_resume_laws``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.pipelines import Stage, choosy, chosen, tagged
from support.readers import counting

from gpufeed import reader as rd

small = st.integers(1, 7)

# What comes next to the decorator is its meaning for a list of samples.
listed: st.SearchStrategy[tuple[Stage, Callable[[list[Any]], list[Any]]]] = st.one_of(
    st.just((lambda r: rd.map_readers(tagged, r), lambda s: [tagged(x) for x in s])),
    st.just((lambda r: rd.filter(chosen, r), lambda s: [x for x in s if chosen(x)])),
    st.just(
        (lambda r: rd.take_while(chosen, r), lambda s: list(itertools.takewhile(chosen, s))),
    ),
    small.map(lambda n: (lambda r: rd.buffered(r, n), lambda s: s)),
    small.map(lambda n: (lambda r: rd.firstn(r, n * 3), lambda s: s[: n * 3])),
    small.map(lambda n: (lambda r: rd.skip(r, n), lambda s: s[n:])),
    small.map(
        lambda n: (
            lambda r: rd.batch(r, n),
            lambda s: [s[at : at + n] for at in range(0, len(s), n)],
        )
    ),
    small.map(
        lambda n: (
            lambda r: rd.batch(r, n, drop_last=True),
            lambda s: [s[at : at + n] for at in range(0, len(s) - n + 1, n)],
        )
    ),
    small.map(
        lambda n: (
            lambda r: rd.xmap_readers(tagged, r, 2, n, order=True),
            lambda s: [tagged(x) for x in s],
        )
    ),
    st.just((lambda r: rd.cache(r), lambda s: s)),
    st.just((lambda r: rd.cache(r, lazy=True), lambda s: s)),
    st.integers(0, 3).map(lambda n: (lambda r: rd.repeat(r, n), lambda s: s * n)),
    st.integers(0, 2).map(lambda n: (lambda r: rd.shard(r, 3, n), lambda s: s[n::3])),
    st.integers(0, 2).map(
        lambda n: (
            lambda r: rd.shard(r, 3, n, equal=True),
            lambda s: s[n : len(s) - len(s) % 3 : 3],
        )
    ),
    st.just(
        (
            lambda r: rd.interleave(r, counting(4)),
            lambda s: [
                *(x for pair in zip(s, range(4), strict=False) for x in pair),
                *s[4:],
                *range(len(s), 4),
            ],
        )
    ),
    small.map(
        lambda n: (
            lambda r: rd.replay(rd.chain(counting(1), r), n, num_samples=9),
            lambda s: [[0, *s][at % min(n, len(s) + 1)] for at in range(9)],
        )
    ),
    st.just(
        (
            lambda r: rd.map_readers(choosy, r, on_error="skip"),
            lambda s: [x for x in s if chosen(x)],
        )
    ),
    st.just((lambda r: rd.chain(r, counting(4)), lambda s: [*s, 0, 1, 2, 3])),
    st.just(
        (
            lambda r: rd.compose(lambda: map(str, range(20)), r, check_alignment=False),
            lambda s: [
                (str(n), *(x if isinstance(x, tuple) else (x,))) for n, x in enumerate(s[:20])
            ],
        )
    ),
)
lengths = st.integers(0, 25)


def build(stages: list[Stage], num: int) -> Any:
    reader: Any = counting(num)
    for stage in stages:
        reader = stage(reader)
    return reader


@given(st.lists(listed, max_size=4), lengths)
def test_a_pipeline_means_what_its_stages_mean_for_lists(stages, num):
    samples = list(range(num))
    for _, meaning in stages:
        samples = meaning(samples)
    reader = build([stage for stage, _ in stages], num)
    assert list(reader()) == samples
    assert list(reader()) == samples


@given(lengths, small, st.integers(0, 9))
def test_shuffle_permutes_within_blocks(num, buf_size, seed):
    samples = list(rd.shuffle(counting(num), buf_size, seed=seed))
    for at in range(0, num, buf_size):
        assert sorted(samples[at : at + buf_size]) == list(range(num))[at : at + buf_size]


@given(lengths, lengths)
def test_compose_pairs_then_complains(first, second):
    reader = rd.compose(counting(first), counting(second))
    paired = []
    try:
        for row in reader:
            paired.append(row)  # noqa: PERF402 - what came before the error is wanted
    except rd.ComposeNotAligned:
        assert first != second
    else:
        assert first == second
    assert paired == [(n, n) for n in range(min(first, second))]
