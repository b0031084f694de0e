"""Processes between two passes: who waits for the next, who ends, and what they keep."""

from __future__ import annotations

import errno
import importlib
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
from collections import Counter

import pytest
from support.processes import assert_ends

from gpufeed.pytest_plugin import _children, _open_files, _shared_memory
from gpufeed.reader import buffered, cache, firstn, isolate, multiprocess_reader, xmap_readers
from gpufeed.workers import standby
from gpufeed.workers.frames import Kind
from gpufeed.workers.payload import pack
from gpufeed.workers.pool import Pool
from gpufeed.workers.worker import MapSamples


def pids(num=4):
    for _ in range(num):
        yield os.getpid()


def pid_of(sample):
    return os.getpid()


def failing(sample):
    if sample == 3:
        raise KeyError(sample)
    return os.getpid()


def isolated():
    return isolate(pids)


def merged():
    return multiprocess_reader([pids, pids], order=True)


def mapped(mapper=pid_of):
    return xmap_readers(mapper, lambda: range(40), 2, 4, processes=True)


STAGES = pytest.mark.parametrize("make", [isolated, merged, mapped])


@STAGES
def test_the_same_processes_serve_every_pass(make):
    before, reader = _children(), make()
    files, memory = _open_files(), _shared_memory()
    num_samples = len(list(reader))
    waiting = _children() - before
    assert len(waiting) == (1 if make is isolated else 2)
    for _ in range(2):
        assert len(list(reader)) == num_samples
        assert _children() - before == waiting
    # A process and its socket is all that stays of a pass.
    assert _shared_memory() == memory
    kinds = Counter(re.split("[(:]", name)[1] for name in _open_files() - files)
    assert kinds == dict.fromkeys(["anon_inode", "socket"], len(waiting))
    next(reader())  # a pass that is left
    assert _children() == before


def test_they_end_with_the_reader():
    before, reader = _children(), firstn(isolate(pids), 10)
    list(reader)
    reader.close()
    assert _children() == before
    assert len(list(reader)) == 4
    assert _children() != before
    del reader
    assert _children() == before


@pytest.mark.parametrize("order", [False, True])
def test_a_pass_that_fails_ends_them(order):
    before = _children()
    reader = xmap_readers(failing, lambda: range(9), 2, 2, order, processes=True)
    with pytest.raises(KeyError):
        list(reader)
    assert _children() == before


def test_but_not_one_whose_errors_are_left_out():
    reader = xmap_readers(failing, lambda: range(9), 1, 2, processes=True, on_error="skip")
    assert len({*reader(), *reader()}) == 1


def test_a_pass_on_a_thread_leaves_them_to_the_next():
    reader = buffered(isolate(pids), 2)
    assert len({*reader(), *reader()}) == 1


def test_each_pass_is_told_anew_what_to_do():
    seen = []

    def label(sample):
        seen.append(sample)
        return factor[0] * sample, len(seen), os.getpid()

    factor = [1]
    reader = xmap_readers(label, lambda: range(3), 1, 4, True, processes=True)
    first = list(reader)
    factor[0] = 10
    second = list(reader)
    assert [(each[:2]) for each in first] == [(0, 1), (1, 2), (2, 3)]
    assert [(each[:2]) for each in second] == [(0, 1), (10, 2), (20, 3)]
    assert first[0][2] == second[0][2]


def test_samples_that_are_kept_stay_what_they_were():
    reader = isolate(lambda: [bytearray(100_000), bytearray(b"x" * 100_000)])
    kept = list(reader())
    list(reader()), list(reader())
    assert kept == [bytearray(100_000), b"x" * 100_000]


def test_what_the_surroundings_are_is_that_of_now(monkeypatch, tmp_path):
    def told():
        yield os.environ.get("GPUFEED_TOLD"), os.getcwd(), sys.path[0]

    reader = isolate(told)
    list(reader)
    monkeypatch.setenv("GPUFEED_TOLD", "now")
    assert next(iter(list(reader)))[0] == "now"
    monkeypatch.chdir(tmp_path)
    assert next(iter(list(reader)))[1] == str(tmp_path)


def test_those_that_are_out_of_date_end_together(monkeypatch):
    reader, end_all, ended = merged(), standby.end_all, []

    def end(processes):
        ended.append(len(processes))
        end_all(processes)

    list(reader)
    monkeypatch.setattr(standby, "end_all", end)
    monkeypatch.setenv("GPUFEED_TOLD", "now")
    list(reader)
    assert ended == [2]


