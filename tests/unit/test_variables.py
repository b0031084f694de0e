from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

from gpufeed.errors import FieldError
from gpufeed.variables import (
    Program,
    data,
    default_main_program,
    default_startup_program,
    program_guard,
)


@pytest.fixture(autouse=True)
def program():
    main = Program()
    with program_guard(main):
        yield main


@pytest.mark.parametrize(
    ("shape", "declared"),
    [
        ([784], (-1, 784)),
        ([1, 28, 28], (-1, 1, 28, 28)),
        ([], (-1,)),
        ([None, 784], (-1, 784)),
        ([-1, 784], (-1, 784)),
        ((3, -1), (3, -1)),
        ([-5, 2], (-1, 2)),
        ([np.int64(3)], (-1, 3)),
    ],
)
def test_both_spellings_of_a_shape(shape, declared):
    assert data("x", shape).shape == declared


def test_a_shape_can_be_taken_as_it_is():
    x = data("x", [4, 3], append_batch_size=False)
    assert (x.shape, x.item_shape) == ((4, 3), (3,))


@pytest.mark.parametrize(
    "dtype", ["bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
)
def test_dtypes(dtype):
    assert data("x", [1], dtype).dtype == np.dtype(dtype)
    assert data("y", [1], np.dtype(dtype).type).dtype == np.dtype(dtype)


def test_the_byte_order_is_the_machine_s():
    assert data("x", [1], ">f4").dtype.isnative


@pytest.mark.parametrize("layout", ["sparse_binary", "sparse_float"])
def test_sparse_variables(layout):
    x = data("x", [1000], layout=layout, lod_level=2, densify=True)
    assert (x.is_sparse, x.dim, x.densify, x.lod_level) == (True, 1000, True, 2)


def test_conversion():
    assert not data("x", [3], wire_dtype="uint8").is_scaled
    assert data("y", [3], shift=1.0).is_scaled
    assert data("z", [3], wire_dtype="uint8", scale=1 / 255, shift=-0.5).scale == 1 / 255
    assert data("w", [3], "float32", wire_dtype="int64").wire_dtype == np.int64  # in its range


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, r"data\.name must be a non-empty string, got ''"),
        ({"name": 3}, r"data\.name must be a non-empty string, got 3"),
        ({"shape": 784}, r"data\('x'\)\.shape must be a list of whole numbers or None, got 784"),
        ({"shape": "12"}, "shape must be a list of whole numbers"),
        ({"shape": [4, 1.5]}, r"shape\[1\] must be a whole number, got 1.5"),
        ({"dtype": "uint32"}, "dtype must be any of bool, float16, .*, got 'uint32'"),
        ({"dtype": "no such"}, "dtype must be any of"),
        ({"dtype": None}, "dtype must be any of"),
        ({"wire_dtype": "complex64"}, "wire_dtype must be any of"),
        ({"lod_level": -1}, "lod_level must be a whole number >= 0, got -1"),
        ({"lod_level": True}, "lod_level must be a whole number >= 0, got True"),
        ({"lod_level": 1, "shape": [3, -1]}, "leave its first dimension free"),
        ({"shape": [], "append_batch_size": False}, "shape must have a batch dimension"),
        ({"dtype": "int64", "scale": 2.0}, "scale must be None for dtype int64"),
        (
            {"dtype": "int64", "wire_dtype": "float32"},
            "wire_dtype must have values that int64 can hold, got 'float32'",
        ),
        ({"dtype": "int32", "wire_dtype": "int64"}, "that int32 can hold, got 'int64'"),
        ({"dtype": "int8", "wire_dtype": "uint8"}, "that int8 can hold, got 'uint8'"),
        ({"dtype": "bool", "wire_dtype": "uint8"}, "that bool can hold, got 'uint8'"),
        ({"dtype": "float16", "wire_dtype": "int32"}, "that float16 can hold, got 'int32'"),
        ({"dtype": "float32", "wire_dtype": "float64"}, "that float32 can hold, got 'float64'"),
        ({"layout": "csr"}, "layout must be one of dense, sparse_binary, sparse_float, got 'csr'"),
        ({"layout": "sparse_float", "shape": [2, 3]}, r"must be \[dim\] with dim >= 1"),
        ({"layout": "sparse_float", "shape": [0]}, r"must be \[dim\] with dim >= 1"),
        ({"layout": "sparse_float", "scale": 2.0}, "scale must be None for layout 'sparse_float'"),
        ({"densify": 1, "layout": "sparse_float"}, "densify must be True, False or 'reuse', got 1"),
        ({"densify": "yes", "layout": "sparse_float"}, "densify must be True, False or 'reuse'"),
        ({"densify": True}, "densify must be False for layout 'dense', got True"),
        ({"scale": float("nan")}, "scale must be a finite number, or one a channel, got nan"),
        ({"shift": "1"}, "shift must be a finite number, or one a channel, got '1'"),
        ({"scale": [1.0, float("inf"), 1.0, 1.0]}, "scale must be a finite number, or one a"),
        ({"scale": [1.0, 2.0]}, r"scale must have one number for each channel of \[-1, 4\], got"),
        (
            {"scale": [1.0] * 4, "shift": [1.0] * 3},
            r"shift must have one number for each channel of \[-1, 4\]",
        ),
        (
            {"shape": [3, 4], "scale": [1.0] * 3, "shift": [1.0] * 4},
            r"scale must have as many numbers as shift, got \(\(1",
        ),
        ({"wire_dtype": "narrow"}, "wire_dtype must be any of bool, .*, got 'narrow'"),
    ],
)
def test_declarations_that_break_a_rule(program, arguments, message):
    with pytest.raises(FieldError, match=message):
        data(**{"name": "x", "shape": [4], **arguments})
    assert not program.global_block().vars


