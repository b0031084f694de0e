"""Worker processes and the scripts that start them: how scripts are written, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from support.at_once import at_once
from support.processes import assert_ends

from gpufeed.reader import isolate

# Unguarded, and everything of its own: what users write.
SCRIPT = """
import os, signal, sys, threading
from gpufeed import reader as rd

OFFSET = 10

class Sample:
    def __init__(self, number):
        self.number = number

class OwnError(Exception):
    pass

def shifted(sample):
    if sample.number == 7:
        raise OwnError(sample.number)
    return Sample(sample.number + OFFSET)

def samples():
    for number in range(9):
        yield Sample(number)

def pid_and_wait():
    yield os.getpid()
    threading.Event().wait()

def pid_or_wait(sample):
    return os.getpid() if sample == 0 else threading.Event().wait()
"""

DELIVERS = """
taken = []
try:
    for sample in rd.xmap_readers(shifted, samples, 2, 4, True, processes=True):
        taken.append(sample.number)
except OwnError as error:
    print(taken, error.args, type(error) is OwnError)
one = next(iter(rd.isolate(samples)))
print(type(one) is Sample, len(list(rd.multiprocess_reader([lambda: "ab", lambda: "c"]))))
"""
DELIVERED = "[10, 11, 12, 13, 14, 15, 16] (7,) True\nTrue 3\n"

# What a notebook kernel is to the import system: code without a file, in a module of its own
# making that is called __main__.
NOTEBOOK = """
import sys, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
for cell in ({script!r}, {delivers!r}):
    exec(compile(cell, "<ipython-input-1>", "exec"), main.__dict__)
"""


def run(arguments: list[str], source: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        input=source,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_nothing_needs_a_guard(tmp_path):
    source = SCRIPT + DELIVERS
    script, notebook = tmp_path / "unguarded.py", tmp_path / "notebook.py"
    script.write_text(source)
    notebook.write_text(NOTEBOOK.format(script=SCRIPT, delivers=DELIVERS))
    launch = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); "
    module = f"{launch}runpy.run_module('unguarded', run_name='__main__')"

    def check(*arguments):
        done = run(list(arguments), source)
        assert (done.stdout, done.stderr, done.returncode) == (DELIVERED, "", 0)

    at_once(check, [("-",), ("-c", source), ("-c", module), (script,), (notebook,)])


def test_functions_of_modules_that_cannot_be_imported_travel_by_value(tmp_path):
    (tmp_path / "loaded.py").write_text(
        "UNIT = 'm'\ndef label(sample):\n    return f'{sample} {UNIT}'"
    )
    done = run(
        [
            "-c",
            f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("loaded", {str(tmp_path / "loaded.py")!r})
module = sys.modules["loaded"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from gpufeed.reader import xmap_readers
print(list(xmap_readers(module.label, lambda: [1, 2], 1, 2, True, processes=True)))
""",
        ]
    )
    assert (done.stdout, done.stderr) == ("['1 m', '2 m']\n", "")


