"""Laws of shards: they partition a pass, and whatever number of ranks goes on, nothing is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.readers import counting

from gpufeed import creator
from gpufeed import reader as rd
from gpufeed.formats import register
from gpufeed.reader import Reader, Shard

Make = Callable[[Shard], Reader[Any]]


class Seekable:
    """Samples of one file that can be counted, and begun anywhere."""

    def __init__(self, source: Any) -> None:
        self._samples = [f"{source.path}:{line}" for line in Path(source.path).read_text().split()]

    def count(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Any:
        return self.tail(0)

    def tail(self, skip: int) -> Any:
        return iter(self._samples[skip:])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[int]], list[str]]:
    """Write files of so many lines each, once for every length."""
    folder = tmp_path_factory.mktemp("shards")
    register("seekable", Seekable)

    def write(lengths: list[int]) -> list[str]:
        paths = []
        for number, length in enumerate(lengths):
            path = folder / f"{number}-{length}"
            path.write_text("".join(f"{number}.{line}\n" for line in range(length)))
            paths.append(str(path))
        return paths

    return write


num_ranks = st.integers(1, 5)


def makers(num: int) -> st.SearchStrategy[Make]:
    """Pipelines over ``num`` samples that tell how many of them they took."""
    return st.sampled_from(
        [
            lambda s: rd.shard(counting(num), s.num_shards, s.index, equal=s.equal),
            lambda s: creator.np_array(np.arange(num), shard=s),
            lambda s: rd.map_readers(int, rd.shard(counting(num), s.num_shards, s.index)),
            lambda s: rd.shard(
                rd.shuffle(counting(num), 7, seed=1), s.num_shards, s.index, equal=s.equal
            ),
        ]
    )


@given(st.data(), st.integers(0, 40), num_ranks, st.integers(0, 2))
def test_shards_partition_a_pass(data, num, world_size, epoch):
    make = data.draw(makers(num))
    parts = []
    for index in range(world_size):
        reader = make(Shard(world_size, index))
        reader.set_epoch(epoch)
        parts.append(list(reader))
    assert sorted(map(int, chain.from_iterable(parts))) == list(range(num))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(0, 40), num_ranks, st.integers(1, 4), st.booleans())
def test_equal_shards_have_equally_many_batches(num, world_size, batch_size, drop_last):
    parts = [
        list(
            rd.batch(
                rd.shard(counting(num), world_size, index, equal=True),
                batch_size,
                drop_last,
            )
        )
        for index in range(world_size)
    ]
    assert len(set(map(len, parts))) == 1
    whole = num - num % world_size
    if not drop_last:
        assert sorted(n for part in parts for each in part for n in each) == list(range(whole))


def go_on(make: Make, worlds: list[tuple[int, int]], batch_size: int) -> Counter[Any]:
    """Deliver a pass with one number of ranks after the other; the last one to the end.

    Each world is a number of ranks and how many batches each of them takes before the next.
    """
    delivered: Counter[Any] = Counter()
    state = None
    for turn, (world_size, num_batches) in enumerate(worlds):
        is_last = turn == len(worlds) - 1
        for index in range(world_size):
            reader = rd.batch(rd.buffered(make(Shard(world_size, index)), 2), batch_size)
            if state is not None:
                reader.load_state_dict(json.loads(json.dumps(state)))
            batches = reader()
            for batch in batches if is_last else islice(batches, num_batches):
                delivered.update(map(str, batch))
            if index == 0:
                # Rank 0 has no fewer batches than others: it saves for all.
                next_state = reader.state_dict()
            batches.close()
        state = next_state
        assert len(json.dumps(state)) < 1024
    return delivered


worlds = st.lists(st.tuples(num_ranks, st.integers(0, 4)), min_size=1, max_size=5)


@given(st.data(), st.integers(0, 60), worlds, st.integers(1, 3))
def test_whoever_goes_on_each_sample_is_delivered_once(data, num, worlds, batch_size):
    make = data.draw(makers(num))
    assert go_on(make, worlds, batch_size) == Counter(map(str, range(num)))


@given(st.integers(1, 6), st.integers(1, 9), worlds, st.integers(1, 3), st.booleans())
def test_whoever_goes_on_each_line_of_files_is_delivered_once(
    files, num_files, length, worlds, batch_size, is_seekable
):
    # Of equal files, so that no rank ends before rank 0, which saves.
    tag = "seekable" if is_seekable else "text"
    paths = [f"{tag}:{path}" for path in files([length] * num_files)]
    everything = Counter(creator.open(paths))
    assert len(everything) == num_files * length
    assert go_on(lambda shard: creator.open(paths, shard=shard), worlds, batch_size) == everything


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), num_ranks, st.booleans())
def test_shards_of_files_partition_them(files, lengths, world_size, equal):
    paths = [f"seekable:{path}" for path in files(lengths)]
    readers = [
        creator.open(paths, shard=Shard(world_size, index, equal)) for index in range(world_size)
    ]
    parts = [list(reader) for reader in readers]
    everything = list(creator.open(paths))
    if equal:
        assert len(set(map(len, parts))) == 1
        everything = everything[: len(everything) - len(everything) % world_size]
    assert Counter(chain.from_iterable(parts)) == Counter(everything)
    for reader, part in zip(readers, parts, strict=True):
        for skip in range(len(part) + 2):
            assert list(reader.open(0, skip)) == part[skip:]
