"""`gpufeed.layers`: what its calls record, and what reader variables do."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from support.readers import counting

import gpufeed.reader as rd
from gpufeed import layers
from gpufeed.device import virtual_devices
from gpufeed.errors import EOFException, FieldError, FormatError, ReaderError
from gpufeed.executor import Executor
from gpufeed.places import CPUPlace, CUDAPlace
from gpufeed.stateful import DoubleBufferReader, PyReader
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, Variable, program_guard


@pytest.fixture
def programs():
    main, startup = Program(), Program()
    with program_guard(main, startup):
        yield main, startup
    # pytest keeps the programs until after it has looked for threads that are left.
    for reader in main.global_block().readers.values():
        reader._reader.close()


def types(program):
    return [op.type for op in program.global_block().ops]


def made(startup):
    Executor("cpu").run(startup)


def numbers(source=None):
    """A reader variable of 0, 1, ... in mini-batches of 2, and its program's source."""
    reader = layers.py_reader(2, [[-1]], ["int64"])
    reader.decorate_paddle_reader(source or rd.batch(counting(6), 2))
    return reader


def rest_of(reader):
    values = []
    while reader.has_next():
        values += reader.reader.read_next()[0].to_list()
    return values


def test_creation_is_recorded_in_the_startup_program(programs):
    main, startup = programs
    reader = layers.open_files("a.csv", [[3], [1]], [0, 0], ["float32", "int64"])
    reader = layers.multi_pass(layers.batch(layers.shuffle(reader, 8), 4), 2)
    layers.double_buffer(reader)
    layers.open_recordio_file("b", [[1]], [0], ["int64"])
    layers.random_data_generator(0, 1, [[2, 2]])
    layers.py_reader(2, [[1]], ["int64"])
    assert types(startup) == [
        *("open_files", "shuffle", "batch", "multi_pass", "double_buffer"),
        *("open_recordio_file", "random_data_generator", "py_reader"),
    ]
    assert types(main) == []


def test_reading_is_recorded_in_the_main_program(programs):
    main, startup = programs
    reader = numbers()
    x = layers.read_file(reader)
    more, again = layers.has_next(reader), layers.reset(reader)
    assert types(main) == ["read_file", "has_next", "reset"]
    assert types(startup) == ["py_reader"]
    assert list(main.global_block().vars) == [x.name, more.name, again.name]
    assert (more.shape, more.dtype) == ((1,), np.bool_)


def test_reader_variables_persist_in_both_programs(programs):
    reader = numbers()
    buffered = layers.double_buffer(reader)
    for program in programs:
        assert program.global_block().readers == {
            reader.name: reader,
            buffered.name: buffered,
        }
    assert reader.persistable
    other = Program()
    with program_guard(other):
        layers.read_file(buffered)
    assert other.global_block().readers == {buffered.name: buffered}


def test_what_a_read_sets(programs):
    reader = layers.open_files("a.csv", [[3, 4], [1]], [0, 1], ["float32", "int64"])
    image, label = layers.read_file(layers.batch(reader, 4))
    assert (image.shape, image.dtype, image.lod_level) == ((-1, 3, 4), np.float32, 0)
    assert (label.shape, label.dtype, label.lod_level) == ((-1, 1), np.int64, 1)
    assert isinstance(layers.read_file(numbers()), Variable)


def test_a_batch_has_any_number_of_rows(programs):
    reader = layers.open_files("a.csv", [[-1, 3]], [0], ["float32"])
    reader.fields = (Variable("x", (4, 3), np.dtype("float32")),)
    assert layers.batch(reader, 2).fields[0].shape == (-1, 3)
    assert layers.shuffle(reader, 2).fields[0].shape == (4, 3)


def test_names_are_unique(programs):
    names = [numbers().name for _ in range(3)]
    assert names == ["py_reader_0", "py_reader_1", "py_reader_2"]
    assert layers.double_buffer(numbers(), name="ahead").name == "ahead"
    with pytest.raises(FieldError, match=r"double_buffer\.name must be new in its programs, got"):
        layers.double_buffer(numbers(), name="ahead")
    layers.data("py_reader_5", [1])
    assert [numbers().name for _ in range(2)] == ["py_reader_6", "py_reader_7"]


