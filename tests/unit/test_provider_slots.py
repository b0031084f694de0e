"""Slots: the forms of a sample, its checks, and the variables it fills."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from support.slots import BAD, GOOD

from gpufeed.errors import FieldError
from gpufeed.provider import dense_array, dense_vector, integer_value
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
            list(Slots(PAIR).rows([{"x": 0, "z": 0}], range(7, 9)))

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

    @pytest.mark.parametrize(
        ("types", "samples"),
        [
            (PAIR, [(1, 2), [3, 4]]),
            (PAIR, [{"x": 1, "y": 2}, {"y": 3, "x": 4, "z": 5}]),
            ([dense_vector(2)], [(1, 2), [3, 4], None, 5.0, "text"]),
            ({"x": dense_vector(2)}, [(1, 2), [3, 4]]),
            (PAIR, []),
        ],
    )
    def test_many_at_once_are_what_they_are_one_by_one(self, types, samples):
        slots = Slots(types)
        assert slots.rows_at_once(list(samples)) == list(slots.rows(samples))

    def test_rows_stay_in_their_list(self):
        samples = [(1, 2), [3, 4]]
        assert Slots(PAIR).rows_at_once(samples) is samples

    @pytest.mark.parametrize(
        ("types", "samples"),
        [
            (PAIR, [(1, 2), {"x": 3, "y": 4}]),
            (PAIR, [{"x": 3, "y": 4}, {"x": 3}]),
            (PAIR, [OrderedDict(x=3, y=4)]),
            (PAIR, [(1, 2), "text"]),
            (list(PAIR.values()), [{"x": 3, "y": 4}]),
            ({"x": dense_vector(2)}, [{"x": 1}, 2]),
        ],
    )
    def test_what_needs_a_look_is_left_to_one_by_one(self, types, samples):
        assert Slots(types).rows_at_once(samples) is None


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

    @pytest.mark.parametrize("given", ["xy", 5, ["x", 2]])
    def test_an_order_is_a_list(self, given):
        with pytest.raises(FieldError, match=r"provider\.input_order must be a list of names, got"):
            Slots(PAIR, given)

    def test_an_order_names_each_slot_once(self):
        with pytest.raises(
            FieldError, match=r"input_order must name each slot once, got \['x', 'x"
        ):
            Slots(PAIR, ["x", "x"])

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
