from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

from gpufeed.errors import FieldError
from gpufeed.fields import FieldMap

Pair = namedtuple("Pair", "ids label")
PAIR = FieldMap(["ids", "label"])
ROWS = [([7, 8], 1), ([9], 0)]
COLUMNS = [[[7, 8], [9]], [1, 0]]


def columns(fields, batch):
    return [list(column) for column in fields.columns(batch)]


@pytest.mark.parametrize(
    "batch",
    [
        ROWS,
        tuple(ROWS),
        [list(row) for row in ROWS],
        [ROWS[0], list(ROWS[1])],
        [Pair(*row) for row in ROWS],
        [Pair(*ROWS[0]), ROWS[1]],
        (row for row in ROWS),
        iter(ROWS),
        dict(enumerate(ROWS)).values(),
        [{"ids": ids, "label": label} for ids, label in ROWS],
        [{"label": label, "extra": None, "ids": ids} for ids, label in ROWS],
        [OrderedDict(ids=ROWS[0][0], label=1), {"ids": [9], "label": 0}],
    ],
)
def test_every_form_of_a_batch_has_the_same_columns(batch):
    assert columns(PAIR, batch) == COLUMNS


@pytest.mark.parametrize("batch", [[3, 4], (3, 4), iter([3, 4]), range(3, 5), np.array([3, 4])])
def test_bare_values_are_the_one_field(batch):
    assert columns(FieldMap(["x"]), batch) == [[3, 4]]


def test_one_field_may_be_given_as_a_row_of_one():
    assert columns(FieldMap(["x"]), [(3,), [4]]) == [[3, 4]]


def test_an_array_is_a_value_not_a_row():
    first, second = np.arange(2), np.arange(3)
    (column,) = FieldMap(["x"]).columns([first, second])
    assert column[0] is first
    assert column[1] is second


@pytest.mark.parametrize("batch", [[], (), iter([]), np.empty((0, 2))])
def test_no_samples_are_empty_columns(batch):
    assert columns(PAIR, batch) == [[], []]
    assert columns(FieldMap(["x"], {"x": 5}), batch) == [[]]


def test_feeding_takes_skips_and_reuses_columns():
    rows = [(1, 2, 3), [4, 5, 6]]
    fields = FieldMap(["a", "b", "c"], {"c": 0, "a": 2, "b": 2})
    assert columns(fields, rows) == [[3, 6], [3, 6], [1, 4]]


def test_feeding_does_not_mind_longer_rows():
    fields = FieldMap(["a"], {"a": 1})
    assert columns(fields, [(1, 2), (3, 4, 5)]) == [[2, 4]]


def test_feeding_leaves_mappings_alone():
    fields = FieldMap(["a", "b"], {"a": 1, "b": 0})
    assert columns(fields, [{"a": 1, "b": 2}]) == [[1], [2]]


@pytest.mark.parametrize(
    ("feeding", "message"),
    [
        (["a", "b"], r"must map names to columns, got \['a', 'b'\]"),
        (1, "must map names to columns, got 1"),
        ({"a": 0}, r"must name \['a', 'b'\], got \['a'\]"),
        ({"a": 0, "b": 1, "c": 2}, r"must name .* got \['a', 'b', 'c'\]"),
        ({"a": 0, 1: 1}, r"must name .* got \['1', 'a'\]"),
        ({"a": 0, "b": -1}, r"feeding\['b'\] must be a whole number >= 0, got -1"),
        ({"a": True, "b": 0}, r"feeding\['a'\] must be a whole number >= 0, got True"),
        ({"a": 0, "b": 0.5}, r"feeding\['b'\] must be a whole number >= 0, got 0.5"),
    ],
)
def test_feeding_is_checked_when_it_is_given(feeding, message):
    with pytest.raises(FieldError, match=message):
        FieldMap(["a", "b"], feeding)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([(1, 2), (1,)], r"sample 1: expected 2 fields \(ids, label\), got 1 .*\(x,\)"),
        ([(1, 2), (1, 2, 3)], r"sample 1: expected 2 fields .* got 3"),
        ([(1,), (1,)], r"sample 0: expected 2 fields .* got 1"),
        ([()], r"sample 0: expected 2 fields .* got 0"),
        ([(1, 2), 3], r"sample 1: expected 2 fields .* got int"),
        ([(1, 2), None], r"sample 1: expected 2 fields .* got NoneType"),
        ([(1, 2), {"ids": 1}], r"sample 1: expected 2 fields .* got dict"),
        ([(1, 2), {0: 1, 1: 2}], r"sample 1: expected 2 fields \(ids, label\), got dict"),
        ([(1, 2), {7, 8}], r"sample 1: expected 2 fields .* got set"),
        ([(1, 2), b"ab"], r"sample 1: expected 2 fields .* got bytes"),
        ([[1, 2], np.array([1, 2])], r"sample 1: expected 2 fields .* got ndarray"),
        ([(1, 2), iter([1, 2])], r"sample 1: expected 2 fields .* got list_iterator"),
        ([3, (1, 2)], r"sample 1: expected the bare value of one field, .* got tuple"),
        ([{"ids": 1, "label": 2}, (1, 2)], r"sample 1: expected a dict, .* got tuple"),
        ([{"ids": 1, "label": 2}, 3], r"sample 1: expected a dict, .* got int"),
        ([3, {"ids": 1}], r"sample 1: expected the bare value .* got dict"),
        ([3, 4], r"sample 0: expected 2 fields .* got int"),
        ([np.array([1, 2])], r"sample 0: expected 2 fields .* got ndarray"),
        ([{"ids": 1, "label": 2}, {"ids": 1}], r"sample 1: expected a field 'label', got ids"),
        ([{}], r"sample 0: expected a field 'ids', got none"),
    ],
)
def test_a_sample_that_does_not_fit_is_named(batch, message):
    with pytest.raises(FieldError, match=message):
        PAIR.columns(batch)


def test_a_row_too_short_for_feeding_is_named():
    fields = FieldMap(["a"], {"a": 2})
    with pytest.raises(FieldError, match=r"sample 1: expected at least 3 fields .* got 2"):
        fields.columns([(1, 2, 3), (1, 2)])


def test_bare_values_have_only_column_0():
    assert columns(FieldMap(["x"], {"x": 0}), [3, 4]) == [[3, 4]]
    with pytest.raises(FieldError, match="sample 0: expected at least 2 fields"):
        FieldMap(["x"], {"x": 1}).columns([3, 4])


@pytest.mark.parametrize("batch", [3, None, len, {"ids": [1]}, "ab", b"ab", np.array(3)])
def test_what_holds_no_samples_is_no_batch(batch):
    with pytest.raises(FieldError, match="a mini-batch must be an iterable of samples, got"):
        PAIR.columns(batch)


def test_a_failing_iterator_keeps_its_own_exception():
    def samples():
        yield 1, 2
        raise TypeError("the reader's own")

    with pytest.raises(TypeError, match="the reader's own"):
        PAIR.columns(samples())


def test_a_mapping_that_denies_its_own_key_is_named():
    class Liar(dict):
        def __getitem__(self, key):
            raise KeyError(key)

    with pytest.raises(FieldError, match="field 'ids': a sample's mapping does not answer"):
        PAIR.columns([Liar(ids=1, label=2)])
