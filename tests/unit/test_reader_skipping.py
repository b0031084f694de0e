"""`on_error`: what may be skipped, how it is counted and told, and that resuming counts again."""

from __future__ import annotations

import json
import logging

import pytest
from support.readers import BrokenError, counting, taken_until

import gpufeed as gf
from gpufeed.errors import FieldError
from gpufeed.reader import (
    Skip,
    batch,
    buffered,
    chain,
    firstn,
    interleave,
    map_readers,
    repeat,
)
from gpufeed.reader.skipping import NUM_ORDINALS, SkipLog, Skipped, skip_policy


def fail_on(*numbers):
    def mapper(sample):
        if sample in numbers:
            raise BrokenError(sample)
        return sample

    return mapper


def test_policies():
    assert skip_policy("x.on_error", "raise") is None
    assert skip_policy("x.on_error", "skip") == Skip(max=None, rate=None)
    assert skip_policy("x.on_error", Skip(max=3.0)) == Skip(max=3)
    assert gf.Skip is Skip


@pytest.mark.parametrize("given", ["ignore", None, True, Skip])
def test_what_is_no_policy(given):
    with pytest.raises(FieldError, match=r"map_readers.on_error must be 'raise', 'skip' or a Skip"):
        map_readers(abs, counting(3), on_error=given)


@pytest.mark.parametrize("max_skipped", [-1, 1.5, "1", True])
def test_max_is_a_count(max_skipped):
    with pytest.raises(FieldError, match=r"Skip.max must be a whole number >= 0, got"):
        Skip(max=max_skipped)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), "1", True])
def test_rate_is_a_share(rate):
    with pytest.raises(FieldError, match=r"Skip.rate must be a number from 0 to 1 or None, got"):
        Skip(rate=rate)


def test_a_rate_allows_one_failure_for_each_of_its_shares():
    policy = Skip(rate=1e-3)
    assert policy.allows(1, 1)
    assert not policy.allows(2, 1000)
    assert policy.allows(2, 1001)
    assert not Skip(rate=0).allows(1, 10**6)


def test_both_limits_hold():
    policy = Skip(max=2, rate=0.5)
    assert policy.allows(2, 4)
    assert not policy.allows(2, 2)
    assert not policy.allows(3, 100)


def test_samples_that_fail_are_left_out_and_counted():
    reader = map_readers(fail_on(1, 4), counting(6), on_error="skip")
    assert list(reader) == [0, 2, 3, 5]
    assert reader.skipped() == {"count": 2, "ordinals": [1, 4]}
    assert reader.state_dict()["skipped"] == {"count": 2, "ordinals": [1, 4]}


def test_nothing_but_exceptions_of_the_sample_is_skipped():
    def interrupted(sample):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(map_readers(interrupted, counting(2), on_error="skip"))


def test_the_failure_that_passes_the_limit_is_raised_itself():
    reader = map_readers(fail_on(1, 3, 5), counting(9), on_error=Skip(max=2))
    taken, error = taken_until(reader)
    assert taken == [0, 2, 4]
    assert isinstance(error, BrokenError)
    assert error.__notes__ == [
        "map_readers: sample 5 failed, and 2 before it were skipped; "
        "Skip(max=2, rate=None) allows no more"
    ]
    assert reader.skipped()["count"] == 2


def test_limits_hold_for_each_pass():
    reader = map_readers(fail_on(1), counting(3), on_error=Skip(max=1))
    assert [list(reader), list(reader)] == [[0, 2]] * 2
    assert reader.skipped()["count"] == 1


def test_each_inner_pass_has_the_limit_and_all_are_counted():
    reader = repeat(map_readers(fail_on(1), counting(3), on_error=Skip(max=1)), 3)
    assert list(reader) == [0, 2] * 3
    assert reader.skipped() == {"count": 3, "ordinals": [1, 1, 1]}


def test_the_consumer_sees_what_every_stage_skipped():
    inner = map_readers(fail_on(0), counting(9), on_error="skip")
    reader = batch(buffered(map_readers(fail_on(5), inner, on_error="skip"), 2), 4)
    assert list(reader) == [[1, 2, 3, 4], [6, 7, 8]]
    assert reader.skipped() == {"count": 2, "ordinals": [0, 4]}


def test_a_stage_that_is_read_twice_is_counted_once_a_time():
    stage = map_readers(fail_on(1), counting(3), on_error="skip")
    reader = chain(stage, stage)
    assert list(reader) == [0, 2, 0, 2]
    assert reader.skipped() == {"count": 2, "ordinals": [1, 1]}


