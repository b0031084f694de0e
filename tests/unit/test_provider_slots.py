"""Slots: the forms of a sample, its checks, and the variables it fills."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from fractions import Fraction

import numpy as np
import pytest

from gpufeed.errors import FieldError
from gpufeed.provider import (
    dense_array,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_binary_vector_sub_sequence,
    sparse_float_vector,
    sparse_float_vector_sequence,
    sparse_float_vector_sub_sequence,
)
from gpufeed.provider.slots import Slots
from gpufeed.variables import Program, data, program_guard

PAIR = {"x": dense_vector(2), "y": integer_value(3)}
Pair = namedtuple("Pair", "x y")


class TestRows:
    @pytest.mark.parametrize("sample", [([1.0, 2.0], 1), [[1.0, 2.0], 1], Pair([1.0, 2.0], 1)])
    @pytest.mark.parametrize("types", [PAIR, list(PAIR.values())])
    def test_rows_are_passed_as_they_are(self, types, sample):
        [row] = Slots(types).rows([sample])
        assert row is sample

    @pytest.mark.parametrize("kind", [dict, OrderedDict])
    def test_dicts_are_put_in_order(self, kind):
        sample = kind(y=1, x=[1.0, 2.0], unused=None)
        assert list(Slots(PAIR).rows([sample])) == [([1.0, 2.0], 1)]
        assert list(Slots(PAIR, ["y", "x"]).rows([sample])) == [(1, [1.0, 2.0])]

    @pytest.mark.parametrize("value", [[1.0, 2.0], (1.0, 2.0), None])
    @pytest.mark.parametrize("types", [[dense_vector(2)], {"x": dense_vector(2)}])
    def test_one_slot_takes_the_sample_itself(self, types, value):
        assert list(Slots(types).rows([value])) == [(value,)]

    def test_one_slot_may_be_named(self):
        assert list(Slots({"x": dense_vector(2)}).rows([{"x": [1.0, 2.0]}])) == [([1.0, 2.0],)]

    def test_a_missing_slot_is_named(self):
        message = r"sample 7: expected a slot 'y', got x, z"
        with pytest.raises(FieldError, match=message):
            list(Slots(PAIR).rows([{"x": 0, "z": 0}], first=7))

    @pytest.mark.parametrize("number", [1, 2])
    def test_positional_types_take_no_dict(self, number):
        slots = Slots([dense_vector(2)] * number)
        with pytest.raises(
            FieldError, match=r"sample 0: expected .* by position, .*got a dict of x"
        ):
            list(slots.rows([{"x": 0}]))

    @pytest.mark.parametrize("sample", [5, "text", None, np.zeros(2), {1, 2}])
    def test_several_slots_are_a_row(self, sample):
        with pytest.raises(
            FieldError, match=r"sample 1: expected a tuple, list or dict of 2 slots"
        ):
            list(Slots(PAIR).rows([(0, 0), sample]))

    def test_rows_are_told_from_what_has_to_be_made_into_rows(self):
        slots = Slots(PAIR)
        assert slots.are_rows([(1, 2), [3, 4]])
        assert not slots.are_rows([(1, 2), {"x": 3}])
        assert not Slots([dense_vector(2)]).are_rows([(1, 2)])


class TestTypes:
    @pytest.mark.parametrize("given", [None, [], {}, 5, "types", dense_vector(2)])
    def test_there_must_be_types(self, given):
        with pytest.raises(FieldError, match=r"provider\.input_types must be a list or dict"):
            Slots(given)

    def test_types_are_input_types(self):
        with pytest.raises(FieldError, match=r"provider\.input_types must hold InputType, got 784"):
            Slots([dense_vector(2), 784])

    def test_an_order_names_types(self):
        with pytest.raises(
            FieldError, match=r"provider\.input_order must name input_types, got .*z"
        ):
            Slots(PAIR, ["x", "z"])

    def test_an_order_may_leave_types_out(self):
        assert Slots(PAIR, ["y"]).types == (integer_value(3),)

    def test_an_order_names_positional_types(self):
        assert Slots([dense_vector(2)], ["x"]).names == ("x",)
        with pytest.raises(FieldError, match=r"input_order must name 1 slots, got \['x', 'y'\]"):
            Slots([dense_vector(2)], ["x", "y"])


class TestVariables:
    def test_slots_with_names_need_no_declaration(self):
        declared = Slots(PAIR).variables(Program())
        assert [(one.name, one.shape) for one in declared] == [("x", (-1, 2)), ("y", (-1, 1))]

    def test_slots_without_names_take_those_of_the_program_in_order(self):
        program = Program()
        with program_guard(program):
            data("b", [2])
            data("a", [1], "int64")
        found = Slots(list(PAIR.values())).variables(program)
        assert [one.name for one in found] == ["b", "a"]

    @pytest.mark.parametrize("names", [[], ["a"], ["a", "b", "c"]])
    def test_the_program_must_declare_as_many(self, names):
        program = Program()
        with program_guard(program):
            for name in names:
                data(name, [2])
        message = rf"2 slots without names .*got {len(names)} \({', '.join(names) or 'none'}\)"
        with pytest.raises(FieldError, match=message):
            Slots(list(PAIR.values())).variables(program)

    def test_what_the_program_declares_is_taken(self):
        program = Program()
        with program_guard(program):
            image = data("x", [1, 2], wire_dtype="float16")
            label = data("y", [1], "int32")
        assert Slots(PAIR).variables(program) == [image, label]

    def test_one_may_be_declared_and_another_not(self):
        program = Program()
        with program_guard(program):
            label = data("y", [1], "int32")
        assert Slots(PAIR).variables(program)[1] is label

    @pytest.mark.parametrize(
        "wrong",
        [
            {"shape": [3]},
            {"shape": [2], "lod_level": 1},
            {"shape": [2], "layout": "sparse_float"},
        ],
    )
    def test_what_it_declares_must_take_the_slot(self, wrong):
        program = Program()
        with program_guard(program):
            data("x", **wrong)
        with pytest.raises(
            FieldError, match=r"variable 'x' must take InputType\(dim=2.*got Variable"
        ):
            Slots(PAIR).variables(program)

    def test_indices_are_whole_numbers(self):
        program = Program()
        with program_guard(program):
            data("y", [1])
        with pytest.raises(FieldError, match=r"variable 'y' must take InputType\(dim=3"):
            Slots(PAIR).variables(program)

    def test_open_dimensions_take_any_size(self):
        program = Program()
        with program_guard(program):
            image = data("x", [-1, 3, None, None])
        assert Slots({"x": dense_array(192)}).variables(program) == [image]


GOOD = [
    (dense_vector(2), [1.0, 2.0]),
    (dense_vector(2), (1, 2)),
    (dense_vector(2), [np.float32(1), np.float64(2)]),
    (dense_vector(2), np.array([1, 2], np.float64)),
    (dense_vector(2), [Fraction(1, 2), float("nan")]),
    (dense_array([2, 2]), np.zeros((2, 2))),
    (dense_array([2, 2]), [0.0] * 4),
    (dense_vector_sequence(2), [[1.0, 2.0], [3.0, 4.0]]),
    (dense_vector_sequence(2), np.zeros((5, 2))),
    (dense_vector_sequence(2), []),
    (dense_vector_sub_sequence(2), [[[1.0, 2.0]], [], np.zeros((3, 2))]),
    (integer_value(3), 0),
    (integer_value(3), 2),
    (integer_value(3), np.int64(2)),
    (integer_value(3), np.uint8(2)),
    (integer_value(3), np.array(2)),
    (integer_value(3), np.array([2])),
    (integer_value(3), True),
    (integer_value_sequence(3), [0, 1, 2]),
    (integer_value_sequence(3), np.array([0, 1, 2], np.int32)),
    (integer_value_sequence(3), []),
    (integer_value_sub_sequence(3), [[0], [], [1, 2]]),
    (sparse_binary_vector(5), [0, 4]),
    (sparse_binary_vector(5), []),
    (sparse_binary_vector(5), np.array([4, 0])),
    (sparse_binary_vector(5), [np.int32(4)]),
    (sparse_binary_vector_sequence(5), [[0, 4], [], [0]]),
    (sparse_binary_vector_sub_sequence(5), [[[0, 4], []], []]),
    (sparse_float_vector(5), [(0, 1.5), (4, -2)]),
    (sparse_float_vector(5), [(np.int64(0), np.float32(1.5))]),
    (sparse_float_vector(5), (np.array([0, 4]), np.array([1.0, 2.0]))),
    (sparse_float_vector(5), []),
    (sparse_float_vector_sequence(5), [[(0, 1.5)], [], [(4, 1.0), (0, 2.0)]]),
    (sparse_float_vector_sub_sequence(5), [[[(0, 1.5)], []]]),
]

BAD = [
    (dense_vector(2), [1.0], r"expected shape \(2,\), got \(1,\)"),
    (dense_vector(2), [1.0, "2"], "expected float32 values, got .*2"),
    (dense_vector(2), [1.0, None], "expected float32 values, got NoneType None"),
    (dense_vector(2), None, "expected float32 values, got NoneType None"),
    (dense_vector(2), 1.0, r"expected shape \(2,\), got \(\)"),
    (dense_vector(2), [1e300, 0.0], "expected values in the range of float32, got 1e\\+300"),
    (dense_vector_sequence(2), [[1.0, 2.0], [3.0]], "expected float32 values of one shape"),
    (dense_vector_sequence(2), [1.0, 2.0], r"expected shape \(-1, 2\), got \(2,\)"),
    (dense_vector_sub_sequence(2), [[1.0, 2.0]], r"expected shape \(-1, 2\), got \(2,\)"),
    (integer_value(3), 3, r"expected values in \[0, 3\), got 3"),
    (integer_value(3), -1, r"expected values in \[0, 3\), got -1"),
    (integer_value(3), 1.0, "expected int64 values, got float 1.0"),
    (integer_value(3), "1", "expected int64 values, got str 1"),
    (integer_value(3), None, "expected int64 values, got NoneType None"),
    (integer_value(3), [1, 2], r"expected shape \(1,\), got \(2,\)"),
    (integer_value_sequence(3), [0, 5, 1], r"expected values in \[0, 3\), got 5"),
    (integer_value_sequence(3), np.array([0, -2]), r"expected values in \[0, 3\), got -2"),
    (integer_value_sequence(3), 1, "expected sequences nested 1 deep, got int"),
    (integer_value_sub_sequence(3), [0, 1], "expected sequences nested 2 deep, got int"),
    (integer_value_sub_sequence(3), [[0], [3]], r"expected values in \[0, 3\), got 3"),
    (sparse_binary_vector(5), [0, 5], r"expected indices in \[0, 5\), got 5"),
    (sparse_binary_vector(5), [-1], r"expected indices in \[0, 5\), got -1"),
    (sparse_binary_vector(5), [3, 1, 3], "expected each index once in a row, got 3 again"),
    (sparse_binary_vector(5), [0.5], "indices: expected int64 values, got float 0.5"),
    (sparse_binary_vector(5), 3, "expected sequences nested 1 deep, got int"),
    (sparse_binary_vector_sequence(5), [[1], [2, 2]], "each index once in a row, got 2 again"),
    (sparse_binary_vector_sub_sequence(5), [[[1], [9]]], r"indices in \[0, 5\), got 9"),
    (sparse_float_vector(5), [(5, 1.0)], r"expected indices in \[0, 5\), got 5"),
    (sparse_float_vector(5), [(-1, 1.0)], r"expected indices in \[0, 5\), got -1"),
    (sparse_float_vector(5), [(1, 1.0), (1, 2.0)], "each index once in a row, got 1 again"),
    (sparse_float_vector(5), [1, 2], r"expected \(index, value\) pairs"),
    (sparse_float_vector(5), [(1, "a")], "values: expected float32 values, got .*a"),
    (sparse_float_vector_sequence(5), [[(1, 1.0)], [(7, 1.0)]], r"in \[0, 5\), got 7"),
    (sparse_float_vector_sub_sequence(5), [[[(7, 1.0)]]], r"in \[0, 5\), got 7"),
]


class TestChecks:
    @pytest.mark.parametrize(("kind", "value"), GOOD)
    def test_what_fits_passes(self, kind, value):
        Slots([kind]).check((value,), 0)

    @pytest.mark.parametrize(("kind", "value", "message"), BAD)
    def test_what_does_not_fit_is_named(self, kind, value, message):
        with pytest.raises(FieldError, match=rf"field 'x', sample 17.*{message}"):
            Slots({"x": kind}).check((value,), 17)

    def test_slots_without_a_name_have_a_number(self):
        with pytest.raises(FieldError, match="field 'slot 1', sample 3"):
            Slots([integer_value(3), integer_value(3)]).check((1, 9), 3)

    @pytest.mark.parametrize("row", [(), (1,), (1, 2, 3)])
    def test_every_slot_is_there_once(self, row):
        message = rf"sample 3: expected 2 slots \(x, y\), got {len(row)}"
        with pytest.raises(FieldError, match=message):
            Slots(PAIR).check(row, 3)
