"""The arithmetic of shards, and what launchers say in the environment."""

from __future__ import annotations

import pytest

from gpufeed.errors import FieldError
from gpufeed.reader.sharding import Shard, add_world, as_shard, num_taken_by

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "mpiexec": ("PMI_RANK", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS"),
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for variables in LAUNCHERS.values():
        for variable in variables:
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(
    ("num_shards", "index", "match"),
    [
        (0, 0, r"shard.num_shards must be a whole number >= 1, got 0"),
        ("2", 0, r"shard.num_shards must be a whole number"),
        (2, -1, r"shard.index must be a whole number >= 0, got -1"),
        (2, 2, r"shard.index must be below num_shards=2, got 2"),
        (2, None, r"shard.index must be a whole number"),
    ],
)
def test_a_shard_is_one_of_several(num_shards, index, match):
    with pytest.raises(FieldError, match=match):
        Shard(num_shards, index)


def test_what_a_shard_may_be_given_as():
    assert as_shard("csv.shard", None) is None
    assert as_shard("csv.shard", (4, 3.0)) == Shard(4, 3)
    assert as_shard("csv.shard", Shard(2, 1, equal=True)) == Shard(2, 1, equal=True)


@pytest.mark.parametrize("given", ["all", 3, (1, 2, 3), {}])
def test_what_is_no_shard(given):
    with pytest.raises(FieldError, match=r"csv.shard must be \(num_shards, index\), 'auto'"):
        as_shard("csv.shard", given)


def test_without_a_launcher_there_is_one_rank():
    assert as_shard("csv.shard", "auto") == Shard(1, 0)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_says_which_rank_this_is(launcher, monkeypatch):
    rank, size = LAUNCHERS[launcher]
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(size, "8")
    assert as_shard("csv.shard", "auto") == Shard(8, 3)


def test_a_launcher_within_an_allocation_is_the_one_that_counts(monkeypatch):
    for launcher, (rank, size) in {"srun": (0, 1), "torchrun": (2, 4)}.items():
        for variable, value in zip(LAUNCHERS[launcher], (rank, size), strict=True):
            monkeypatch.setenv(variable, str(value))
    assert as_shard("csv.shard", "auto") == Shard(4, 2)


@pytest.mark.parametrize(("rank", "size"), [("0", None), (None, "4"), ("4", "4"), ("a", "4")])
def test_an_environment_that_contradicts_itself(rank, size, monkeypatch):
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(FieldError, match=r"csv.shard='auto': RANK must be a whole number below"):
        as_shard("csv.shard", "auto")


def test_worlds_add_up_in_two_entries():
    worlds = add_world((), 4, 10)
    assert add_world(worlds, 3, 0) == worlds == ((4, 10),)
    worlds = add_world(add_world(worlds, 3, 2), 2, 5)
    assert worlds == ((4, 10), (1, 16))
    assert num_taken_by(worlds) == 56


@pytest.mark.parametrize("equal", [False, True])
def test_counts_are_what_is_taken(equal):
    for num_shards in (1, 2, 3, 5):
        for num in range(12):
            for index in range(num_shards):
                shard = Shard(num_shards, index, equal)
                taken = list(shard.take(iter(range(shard.begin((), 0), num))))
                assert shard.count(num) == len(taken)