def test_stats_of_a_feed_reader_count_what_was_skipped():
    with gf.program_guard(gf.Program()):
        feeder = gf.DataFeeder([gf.data("x", [1], "int64")], "cpu")
    samples = map_readers(fail_on(1, 3), counting(6), on_error="skip")
    reader = feeder.decorate_reader(batch(samples, 2))
    assert [feed["x"].numpy().ravel().tolist() for feed in reader] == [[0, 2], [4, 5]]
    assert reader.stats().num_skipped == 2
    assert reader.state_dict()["skipped"] == {"count": 2, "ordinals": [1, 3]}


def test_resuming_runs_again_and_counts_again():
    def pipeline():
        return map_readers(fail_on(1, 4), counting(8), on_error="skip")

    reader = pipeline()
    assert list(firstn(lambda: reader, 3)) == [0, 2, 3]
    state = json.loads(json.dumps(reader.state_dict()))
    assert state["skipped"] == {"count": 1, "ordinals": [1]}
    again = pipeline()
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert list(again) == [5, 6, 7]
    assert again.skipped() == {"count": 2, "ordinals": [1, 4]}
    again.set_epoch(5)
    assert again.skipped()["count"] == 2  # of the last pass


def test_readers_that_are_read_again_from_the_beginning_count_once():
    """As one ends before its share, what was skipped of the others is found by reading."""

    def make():
        return interleave(
            map_readers(fail_on(1, 8), counting(9), on_error="skip"), map_readers(abs, counting(2))
        )

    reader = make()
    samples = iter(reader)
    assert [next(samples) for _ in range(7)] == [0, 0, 2, 1, 3, 4, 5]
    again = make()
    again.load_state_dict(reader.state_dict())
    assert list(again) == [6, 7]
    assert again.skipped() == {"count": 2, "ordinals": [1, 8]}


@pytest.mark.parametrize("num", range(6))
def test_batches_count_once_what_was_skipped_also_where_nothing_is_left_to_read(num):
    def make():
        skipping = map_readers(fail_on(1, 8), counting(11), on_error="skip")
        return batch(batch(skipping, 2), 1)

    reader = make()
    samples = iter(reader)
    for _ in range(num):
        next(samples, None)
    again = make()
    again.load_state_dict(reader.state_dict())
    assert list(again) == list(make())[num:]
    assert again.skipped() == {"count": 2, "ordinals": [1, 8]}


def test_limits_are_no_part_of_the_fingerprint_but_skipping_is():
    state = map_readers(abs, counting(3), on_error="skip").state_dict()
    map_readers(abs, counting(3), on_error=Skip(max=3)).load_state_dict(state)
    with pytest.raises(gf.ReaderError, match="fingerprint"):
        map_readers(abs, counting(3)).load_state_dict(state)


def test_only_the_last_ordinals_are_kept():
    skipped = Skipped()
    for ordinal in range(40):
        skipped.add(ordinal)
    skipped.add(100, num_samples=3)
    assert skipped.count == 43
    assert list(skipped.ordinals) == [*range(27, 40), 100, 101, 102]
    skipped.add(200, num_samples=10**9)
    assert len(skipped.ordinals) == NUM_ORDINALS
    assert skipped.ordinals[-1] == 200 + 10**9 - 1


def test_samples_may_be_lost_together():
    skipped = Skipped()
    log = SkipLog("recordio", Skip(max=9), skipped)
    log.skip(5, BrokenError(), num_samples=9)
    assert skipped.count == log.count == 9
    with pytest.raises(BrokenError):
        log.skip(20, BrokenError())


def test_a_warning_comes_at_each_power_of_ten(caplog):
    log = SkipLog("stage", Skip(), Skipped())
    with caplog.at_level(logging.WARNING, "gpufeed"):
        for ordinal in range(120):
            log.skip(ordinal, ValueError("bad"))
    assert [record.getMessage() for record in caplog.records] == [
        "stage: skipped sample 0 (1 so far in this pass): ValueError('bad')",
        "stage: skipped sample 9 (10 so far in this pass): ValueError('bad')",
        "stage: skipped sample 99 (100 so far in this pass): ValueError('bad')",
    ]
    # Which are kept by many a handler, and would keep what an error's traceback does.
    assert not any(isinstance(each, Exception) for one in caplog.records for each in one.args)
