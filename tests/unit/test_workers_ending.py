"""How processes end: what is known of it, and what goes with them."""

from __future__ import annotations

import errno
import os
import re
import resource
import select
import signal
import subprocess
from contextlib import contextmanager

import pytest
from support.readers import counting

from gpufeed import reader as rd
from gpufeed.errors import ReaderError, WorkerDied
from gpufeed.workers.ending import end_session, exit_status
from gpufeed.workers.process import Process
from gpufeed.workers.segment import Segment
from gpufeed.workers.surroundings import surroundings


@pytest.fixture
def ignored_children():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9)])
def test_a_status_is_told_as_often_as_it_is_asked_for(script, status):
    process = subprocess.Popen(["sh", "-c", script])
    assert [exit_status(process), exit_status(process)] == [status, status]


def test_where_nobody_keeps_a_status_it_is_not_known(ignored_children):
    process = subprocess.Popen(["sh", "-c", "exit 3"])
    assert exit_status(process) is None
    end_session(process, unless=())


def test_a_command_that_may_have_failed_is_an_error(ignored_children):
    lines = iter(rd.PipeReader(["sh", "-c", "echo 1; exit 3"]))
    assert next(lines) == "1"
    with pytest.raises(ReaderError, match="whether it failed is not known where SIGCHLD is ignor"):
        next(lines)


def test_processes_do_without_their_status(ignored_children):
    """Commands in them do not have to: what a process ignores is no concern of its workers."""
    assert list(rd.isolate(rd.PipeReader(["echo", "1"]))) == ["1"]

    def reader():
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDied, match="how is not known where SIGCHLD is ignored, at sample 1"):
        list(rd.isolate(reader))


@contextmanager
def watched(pid):
    """Yield a poll on the end of a process that is no child."""
    fd = os.pidfd_open(pid)
    ending = select.poll()
    ending.register(fd, select.POLLIN)
    yield ending
    os.close(fd)


@pytest.mark.parametrize("fault", [lambda: os.kill(os.getpid(), 9), lambda: os._exit(3)])
def test_the_commands_of_a_worker_that_dies_die_with_it(fault):
    """Those that it had no time to end: a pipeline of a shell, which has a group of its own."""
    command = rd.PipeReader(["sh", "-c", "echo $$; sleep 100 | cat"])

    def mapper(line):
        if line is None:
            fault()
        return int(line)

    samples = iter(rd.isolate(rd.map_readers(mapper, rd.interleave(command, lambda: [None]))))
    with watched(next(samples)) as ending:
        with pytest.raises(WorkerDied):
            next(samples)
        assert ending.poll(10_000)


def test_a_session_that_has_seen_to_its_end_is_left_alone():
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 100 >&- & echo $!; exit 3"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with leader, watched(int(leader.stdout.readline())) as ending:
        end_session(leader, unless=(3,))
        assert not ending.poll(0)
        end_session(leader, unless=())
        assert ending.poll(10_000)


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("moment", ["create", "close"])
def test_an_interrupt_while_memory_is_made_or_given_up_leaves_none(moment, monkeypatch):
    act = getattr(Segment, moment)

    def interrupted(*where):
        done = act(*where)
        signal.raise_signal(signal.SIGINT)
        return done

    before, reader = descriptors(), rd.multiprocess_reader([counting(2), counting(2)])
    monkeypatch.setattr(Segment, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(reader)
    reader.close()
    assert descriptors() == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: rd.multiprocess_reader([counting(2), counting(2)]),
        lambda: rd.xmap_readers(abs, counting(4), 2, 2, processes=True),
        lambda: rd.PipeReader(["seq", "4"]),
    ],
)
def test_too_few_descriptors_are_an_error_that_says_so(make):
    assert len(list(make())) == 4  # what is imported for it needs descriptors, too
    before, (soft, hard) = descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    messages = set()
    try:
        for num in range(40):
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + num, hard))
            try:
                assert len(list(make())) == 4
                break
            except ReaderError as error:
                messages.add(str(error))
            assert descriptors() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert messages
    assert all(": [Errno 24] Too many open files" in text for text in messages)
    assert any("cannot be started" in text for text in messages)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EAGAIN, "allow more processes"),
        (errno.ENOMEM, "free some memory"),
        (errno.EPERM, ""),
    ],
)
def test_a_process_that_the_system_refuses_is_an_error_that_says_what_to_do(
    code, remedy, monkeypatch
):
    start = subprocess.Popen
    started = []

    def refuse(*args, **options):
        if started:
            raise OSError(code, os.strerror(code))
        started.append(start(*args, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ReaderError) as caught:
        list(rd.multiprocess_reader([counting(2), counting(2)]))
    told = str(caught.value)
    assert told.startswith("multiprocess_reader: its workers cannot be started: [Errno")
    assert remedy in told
    assert told.endswith(", or use fewer processes") == bool(remedy)
    assert started[0].returncode is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: rd.multiprocess_reader([counting(2), counting(2)]),
        lambda: rd.xmap_readers(abs, counting(4), 2, 2, processes=True),
    ],
)
@pytest.mark.parametrize("num_started", [1, 2])
def test_an_interrupt_while_one_worker_is_awaited_leaves_no_other_behind(
    make, num_started, monkeypatch
):
    """Ctrl-C pressed once more, and of two workers the second may not even have started."""
    list(make())
    before = descriptors()
    started, ended = [], []
    start, end = Process.__init__, Process.end

    def start_some(process):
        if len(started) == num_started:
            raise KeyboardInterrupt
        start(process)
        started.append(process)

    def end_interrupted(process, deadline):
        end(process, deadline)
        ended.append(process)
        if len(ended) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Process, "__init__", start_some)
    monkeypatch.setattr(Process, "end", end_interrupted)
    with pytest.raises(KeyboardInterrupt), make() as reader:
        list(reader)
    assert descriptors() == before
    assert len(ended) == num_started
    assert not any(process.is_usable(surroundings()) for process in started)


@pytest.mark.parametrize(
    "make",
    [lambda: rd.multiprocess_reader([counting(2)] * 2), lambda: rd.PipeReader(["sleep", "60"])],
    ids=["multiprocess_reader", "PipeReader"],
)
def test_an_interrupt_while_a_process_is_started_leaves_none_behind(make, monkeypatch):
    """Ctrl-C pressed where nobody knows yet which process it is."""
    fork, started, before = subprocess._fork_exec, [], descriptors()

    def fork_and_press(*args):
        started.append(fork(*args))
        signal.raise_signal(signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(subprocess, "_fork_exec", fork_and_press)
    with pytest.raises(KeyboardInterrupt):
        list(make())
    assert descriptors() == before
    for pid in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_a_worker_without_descriptors_says_so_in_one_line(capfd):
    def samples():
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        yield "not sent"

    with pytest.raises(WorkerDied, match="exited with status 1"):
        list(rd.isolate(samples))
    (line,) = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"worker \d+ ends: .*Too many open files; let this process open .*", line)