@pytest.mark.parametrize("is_interactive", [True, False])
def test_a_source_that_is_edited_counts_where_a_user_expects_it(
    is_interactive, monkeypatch, tmp_path
):
    if is_interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / f"edited_{is_interactive}.py"
    source.write_text("def told():\n    yield 1")
    module = importlib.import_module(source.stem)
    reader = isolate(module.told)
    assert [*reader(), *reader()] == [1, 1]
    source.write_text("def told():\n    yield 'edited'")
    assert list(reader) == (["edited"] if is_interactive else [1])


@pytest.mark.parametrize(
    "limit", [(standby, "MAX_WAITING", 2), (resource, "getrlimit", lambda _: (32, 32))]
)
def test_readers_that_nobody_closes_keep_no_more_than_so_many(limit, monkeypatch):
    monkeypatch.setattr(*limit)
    before, readers = _children(), [isolate(pids) for _ in range(3)]
    waiting = [next(iter(set(reader()))) for reader in readers]
    assert {pid.split()[0] for pid in _children() - before} == set(map(str, waiting[1:]))


def test_a_process_that_cannot_be_started_takes_the_place_of_those_that_wait(monkeypatch):
    start, num_waiting = standby.Process, []

    def refused_while_some_wait():
        num_waiting.append(len(_children() - before))
        if num_waiting[-1]:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start()

    before, reader = _children(), isolate(pids)
    list(reader)
    monkeypatch.setattr(standby, "Process", refused_while_some_wait)
    assert len(list(isolate(pids))) == 4
    assert num_waiting == [1, 0]


def test_work_ends_even_where_a_fork_keeps_the_pipe_of_tasks_open():
    waiting, work = standby.Standby(), pack("test", MapSamples(abs, None, False), {})
    forks = []
    for number in range(2):
        with Pool("test", 1, waiting, max_entries=1, has_tasks=True) as pool:
            forks.append(os.dup(pool._tasks.records))
            pool.give_work([work])
            pool.tasks.put(number, Kind.VALUE, -7, is_last=True)
            ((_, entry, _),) = pool.receive(timeout_s=10)
            assert entry == (number, Kind.VALUE, 7)
            pool.finish()
    for fork in forks:
        os.close(fork)


def test_one_that_is_killed_meanwhile_is_replaced():
    reader = isolate(pids)
    (first,) = set(reader())
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    (second,) = set(reader())
    assert first != second


def test_two_passes_at_once_have_their_own():
    reader = isolate(pids)
    one, other = reader(), reader()
    assert next(one) != next(other)
    assert len({*one, *other}) == 2
    assert len({*reader(), *reader()}) == 1


def test_a_copy_has_none():
    before, reader = _children(), isolate(pids)
    list(reader)
    copy = pickle.loads(pickle.dumps(reader))
    del reader
    assert _children() == before
    assert copy.parameters == {"buffer_size": 64}


def test_a_cache_that_is_full_needs_none():
    before = _children()
    kept, lazy = cache(isolate(pids)), cache(isolate(pids), lazy=True)
    list(lazy)
    assert _children() == before
    assert list(kept) != list(lazy)


def test_processes_of_a_process_end_with_its_pass():
    reader = isolate(isolate(pids))
    inner, *_ = reader
    assert_ends(inner)


def test_they_end_though_a_fork_outlives_their_parent():
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            """
import os, signal
from gpufeed.reader import isolate
def pids():
    yield os.getpid()
reader = isolate(pids)
(pid,) = reader
child = os.fork()
if child == 0:
    os.close(1), os.close(2)
    signal.pause()
print(pid, child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    pid, child = map(int, done.stdout.split())
    try:
        assert_ends(pid)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("ends", ["", "os.kill(os.getpid(), 9)"], ids=["exit", "SIGKILL"])
def test_they_end_with_the_interpreter_and_a_fork_has_no_part_in_them(ends):
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",  # a fork with threads, of later Pythons
            "-c",
            f"""
import os, sys
from gpufeed import reader as rd
def pids():
    yield os.getpid()
reader = rd.isolate(pids)
(pid,) = reader
child = os.fork()
if child == 0:
    (other,) = reader
    sys.exit(other == pid)
_, status = os.waitpid(child, 0)
print(status, [pid] == list(reader), pid, flush=True)
{ends}
""",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    *said, pid = done.stdout.split()
    assert (said, done.stderr) == (["0", "True"], "")
    assert_ends(int(pid))
