"""Executors: what a run does, hands out and refuses, and that it never loses what it read."""

from __future__ import annotations

import numpy as np
import pytest
from support.readers import BrokenError, counting

import gpufeed.reader as rd
from gpufeed import layers
from gpufeed.device import virtual_devices
from gpufeed.errors import EOFException, FieldError, PlaceError, ReaderError
from gpufeed.executor import Executor, ParallelExecutor
from gpufeed.feeder import DataFeeder
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard


@pytest.fixture
def programs():
    main, startup = Program(), Program()
    with program_guard(main, startup):
        yield main, startup
    # pytest keeps the programs until after it has looked for threads that are left.
    for reader in main.global_block().readers.values():
        reader._reader.close()


def started(startup, source=None, *, num=6, lod_level=0):
    """A started reader of 0, 1, ... in mini-batches of 2, and the variable that reads it."""
    reader = layers.py_reader(2, [[-1]], ["int64"], [lod_level])
    reader.decorate_paddle_reader(source or rd.batch(counting(num), 2))
    x = layers.read_file(reader)
    Executor("cpu").run(startup)
    reader.start()
    return reader, x


def numbers(fetched):
    return [array.tolist() for array in fetched]


def test_reading_to_the_end(programs):
    reader, x = started(programs[1])
    executor = Executor("cpu")
    for _ in range(2):
        for expected in ([0, 1], [2, 3], [4, 5]):
            (array,) = executor.run(programs[0], fetch_list=[x])
            assert isinstance(array, np.ndarray)
            assert array.tolist() == expected
        for _ in range(2):
            with pytest.raises(EOFException, match=r"There is no next data\."):
                executor.run(programs[0], fetch_list=[x])
        reader.reset()
        reader.start()


def test_the_default_main_program_and_names(programs):
    _, x = started(programs[1])
    assert numbers(Executor("cpu").run(fetch_list=[x.name, x])) == [[0, 1], [0, 1]]


def test_a_run_does_what_its_fetch_list_needs(programs):
    reader, x = started(programs[1])
    more, again = layers.has_next(reader), layers.reset(reader)
    executor = Executor("cpu")
    assert executor.run(programs[0], fetch_list=[more, more]) == [True, True]
    array, has_more = executor.run(programs[0], fetch_list=[x, more])
    assert (array.tolist(), has_more) == ([0, 1], True)
    executor.run(programs[0], fetch_list=[x])
    array, has_more = executor.run(programs[0], fetch_list=[x, more])
    assert (array.tolist(), has_more) == ([4, 5], False)
    assert executor.run(programs[0], fetch_list=[again], return_numpy=False) == [True]
    with pytest.raises(ReaderError, match="call start"):
        executor.run(programs[0], fetch_list=[more])


@pytest.mark.parametrize("fetch_list", [None, [], ()])
def test_a_loop_that_fetches_nothing_ends(programs, fetch_list):
    started(programs[1])
    executor = Executor("cpu")
    for _ in range(3):
        assert executor.run(fetch_list=fetch_list) == []
    with pytest.raises(EOFException):
        executor.run(fetch_list=fetch_list)


def test_a_run_follows_what_it_is_given_from_one_to_the_next(programs):
    reader, x = started(programs[1], num=20)
    more = layers.has_next(reader)
    data("y", [1], "int64")
    executor = Executor("cpu")
    for _ in range(2):
        (array,) = executor.run(programs[0], fetch_list=[x])
        assert executor.run(programs[0], fetch_list=(more,)) == [True]
        assert executor.run(programs[0]) == []
        assert numbers(executor.run(programs[0], feed={"y": [[3]]}, fetch_list=["y"])) == [[[3]]]
        with pytest.raises(FieldError, match="feed must hold 'y'"):
            executor.run(programs[0], fetch_list=["y"])
        assert executor.run(programs[0], fetch_list=[x, more])[1]
        with program_guard(Program()):
            layers.read_file(reader)
        again = layers.has_next(reader)
        assert executor.run(programs[0], fetch_list=[again]) == [True]
    assert array.tolist() == [6, 7]


def test_a_run_without_a_fetch_list_does_all(programs):
    _, x = started(programs[1])
    executor = Executor("cpu")
    assert executor.run(programs[0]) == []
    assert numbers(executor.run(programs[0], fetch_list=[x])) == [[2, 3]]


