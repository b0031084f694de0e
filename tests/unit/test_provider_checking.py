"""Checks of many rows at once: they say of every value what the check of one row says."""

from __future__ import annotations

import pytest
from support.slots import BAD, GOOD

from gpufeed.errors import FieldError
from gpufeed.provider import integer_value, sparse_binary_vector_sequence
from gpufeed.provider.checking import Checks
from gpufeed.provider.slots import Slots
from gpufeed.reader.skipping import Skip, SkipLog, Skipped


@pytest.mark.parametrize(("kind", "value"), GOOD)
def test_rows_that_fit_pass_together(kind, value):
    checks = Checks(Slots([kind]), None)
    assert checks.admits_all([(value,)] * 3)
    assert list(checks.admitted([(value,)], "process('a')")) == [(value,)]


@pytest.mark.parametrize(("kind", "value", "message"), BAD)
def test_one_row_that_does_not_fit_is_found(kind, value, message):
    good = next(given for known, given in GOOD if known == kind)
    checks = Checks(Slots([kind]), None)
    rows = [(good,), (value,), (good,)]
    assert not checks.admits_all(rows)
    admitted = checks.admitted(rows, "process('a')", 4)
    assert next(admitted) == (good,)
    with pytest.raises(FieldError, match=rf"^process\('a'\): field 'slot 0', sample 5.*{message}"):
        next(admitted)


@pytest.mark.parametrize("row", [(), (1,), (1, 2, 3)])
def test_rows_have_every_slot(row):
    checks = Checks(Slots([integer_value(5), integer_value(5)]), None)
    assert not checks.admits_all([(1, 2), row])


def test_the_same_index_in_two_rows_is_no_repetition():
    checks = Checks(Slots([sparse_binary_vector_sequence(5)]), None)
    assert checks.admits_all([([[1], [1]],), ([[1, 2], []],)])


def test_no_rows_are_in_order():
    assert Checks(Slots([integer_value(5)]), None).admits_all([])


def test_ordinals_count_all_rows_of_a_pass():
    skipped = Skipped()
    checks = Checks(Slots([integer_value(5)]), SkipLog("files", Skip(), skipped))
    assert checks.admits_all([(1,), (2,)])
    for call in ("process('a')", "process('b')"):
        assert list(checks.admitted([(3,), (7,), (4,)], call)) == [(3,), (4,)]
    assert (skipped.count, list(skipped.ordinals)) == (2, [3, 6])