def test_the_same_declaration_twice_is_one_variable():
    assert data("x", [3]) is data("x", [None, 3])
    with pytest.raises(FieldError, match=r"data\('x'\): already declared in this program as"):
        data("x", [3], "float64")


def test_unknown_variables(program):
    data("x", [1])
    data("y", [1])
    with pytest.raises(FieldError, match="var zzz not in this block; declared variables: x, y"):
        program.global_block().var("zzz")
    with pytest.raises(FieldError, match="declared variables: none"):
        Program().global_block().var("zzz")


def test_a_clone_shares_what_there_was(program):
    x = data("x", [3])
    clone = program.clone(for_test=True)
    with program_guard(clone):
        assert data("x", [3]) is x
        data("later", [1])
    assert list(clone.global_block().vars) == ["x", "later"]
    assert list(program.global_block().vars) == ["x"]


def test_guards_nest_and_end_with_their_block(program):
    inner, startup = Program(), Program()
    outer_startup = default_startup_program()
    with contextlib.suppress(KeyError), program_guard(inner, startup):
        assert default_main_program() is inner
        assert default_startup_program() is startup
        raise KeyError
    assert default_main_program() is program
    assert default_startup_program() is outer_startup


def test_a_guard_is_not_seen_by_other_threads(program):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(default_main_program()))
    thread.start()
    thread.join()
    assert seen[0] is not program


@pytest.mark.parametrize(
    ("shape", "axis"), [([3, 8, 8], 1), ([8, 8, 3], 3), ([3, None, None], 1), ([3], 1), ([3, 3], 1)]
)
def test_channels_are_the_first_dimension_of_a_row_or_else_the_last(program, shape, axis):
    variable = data("x", [None, *shape], scale=[1, 2, 3], shift=np.zeros(3))
    assert variable.channel_axis == axis
    assert (variable.scale, variable.shift) == ((1, 2, 3), (0.0, 0.0, 0.0))


def test_one_factor_for_all_has_no_channels(program):
    assert data("x", [3], scale=2.0).channel_axis is None
    assert data("y", [3], scale=2.0, shift=[1, 2, 3]).channel_axis == 1