def test_operators_run_in_the_order_of_their_recording(programs, tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    reader = layers.open_files(str(tmp_path / "a.csv"), [[-1]], [0], ["int64"])
    again = layers.reset(reader)
    x = layers.read_file(reader)
    Executor("cpu").run(programs[1])
    for _ in range(4):
        assert numbers(Executor("cpu").run(fetch_list=[x, again])[:1]) == [[1]]


def test_tensors_with_a_lod(programs):
    _, x = started(programs[1], lambda: [[([7, 8],), ([],)]], lod_level=1)
    with pytest.raises(FieldError, match="has a LoD or sparse rows, and no array form; pass"):
        Executor("cpu").run(fetch_list=[x])
    (tensor,) = Executor("cpu").run(fetch_list=[x], return_numpy=False)
    assert (tensor.to_list(), tensor.place) == ([[7, 8], []], CPUPlace())


def test_a_place(programs):
    with virtual_devices(2):
        _, x = started(programs[1])
        executor = Executor("cuda:1")
        (tensor,) = executor.run(fetch_list=[x], return_numpy=False)
        assert (tensor.place, executor.place) == (CUDAPlace(1), CUDAPlace(1))
        assert numbers(executor.run(fetch_list=[x])) == [[2, 3]]


def test_places_that_are_not_there():
    with virtual_devices(1):
        with pytest.raises(PlaceError, match="there are 1 virtual devices"):
            Executor("cuda:1")
        with pytest.raises(PlaceError, match=r"Executor.place must be a CPUPlace or CUDAPlace"):
            Executor("cuda_pinned")


def test_the_end_of_one_of_several_readers_takes_nothing_from_the_others(programs):
    long, x = started(programs[1])
    short, y = started(programs[1], num=2)
    executor = Executor("cpu")
    assert numbers(executor.run(fetch_list=[x, y])) == [[0, 1], [0, 1]]
    with pytest.raises(EOFException):
        executor.run(fetch_list=[x, y])
    assert numbers(executor.run(fetch_list=[x])) == [[2, 3]]
    short.reset()
    short.start()
    assert numbers(executor.run(fetch_list=[x, y])) == [[4, 5], [0, 1]]
    assert not long.has_next()


def test_a_reader_that_was_not_started_takes_nothing_from_the_others(programs):
    _, x = started(programs[1])
    other, y = started(programs[1])
    other.reset()
    with pytest.raises(ReaderError, match="call start"):
        Executor("cpu").run(fetch_list=[x, y])
    assert numbers(Executor("cpu").run(fetch_list=[x])) == [[0, 1]]


def test_a_reader_that_was_not_made(programs):
    reader = layers.random_data_generator(0, 1, [[1, 1]])
    x = layers.read_file(reader)
    with pytest.raises(ReaderError, match="is not made yet; run the startup program first"):
        Executor("cpu").run(fetch_list=[x])


def test_errors_of_a_reader_come_as_they_are(programs):
    def source():
        yield [1]
        raise BrokenError

    _, x = started(programs[1], source)
    executor = Executor("cpu")
    assert numbers(executor.run(fetch_list=[x])) == [[1]]
    with pytest.raises(BrokenError):
        executor.run(fetch_list=[x])
    with pytest.raises(EOFException):
        executor.run(fetch_list=[x])


def test_two_executors_share_a_reader(programs):
    _, x = started(programs[1])
    one, other = Executor("cpu"), Executor("cpu")
    taken = [executor.run(fetch_list=[x])[0].tolist() for executor in (one, other, one)]
    assert taken == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(EOFException):
        other.run(fetch_list=[x])


def test_what_is_fed_comes_back(programs):
    data("ids", [1], "int64", lod_level=1)
    data("x", [2])
    with program_guard(programs[0]):
        feeder = DataFeeder(["ids", "x"], "cpu")
    feed = feeder.feed([([7, 8], [0.5, 1]), ([], [2, 3])])
    ids, x = Executor("cpu").run(feed=feed, fetch_list=["ids", "x"], return_numpy=False)
    assert (ids.to_list(), x.to_list()) == ([[[7], [8]], []], [[0.5, 1.0], [2.0, 3.0]])
    (array,) = Executor("cpu").run(feed=feed, fetch_list=["x"])
    assert array.tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert Executor("cpu").run(feed=feed) == []


def test_what_is_fed_goes_to_the_place(programs):
    data("x", [1])
    with virtual_devices(1):
        given = {"x": np.ones((2, 1), np.float32)}
        (x,) = Executor("cuda:0").run(feed=given, fetch_list=["x"], return_numpy=False)
        assert x.place == CUDAPlace(0)


def test_sparse_rows(programs):
    data("bag", [9], layout="sparse_binary")
    data("dense", [9], layout="sparse_binary", densify=True)
    rows = SparseRows([0, 2], [1, 4], None, 9)
    (bag,) = Executor("cpu").run(feed={"bag": rows}, fetch_list=["bag"], return_numpy=False)
    assert bag is rows
    with pytest.raises(FieldError, match="no array form"):
        Executor("cpu").run(feed={"bag": rows}, fetch_list=["bag"])
    (dense,) = Executor("cpu").run(
        feed={"dense": np.zeros((1, 9), np.float32)}, fetch_list=["dense"]
    )
    assert dense.shape == (1, 9)


def test_what_is_fed_is_not_read(programs):
    _, x = started(programs[1])
    assert numbers(Executor("cpu").run(feed={x.name: np.array([9])}, fetch_list=[x])) == [[9]]
    assert numbers(Executor("cpu").run(fetch_list=[x])) == [[0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fetch_list": "x"}, "fetch_list must be a list of Variables or names, got 'x'"),
        (
            {"fetch_list": ["fc_0"]},
            "must name variables of the program, got 'fc_0'; gpufeed",
        ),
        ({"fetch_list": [3]}, "must name variables of the program, got 3"),
        ({"fetch_list": ["x"]}, "feed must hold 'x', which is fetched and never read"),
        ({"feed": {"y": [1]}}, "feed must name variables of the program, got 'y'"),
        ({"feed": [1]}, "feed must map names to tensors, got list"),
        ({"feed": {"x": np.ones((2, 3), np.float32)}}, r"field 'x': expected shape \(-1, 2\), got"),
        ({"feed": {"x": np.ones((2, 2))}}, "field 'x': expected dtype float32, got float64"),
        ({"feed": {"x": LoDTensor(np.ones((1, 2), np.float32), [[0, 1]])}}, "expected lod_level 0"),
        ({"feed": {"x": SparseRows([0], [], None, 2)}}, "expected dense rows, got SparseRows"),
        ({"feed": {"bag": np.ones((1, 9), np.float32)}}, "expected SparseRows, got ndarray"),
        (
            {"feed": {"bag": SparseRows([0], [], None, 8)}},
            r"expected shape \(-1, 9\), got \(0, 8\)",
        ),
        ({"program": "main"}, "program must be a Program, got str"),
    ],
)
def test_arguments_that_break_a_rule_read_nothing(programs, arguments, message):
    data("x", [2])
    data("bag", [9], layout="sparse_binary")
    _, read = started(programs[1])
    if "fetch_list" not in arguments:
        arguments = {**arguments, "fetch_list": [read]}
    elif isinstance(arguments["fetch_list"], list):
        arguments = {**arguments, "fetch_list": [read, *arguments["fetch_list"]]}
    with pytest.raises(FieldError, match=message):
        Executor("cpu").run(**arguments)
    assert numbers(Executor("cpu").run(fetch_list=[read])) == [[0, 1]]


def test_a_variable_of_another_program(programs):
    with program_guard(Program()):
        other = data("x", [1])
    data("x", [1])
    with pytest.raises(FieldError, match="must name variables of the program, got 'x'"):
        Executor("cpu").run(feed={"x": np.ones((1, 1), np.float32)}, fetch_list=[other])


class TestParallelExecutor:
    def test_readers_give_each_place_the_next_item(self, programs):
        reader, x = started(programs[1], num=10)
        executor = ParallelExecutor(["cpu", "cpu"], programs[0])
        assert executor.device_count == 2
        steps = []
        while reader.has_next():
            steps.append([feed[x.name].to_list() for feed in executor.run([x])])
        assert steps == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9]]]
        with pytest.raises(EOFException):
            executor.run([x])

    def test_each_feed_is_on_its_place(self, programs):
        with virtual_devices(2):
            _, x = started(programs[1])
            feeds = ParallelExecutor(["cuda:0", "cuda:1"]).run([x])
            assert [feed.place for feed in feeds] == [CUDAPlace(0), CUDAPlace(1)]
            assert [feed[x.name].place for feed in feeds] == [CUDAPlace(0), CUDAPlace(1)]

    def test_one_feed_a_place(self, programs):
        data("x", [1], "int64")
        given = [{"x": [[1]]}, {"x": [[2], [3]]}]
        feeds = ParallelExecutor(["cpu", "cpu"]).run(["x"], feed=given)
        assert [feed["x"].to_list() for feed in feeds] == [[[1]], [[2], [3]]]

    def test_one_feed_is_shared_by_its_samples(self, programs):
        data("ids", [1], "int64", lod_level=1)
        data("x", [1], "int64")
        given = {
            "ids": LoDTensor([[7], [8], [9]], [[0, 2, 2, 3]]),
            "x": LoDTensor([[1], [2], [3]]),
        }
        feeds = ParallelExecutor(["cpu", "cpu"]).run(["ids", "x"], feed=given)
        assert [feed["ids"].to_list() for feed in feeds] == [[[[7], [8]], []], [[[9]]]]
        assert [feed["x"].to_list() for feed in feeds] == [[[1], [2]], [[3]]]

    def test_fewer_samples_than_places(self, programs):
        data("x", [1], "int64")
        executor = ParallelExecutor(["cpu"] * 3)
        assert len(executor.run(["x"], feed={"x": [[1], [2]]})) == 2

    def test_feeding_and_reading(self, programs):
        data("x", [1], "int64")
        _, read = started(programs[1])
        feeds = ParallelExecutor(["cpu", "cpu"]).run([read, "x"], feed={"x": [[1], [2]]})
        assert [[tensor.to_list() for tensor in feed.values()] for feed in feeds] == [
            [[0, 1], [[1]]],
            [[2, 3], [[2]]],
        ]

    def test_an_empty_feed_reads_for_every_place(self, programs):
        _, read = started(programs[1])
        feeds = ParallelExecutor(["cpu", "cpu"]).run([read], feed={})
        assert [feed[read.name].to_list() for feed in feeds] == [[0, 1], [2, 3]]

    @pytest.mark.parametrize(
        ("feed", "message"),
        [
            ([{"x": [[1]]}], "feed must be one for each of 2 places, got 1"),
            (
                {"x": [[1]], "y": [[1], [2]]},
                "feed must hold equally many samples each, got",
            ),
            ([{"x": [[1]]}, {"x": [1]}], r"ParallelExecutor.run: field 'x': expected shape"),
            ({"z": [[1]]}, "feed must name variables of the program, got 'z'"),
            (None, "feed must hold 'x', which is fetched and never read"),
            ({}, "feed must hold 'x'"),
            (3, "feed must be one mapping, or a list of them, got int"),
            ("xy", "feed must map names to tensors, got str"),
        ],
    )
    def test_feeds_that_break_a_rule(self, programs, feed, message):
        for name in "xy":
            data(name, [1], "int64")
        with pytest.raises(FieldError, match=message):
            ParallelExecutor(["cpu", "cpu"]).run(["x"], feed=feed)

    def test_an_error_comes_after_the_items_before_it(self, programs):
        def source():
            yield from ([1], [2], [3])
            raise BrokenError

        _, x = started(programs[1], source)
        executor = ParallelExecutor(["cpu", "cpu"])
        steps = [[feed[x.name].to_list() for feed in executor.run([x])] for _ in range(2)]
        assert steps == [[[1], [2]], [[3]]]
        with pytest.raises(BrokenError):
            executor.run([x])
        with pytest.raises(EOFException):
            executor.run([x])

    def test_flags_are_methods_of_the_reader(self, programs):
        reader, x = started(programs[1])
        more = layers.has_next(reader)
        with pytest.raises(FieldError, match="got what has_next sets; use the method has_next"):
            ParallelExecutor(["cpu"]).run([x, more])

    @pytest.mark.parametrize("places", ["cpu", CPUPlace(), 2])
    def test_places_are_a_list(self, places):
        with pytest.raises(PlaceError, match=r"ParallelExecutor.places must be a list of places"):
            ParallelExecutor(places)

    def test_no_place(self):
        with pytest.raises(PlaceError, match="must name at least one place, got none"):
            ParallelExecutor([])
