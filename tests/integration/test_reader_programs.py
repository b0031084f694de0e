"""The training loops of the design of C++ readers, as Python loops around `Executor.run`.

A linear model learns from files; what it has learned shows that every sample came once a pass.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gpufeed import layers
from gpufeed.device import virtual_devices
from gpufeed.errors import EOFException
from gpufeed.executor import Executor, ParallelExecutor
from gpufeed.variables import Program, program_guard

NUM_FILES, NUM_ROWS, BATCH_SIZE, NUM_PASSES = 3, 20, 8, 4
NUM_SAMPLES = NUM_FILES * NUM_ROWS


@pytest.fixture(params=["cpu", "cuda:0"])
def place(request):
    with virtual_devices(1):
        yield request.param


@pytest.fixture
def files(tmp_path):
    """Files of samples ``x, 3 x - 1, ordinal``."""
    rng = np.random.default_rng(0)
    for number in range(NUM_FILES):
        rows = ["x,y,ordinal"]
        for row in range(NUM_ROWS):
            x = rng.uniform(-1, 1)
            rows.append(f"{x},{3 * x - 1},{number * NUM_ROWS + row}")
        (tmp_path / f"part-{number}.csv").write_text("\n".join(rows))
    return f"{tmp_path}/part-*.csv"


class Line:
    """``y = a x + b``, learned by gradient descent."""

    def __init__(self):
        self.a = self.b = 0.0
        self.seen = Counter()

    def step(self, x, y, ordinal):
        error = self.a * x + self.b - y
        self.a -= 0.5 * float((error * x).mean())
        self.b -= 0.5 * float(error.mean())
        self.seen.update(ordinal.ravel().tolist())

    def assert_learned(self, num_passes):
        assert self.seen == dict.fromkeys(range(NUM_SAMPLES), num_passes)
        assert abs(self.a - 3) < 0.5
        assert abs(self.b + 1) < 0.2


def record(files, pass_num=None, batch_size=BATCH_SIZE):
    """The operators of both of the document's programs: a reader, and its three fields."""
    reader = layers.open_files(
        files, [[1], [1], [1]], [0, 0, 0], ["float32", "float32", "int64"], thread_num=2
    )
    reader = layers.shuffle(reader, buffer_size=16)
    reader = layers.batch(reader, batch_size)
    if pass_num is not None:
        reader = layers.multi_pass(reader, pass_num)
    reader = layers.double_buffer(reader)
    return reader, layers.read_file(reader)


def test_has_next_and_reset(files, place):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader, fields = record(files)
        more, again = layers.has_next(reader), layers.reset(reader)

    executor, line = Executor(place), Line()
    executor.run(startup)
    for _ in range(NUM_PASSES):
        while executor.run(main, fetch_list=[more])[0]:
            line.step(*executor.run(main, fetch_list=fields))
        executor.run(main, fetch_list=[again])
    line.assert_learned(NUM_PASSES)


def test_multi_pass(files, place):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader, fields = record(files, pass_num=NUM_PASSES)
        more = layers.has_next(reader)

    executor, line = Executor(place), Line()
    executor.run(startup)
    not_completed = True
    while not_completed:
        *batch, not_completed = executor.run(main, fetch_list=[*fields, more])
        line.step(*batch)
    line.assert_learned(NUM_PASSES)
    with pytest.raises(EOFException):
        executor.run(main, fetch_list=fields)


def test_until_the_exception_at_the_end(files, place):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader, fields = record(files)

    executor, line = Executor(place), Line()
    executor.run(startup)
    for _ in range(NUM_PASSES):
        try:
            while True:
                line.step(*executor.run(main, fetch_list=fields))
        except EOFException:
            reader.reset()
    line.assert_learned(NUM_PASSES)


def test_a_reset_in_the_middle_of_a_pass(files, place):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader, fields = record(files)

    executor, line = Executor(place), Line()
    executor.run(startup)
    for num_steps in (0, 1, 3):
        for _ in range(num_steps):
            executor.run(main, fetch_list=fields)
        reader.reset()
        reader.reset()
    for _ in range(NUM_PASSES):
        while reader.has_next():
            line.step(*executor.run(main, fetch_list=fields))
        reader.reset()
    line.assert_learned(NUM_PASSES)


def test_many_places(files):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader, fields = record(files, batch_size=4)

    line = Line()
    with virtual_devices(2):
        Executor("cpu").run(startup)
        executor = ParallelExecutor(["cuda:0", "cuda:1"], main)
        for _ in range(NUM_PASSES):
            while reader.has_next():
                for feed in executor.run(fields):
                    line.step(*(tensor.numpy() for tensor in feed.values()))
            reader.reset()
    line.assert_learned(NUM_PASSES)


def test_a_python_reader(place):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader = layers.py_reader(2, [[1], [1], [1]], ["float32", "float32", "int64"])
        fields = layers.read_file(reader)

    rng = np.random.default_rng(0)
    xs = rng.uniform(-1, 1, NUM_SAMPLES)
    samples = [(x, 3 * x - 1, ordinal) for ordinal, x in enumerate(xs)]
    batches = [samples[begin : begin + 8] for begin in range(0, NUM_SAMPLES, 8)]
    reader.decorate_paddle_reader(lambda: batches)

    executor, line = Executor(place), Line()
    executor.run(startup)
    for _ in range(NUM_PASSES):
        reader.start()
        try:
            while True:
                line.step(*executor.run(main, fetch_list=fields))
        except EOFException:
            reader.reset()
    line.assert_learned(NUM_PASSES)