def test_modules_are_found_where_the_parent_finds_them(tmp_path):
    (tmp_path / "helpers.py").write_text("def double(sample):\n    return 2 * sample")
    done = run(
        [
            "-c",
            f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from gpufeed.reader import xmap_readers
from helpers import double
print(list(xmap_readers(double, lambda: [1, 2], 1, 2, True, processes=True)))
""",
        ]
    )
    assert (done.stdout, done.stderr) == ("[2, 4]\n", "")


def test_a_worker_prints_where_its_parent_does_and_reads_nothing():
    source = """
import sys
from gpufeed.reader import isolate
def samples():
    print("to stdout", repr(sys.stdin.read()), sys.argv[1:])
    print("to stderr", file=sys.stderr)
    yield 1
print(list(isolate(samples)))
"""
    done = subprocess.run(
        [sys.executable, "-c", source, "argument"],
        input="for the parent",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert sorted(done.stdout.splitlines()) == ["[1]", "to stdout '' ['argument']"]
    assert done.stderr == "to stderr\n"


PIPELINES = {
    "isolate": "rd.isolate(pid_and_wait)",
    "xmap": "rd.xmap_readers(pid_or_wait, lambda: range(9), 2, 4, True, processes=True)",
    "through a thread": "rd.buffered(rd.multiprocess_reader([pid_and_wait]), 3)",
}


def script_that(ends: str, pipeline: str) -> str:
    return f"""{SCRIPT}
stream = {PIPELINES[pipeline]}()
print(next(stream), flush=True)
{textwrap.dedent(ends)}
"""


needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's pidfd_open")


ENDS = [
    ("", 0, ""),
    ("raise KeyError('of the loop')", 1, "KeyError: 'of the loop'"),
    ("sys.exit(5)", 5, ""),
    ("stream.close()", 0, ""),
    ("signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), 15)", -15, ""),
    ("os.kill(os.getpid(), 9)", -9, ""),
]


@needs_pidfd
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_however_the_script_ends_its_workers_do(pipeline):
    def check(ends, code, last_line):
        done = run(["-c", script_that(ends, pipeline)])
        assert done.returncode == code
        lines = done.stderr.strip().splitlines()
        assert (lines[-1] if lines else "") == last_line
        assert_ends(int(done.stdout))

    at_once(check, ENDS)


@needs_pidfd
@pytest.mark.parametrize(
    "stage", ["rd.isolate({})", "rd.isolate(rd.buffered({}, 3))", "rd.isolate(rd.isolate({}))"]
)
def test_a_quiet_command_ends_with_the_worker_that_waits_for_it(stage):
    command = "rd.PipeReader(['sh', '-c', 'echo $$; exec sleep 60'])"

    def check(ends):
        done = run(
            [
                "-c",
                f"""
import os
from gpufeed import reader as rd
stream = {stage.format(command)}()
print(next(stream), flush=True)
{ends}
""",
            ]
        )
        assert done.stderr == ""
        assert_ends(int(done.stdout))

    at_once(check, [("",), ("stream.close()",), ("os.kill(os.getpid(), 9)",)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_fork_of_the_process_leaves_its_workers_alone_when_it_ends():
    def check(stage):
        done = run(
            [
                "-W",
                "ignore::DeprecationWarning",  # a fork with threads, of later Pythons
                "-c",
                f"""
import os, sys
from gpufeed import reader as rd
def samples():
    yield from range(100)
stream = {stage}()
first = next(stream)
child = os.fork()
if child == 0:
    sys.exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), [first, *stream] == list(range(100)))
""",
            ]
        )
        assert (done.stdout, done.stderr) == ("3 True\n", "")

    stages = [
        "rd.isolate(samples, buffer_size=2)",
        "rd.buffered(rd.isolate(samples, buffer_size=2), 2)",
        "rd.xmap_readers(abs, samples, 2, 4, True, processes=True)",
    ]
    at_once(check, zip(stages))


@needs_pidfd
def test_ctrl_c_is_the_parents_alone():
    """A terminal sends SIGINT to the whole process group."""
    source = script_that("next(stream)", "isolate")
    with subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        worker = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")
    assert_ends(worker)


@needs_pidfd
def test_a_worker_that_is_sent_sigint_goes_on():
    done = run(
        [
            "-c",
            """
import os, signal
from gpufeed.reader import isolate
def samples():
    os.kill(os.getpid(), signal.SIGINT)
    yield "still here"
print(*isolate(samples))
""",
        ]
    )
    assert (done.stdout, done.stderr) == ("still here\n", "")


def test_a_stall_names_the_worker_and_its_sample():
    done = run(
        [
            "-c",
            """
import logging, threading
import gpufeed as gf
logging.basicConfig(format="%(message)s")
def samples():
    yield (1.0,)
    yield (2.0,)
    threading.Event().wait(1.5)
feeder = gf.DataFeeder([gf.data("x", [1])], gf.CPUPlace())
reader = feeder.decorate_reader(gf.batch(gf.reader.isolate(samples), 1), stall_warning_s=0.3)
print(len(list(reader)))
""",
        ]
    )
    assert done.stdout == "2\n"
    assert "decorate_reader: no feed for 0.3 s" in done.stderr
    assert "isolate: worker " in done.stderr
    assert " is at sample 2" in done.stderr


def test_a_worker_has_the_parents_environment_and_changes_none():
    before = dict(os.environ)
    (worker,) = isolate(lambda: [dict(os.environ)])
    assert before.items() <= worker.items()
    assert dict(os.environ) == before