def test_a_reader_is_read_once_in_a_program(programs):
    main, _ = programs
    reader = numbers()
    layers.read_file(reader)
    with pytest.raises(FieldError, match=r"read_file\.reader must be read once in a program, got"):
        layers.read_file(reader)
    assert types(main) == ["read_file"]
    with program_guard(Program()):
        layers.read_file(reader)


def test_a_read_may_set_variables_that_there_are(programs):
    main, _ = programs
    reader = numbers()
    x, y = layers.data("x", [1]), layers.data("y", [1], "int64")
    with pytest.raises(FieldError, match=r"read_file\.out must be 1 variables .* got \['x', 'y'\]"):
        layers.read_file(reader, out=[x, y])
    with program_guard(Program()):
        elsewhere = layers.data("z", [1])
    with pytest.raises(FieldError, match=r"read_file\.out must be .* of the main program, got"):
        layers.read_file(reader, out=[elsewhere])
    assert layers.read_file(reader, out=[y]) is y
    assert main.global_block().ops[-1].outputs == ("y",)


def test_flags_may_be_asked_for_often(programs):
    reader = numbers()
    assert len({layers.has_next(reader).name for _ in range(3)}) == 3


@pytest.mark.parametrize(
    "call",
    [
        layers.read_file,
        layers.has_next,
        layers.reset,
        layers.double_buffer,
        lambda reader: layers.batch(reader, 2),
        lambda reader: layers.shuffle(reader, 2),
        lambda reader: layers.multi_pass(reader, 2),
    ],
)
def test_what_is_no_reader_variable(programs, call):
    for other in (counting(3), PyReader(2, [[1]], ["int64"]), "py_reader_0"):
        with pytest.raises(FieldError, match=r"reader must be a reader variable of gpufeed.layers"):
            call(other)
    assert [types(program) for program in programs] == [[], []]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: layers.open_files("a.xyz", [[1]], [0], ["int64"]), FormatError),
        (lambda: layers.open_files("a.csv", [[1]], [0, 0], ["int64"]), FieldError),
        (lambda: layers.open_files("a.csv", [[1]], [0], ["int64"], thread_num=0), FieldError),
        (lambda: layers.random_data_generator(1, 0, [[1]]), FieldError),
        (lambda: layers.py_reader(0, [[1]], ["int64"]), FieldError),
        (lambda: layers.batch(numbers(), 0), FieldError),
        (lambda: layers.shuffle(numbers(), 0), FieldError),
        (lambda: layers.multi_pass(numbers(), 0), FieldError),
    ],
)
def test_arguments_are_checked_when_a_call_is_recorded(programs, call, error):
    with pytest.raises(error):
        call()


def test_there_are_no_network_layers():
    with pytest.raises(AttributeError, match="'fc': it records readers, no network layers"):
        _ = layers.fc
    assert all(hasattr(layers, name) for name in layers.__all__)


@pytest.mark.parametrize(
    "use",
    [
        lambda reader: reader.reader,
        lambda reader: reader.has_next(),
        lambda reader: reader.reset(),
        lambda reader: reader.start(),
    ],
)
def test_a_reader_that_was_not_made(programs, use):
    reader = numbers()
    with pytest.raises(ReaderError, match="reader 'py_reader_0' is not made yet; run the startup"):
        use(reader)
    made(programs[1])
    reader.start()
    assert rest_of(reader) == [0, 1, 2, 3, 4, 5]


def test_the_startup_program_run_again_changes_nothing(programs):
    reader = numbers()
    made(programs[1])
    reader.start()
    reader.reader.read_next()
    made(programs[1])
    assert rest_of(reader) == [2, 3, 4, 5]


def test_a_source_may_come_after_the_reader_is_made(programs):
    reader = layers.py_reader(2, [[-1]], ["int64"])
    made(programs[1])
    with pytest.raises(ReaderError, match="needs a source"):
        reader.start()
    reader.decorate_tensor_provider(lambda: [[np.arange(3)]])
    reader.start()
    assert rest_of(reader) == [0, 1, 2]


def decorations():
    return {
        "shuffle": lambda reader: layers.shuffle(reader, 1),
        "batch": lambda reader: layers.batch(reader, 1),
        "multi_pass": lambda reader: layers.multi_pass(reader, 1),
        "double_buffer": layers.double_buffer,
        "several": lambda reader: layers.double_buffer(layers.batch(layers.shuffle(reader, 1), 2)),
    }


