"""Declared fields: what makes samples into instances, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from gpufeed.errors import FieldError
from gpufeed.stateful.tensors import TensorFields, batched, merge_instances, require_tensor
from gpufeed.tensor import LoDTensor
from gpufeed.variables import Program, data, program_guard


def fields_of(*declared):
    shapes, lod_levels, dtypes = zip(*declared, strict=True)
    return TensorFields("owner", list(shapes), list(lod_levels), list(dtypes))


IDS_AND_LABEL = ([-1, 1], 1, "int64"), ([-1], 0, "float32")


def test_a_row_of_fields():
    ids, label = fields_of(*IDS_AND_LABEL)(([7, 8], 0.5))
    assert (ids.to_list(), ids.lod(), ids.dtype) == ([[[7], [8]]], [[0, 2]], np.int64)
    assert (label.shape, label.dtype) == ((1,), np.float32)


def test_one_bare_field():
    (image,) = fields_of(([784], 0, "float32"))(np.zeros(784))
    assert image.shape == (1, 784)


def test_rows_of_fields_are_fed_together():
    ids, label = fields_of(*IDS_AND_LABEL).batch([([7, 8], 0.5), ([], 1.0)])
    assert (ids.lod(), label.to_list()) == ([[0, 2, 2]], [0.5, 1.0])


def test_any_iterable_is_a_mini_batch():
    (x,) = fields_of(([1], 0, "float32")).batch(iter([1.0, 2.0]))
    assert x.to_list() == [[1.0], [2.0]]


def test_no_row_at_all():
    ids, label = fields_of(*IDS_AND_LABEL).batch([])
    assert (ids.lod(), label.shape) == ([[0]], (0,))


def test_tensors_are_taken_as_they_are():
    ids, label = LoDTensor([[7], [8]], [[0, 2]]), LoDTensor(np.zeros(2, np.float32))
    fields = fields_of(*IDS_AND_LABEL)
    assert all(a is b for a, b in zip(fields((ids, label)), (ids, label), strict=True))
    assert fields([ids, label]) == (ids, label)
    merged, _ = fields.batch([(ids, label), (ids, label)])
    assert merged.lod() == [[0, 2, 4]]


def test_bare_tensors_are_merged():
    fields = fields_of(([-1], 0, "int64"))
    (merged,) = fields.batch([LoDTensor([1, 2]), LoDTensor([3])])
    assert merged.to_list() == [1, 2, 3]


def test_a_fixed_number_of_rows_is_that_of_each_sample():
    fields = fields_of(([2, -1], 0, "int64"))
    two, one = LoDTensor([[1], [2]]), LoDTensor([[3]])
    (merged,) = fields.batch([(two,), (two,)])
    assert merged.to_list() == [[1], [2], [1], [2]]
    with pytest.raises(FieldError, match=r"expected shape \(2, -1\), got \(1, 1\)"):
        fields.batch([(two,), (one,), (one,)])


def test_the_sample_to_blame_is_named_by_its_own_shape():
    fields = fields_of(([-1, 2], 0, "int64"))
    good, bad = LoDTensor(np.ones((3, 2), np.int64)), LoDTensor(np.ones((1, 5), np.int64))
    with pytest.raises(FieldError, match=r"owner: field 'field_0': expected shape .* got \(1, 5\)"):
        fields.batch([(good,), (bad,)])


@pytest.mark.parametrize("other", [(3,), 3, (LoDTensor([1]), LoDTensor([1])), ("x",), ()])
def test_tensors_beside_something_else(other):
    fields = fields_of(([-1, 2], 0, "int64"))
    with pytest.raises(FieldError):
        fields.batch([(LoDTensor(np.ones((3, 2), np.int64)),), other])


def test_arrays_are_taken_as_they_are():
    x = np.zeros((3, 1), np.float32)
    (tensor,) = fields_of(([1], 0, "float32")).of_arrays([x])
    assert tensor.data is x


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (LoDTensor(np.zeros((2, 3), np.float32)), r"expected shape \(-1, 4\), got \(2, 3\)"),
        (LoDTensor(np.zeros((2, 4, 1), np.float32)), r"expected shape \(-1, 4\), got \(2, 4, 1\)"),
        (LoDTensor(np.zeros(4, np.float32)), r"expected shape \(-1, 4\), got \(4,\)"),
        (LoDTensor(np.zeros((2, 4))), "expected dtype float32, got float64"),
        (LoDTensor(np.zeros((2, 4), np.float32), [[0, 2]]), "expected lod_level 0, got 1"),
    ],
)
def test_a_tensor_that_is_not_what_is_declared(tensor, message):
    fields = fields_of(([-1, 4], 0, "float32"))
    with pytest.raises(FieldError, match=f"owner: field 'field_0': {message}"):
        fields((tensor,))
    with pytest.raises(FieldError, match=message):
        fields.batch([(tensor,)])


def test_another_number_of_tensors():
    with pytest.raises(FieldError, match="owner: expected 2 tensors a sample, got 1"):
        fields_of(*IDS_AND_LABEL)((LoDTensor([1]),))


@pytest.mark.parametrize("sample", [([7], 0.5, 1), ([7],), ([[7, 8]], 0.5), ([7], "x"), ([0.5], 1)])
def test_a_row_that_is_not_what_is_declared(sample):
    with pytest.raises(FieldError):
        fields_of(*IDS_AND_LABEL)(sample)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], []), r"owner.shapes must be a list of one entry a field, got \[\]"),
        (("ab", [0], ["float32"]), "owner.shapes must be a list of one entry a field, got 'ab'"),
        (([[1]], 0, ["float32"]), "owner.lod_levels must be a list of one entry a field, got 0"),
        (([[1]], [0], "float32"), "owner.dtypes must be a list of one entry a field"),
        (([[1]], [0, 1], ["float32"]), "owner.lod_levels must be as many as shapes, 1, got 2"),
        (([[1]], [0], ["float32"] * 3), "owner.dtypes must be as many as shapes, 1, got 3"),
        (([[1]], [0], ["uint32"]), r"data\('field_0'\).dtype must be any of"),
        (([[1]], [-1], ["float32"]), "lod_level must be a whole number >= 0"),
    ],
)
def test_declarations_that_break_a_rule(arguments, message):
    with pytest.raises(FieldError, match=message):
        TensorFields("owner", *arguments)


def test_no_lod_levels_are_levels_of_zero():
    fields = TensorFields("owner", [[1], [2]], None, ["float32", "int64"])
    assert [variable.lod_level for variable in fields.variables] == [0, 0]


def test_declaring_leaves_the_default_program_alone():
    main = Program()
    with program_guard(main):
        fields_of(([1], 0, "float32"))
    assert main.global_block().vars == {}


def test_merging_instances_of_different_width():
    one, two = (LoDTensor([1]),), (LoDTensor([1]), LoDTensor([1]))
    with pytest.raises(FieldError, match=r"expected equally many tensors in each, got \[1, 2\]"):
        merge_instances([one, two])


def test_what_joins_samples_knows_what_they_are():
    assert batched(None)([1, 2]) == [1, 2]
    assert batched(str)([1, 2]) == ["1", "2"]
    (merged,) = batched(lambda number: (LoDTensor([number]),))([1, 2])
    assert merged.to_list() == [1, 2]
    fields = fields_of(*IDS_AND_LABEL)
    assert batched(fields) == fields.batch


def test_requiring_a_tensor():
    with program_guard(Program()):
        x = data("x", [2, 3], append_batch_size=False)
    require_tensor("run", x, LoDTensor(np.zeros((2, 3), np.float32)))
    with pytest.raises(FieldError, match=r"run: field 'x': expected shape \(2, 3\), got \(1, 3\)"):
        require_tensor("run", x, LoDTensor(np.zeros((1, 3), np.float32)))
