from __future__ import annotations

from itertools import chain, count, islice
from weakref import ref

import pytest

from gpufeed.errors import FieldError
from gpufeed.grouping import deal, group_batches

BATCHES = [[1, 2], [3, 4], [5, 6], [7, 8], [9]]


def group(batches, num_places, *, drop_last=True, remainder=None):
    return list(group_batches(batches, num_places, drop_last=drop_last, remainder=remainder))


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("remainder", [None, "split", "partial"])
def test_full_groups_are_passed_on_unchanged(drop_last, remainder):
    options = {"drop_last": drop_last, "remainder": remainder}
    assert group(BATCHES, 5, **options) == [BATCHES]
    assert group(BATCHES, 1, **options) == [[batch] for batch in BATCHES]
    assert group(BATCHES[:4], 2, **options) == [BATCHES[:2], BATCHES[2:4]]
    assert group([], 2, **options) == []


def test_left_over_batches_are_dropped():
    assert group(BATCHES, 2) == [BATCHES[:2], BATCHES[2:4]]
    assert group(BATCHES, 6) == []


def test_left_over_batches_are_an_error_after_the_last_full_group():
    groups = group_batches(BATCHES, 2, drop_last=False, remainder=None)
    assert list(islice(groups, 2)) == [BATCHES[:2], BATCHES[2:4]]
    with pytest.raises(FieldError, match="1 batches are left over, which do not fill 2 devices"):
        next(groups)


@pytest.mark.parametrize("drop_last", [True, False])
def test_left_over_batches_may_make_a_shorter_list(drop_last):
    options = {"drop_last": drop_last, "remainder": "partial"}
    assert group(BATCHES, 2, **options) == [BATCHES[:2], BATCHES[2:4], BATCHES[4:]]
    assert group(BATCHES, 6, **options) == [BATCHES]


@pytest.mark.parametrize("drop_last", [True, False])
def test_left_over_samples_may_be_shared(drop_last):
    options = {"drop_last": drop_last, "remainder": "split"}
    assert group(BATCHES, 3, **options) == [BATCHES[:3], [[7], [8], [9]]]
    assert group(BATCHES, 4, **options)[-1] == [[9], [], [], []]
    assert group([(), iter([])], 3, **options) == [[[], [], []]]


def test_batches_are_read_one_group_ahead_and_no_further():
    read = count(1)
    groups = group_batches(
        (batch for batch in BATCHES if next(read)), 2, drop_last=True, remainder=None
    )
    assert next(groups) == BATCHES[:2]
    assert next(read) == 3


def test_a_group_is_not_kept_by_the_generator():
    class Batch(list):
        """A list that can be referred to weakly."""

    groups = group_batches(map(Batch, BATCHES), 2, drop_last=True, remainder=None)
    first = ref(next(groups)[0])
    next(groups)
    assert first() is None


def test_the_readers_exception_comes_after_the_groups_before_it():
    def batches():
        yield from BATCHES[:3]
        raise OSError("the reader's own")

    groups = group_batches(batches(), 2, drop_last=True, remainder=None)
    assert next(groups) == BATCHES[:2]
    with pytest.raises(OSError, match="the reader's own"):
        next(groups)


@pytest.mark.parametrize("num_samples", range(12))
@pytest.mark.parametrize("num_places", range(1, 6))
def test_samples_are_dealt_in_order_and_evenly(num_samples, num_places):
    samples = [object() for _ in range(num_samples)]
    parts = deal(samples, num_places)
    sizes = [len(part) for part in parts]
    assert list(chain.from_iterable(parts)) == samples
    assert len(parts) == num_places
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("remainder", "last"), [(None, []), ("partial", [[[3]]]), ("split", [[[3], []]])]
)
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_failing_reader_loses_nothing_that_the_remainder_keeps(remainder, last, drop_last):
    def read():
        yield from [[1], [2], [3]]
        raise LookupError("broken")

    groups = group_batches(read(), 2, drop_last=drop_last, remainder=remainder)
    assert next(groups) == [[1], [2]]
    assert [next(groups) for _ in last] == last
    with pytest.raises(LookupError, match="broken"):
        next(groups)