@pytest.mark.parametrize("kind", decorations())
def test_what_is_made_of_a_py_reader_starts_and_resets_it(programs, kind):
    source = numbers()
    reader = decorations()[kind](source)
    made(programs[1])
    with pytest.raises(ReaderError, match="call start"):
        reader.reader.read_next()
    for start, reset in ((source.start, source.reset), (reader.start, reader.reset)):
        start()
        assert rest_of(reader) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(EOFException):
            reader.reader.read_next()
        reset()
        start()
        reader.reader.read_next()
        reset()
        with pytest.raises(ReaderError, match="call start"):
            reader.reader.read_next()
        reset()


def files(tmp_path, num=5):
    (tmp_path / "a.csv").write_text("\n".join(["x", *map(str, range(num))]))
    return layers.open_files(str(tmp_path / "a.csv"), [[-1]], [0], ["int64"], is_test=True)


def test_a_reset_reaches_what_is_made_of_a_reader(programs, tmp_path):
    source = files(tmp_path)
    one, other = layers.batch(source, 2), layers.double_buffer(source)
    made(programs[1])
    assert one.reader.read_next()[0].to_list() == [0, 1]
    assert other.reader.read_next()[0].to_list() == [0]
    one.reset()
    assert one.reader.read_next()[0].to_list() == [0, 1]
    assert other.reader.read_next()[0].to_list() == [1]
    source.reset()
    assert (rest_of(one), rest_of(other)) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])


def test_py_reader_s_methods_are_for_py_readers(programs, tmp_path):
    reader = files(tmp_path)
    made(programs[1])
    for name, arguments in (
        ("start", ()),
        ("decorate_paddle_reader", (counting(2),)),
        ("decorate_tensor_provider", (counting(2),)),
    ):
        with pytest.raises(ReaderError, match=rf"open_files_0.{name} is for py_reader; others are"):
            getattr(reader, name)(*arguments)


def test_a_double_buffer_without_a_place_takes_that_of_the_executor(programs):
    free, bound = layers.double_buffer(numbers()), layers.double_buffer(numbers(), "cpu")
    made(programs[1])
    for reader in (free, bound):
        assert isinstance(reader.reader, DoubleBufferReader)
        assert reader.reader.place == CPUPlace()


def test_the_first_executor_to_run_the_startup_program_gives_the_place():
    main, startup = Program(), Program()
    with virtual_devices(2), program_guard(main, startup):
        reader = layers.double_buffer(numbers())
        x = layers.read_file(reader)
        for place in ("cuda:1", "cuda:0"):
            Executor(place).run(startup)
        assert reader.reader.place == CUDAPlace(1)
        reader.start()
        for place in ("cuda:0", "cuda:1", "cpu"):
            (tensor,) = Executor(place).run(main, fetch_list=[x], return_numpy=False)
            assert str(tensor.place) == place
        with pytest.raises(EOFException):
            Executor("cpu").run(main, fetch_list=[x])


def test_a_dropped_program_drops_its_readers(tmp_path):
    main, startup = Program(), Program()
    with program_guard(main, startup):
        reader = layers.double_buffer(files(tmp_path))
        layers.read_file(reader)
    made(startup)
    reader.reader.read_next()
    gc.disable()
    try:
        held = weakref.ref(reader.reader)
        del main, startup, reader
        assert held() is None
    finally:
        gc.enable()


def test_its_name_tells_what_it_reads(programs):
    assert repr(layers.batch(layers.random_data_generator(0, 1, [[1, 1]]), 2)).startswith(
        "ReaderVariable(name='batch_0', reader=BatchReader("
    )


def test_tensors_of_a_source_are_not_copied(programs):
    tensor = LoDTensor(np.arange(3))
    reader = layers.py_reader(2, [[-1]], ["int64"])
    reader.decorate_tensor_provider(lambda: [[tensor]])
    x = layers.read_file(reader)
    made(programs[1])
    reader.start()
    (read,) = Executor("cpu").run(programs[0], fetch_list=[x], return_numpy=False)
    assert read is tensor
