"""What @provider is told: its rules, what sizes mean, and what a hook receives."""

from __future__ import annotations

import logging

import pytest

from gpufeed.errors import FieldError
from gpufeed.provider import CacheType
from gpufeed.provider.options import DEFAULT_POOL_SIZE, Options, Settings, call_hook
from gpufeed.reader.skipping import Skip


def settings(**options):
    return Settings.of(Options(**options), ["a"], True, None)


@pytest.mark.parametrize("given", [1, "t", "true", "on", "T", "True", "ON", "1", True])
def test_spellings_of_shuffling(given):
    assert Options(should_shuffle=given).should_shuffle is True


@pytest.mark.parametrize("given", [0, "f", "false", "off", "F", "False", "0", False])
def test_spellings_of_not_shuffling(given):
    assert Options(should_shuffle=given).should_shuffle is False


def test_shuffling_may_be_left_open():
    assert Options().should_shuffle is None


@pytest.mark.parametrize("given", ["123", 2, "yes", [], 1.0])
def test_other_words_are_refused(given):
    with pytest.raises(FieldError, match=r"provider\.should_shuffle must be a bool, None or any"):
        Options(should_shuffle=given)


FLAGS = ["can_over_batch_size", "check", "check_fail_continue"]


@pytest.mark.parametrize("name", FLAGS)
def test_the_other_flags_are_spelled_so_too(name):
    for given, means in [("on", True), ("off", False), (1, True), (0, False)]:
        assert getattr(Options(**{name: given}), name) is means


@pytest.mark.parametrize("given", ["raise", 2, None, []])
@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_flags(name, given):
    with pytest.raises(FieldError, match=rf"provider\.{name} must be a bool.* or any of 1, t,"):
        Options(**{name: given})


@pytest.mark.parametrize(
    ("sizes", "block_size", "num_ahead"),
    [
        ({}, DEFAULT_POOL_SIZE, DEFAULT_POOL_SIZE),
        ({"pool_size": 100}, 100, 0),
        ({"pool_size": 100, "min_pool_size": 30}, 30, 70),
        ({"pool_size": 100, "min_pool_size": 1000}, 100, 0),
        ({"min_pool_size": 10_000}, 10_000, 10_000),
        ({"min_pool_size": 30}, 30, DEFAULT_POOL_SIZE),
        ({"min_pool_size": 0}, 0, DEFAULT_POOL_SIZE),
    ],
)
def test_what_is_shuffled_at_once_and_read_ahead(sizes, block_size, num_ahead):
    options = Options(**sizes)
    assert (options.block_size, options.num_ahead) == (block_size, num_ahead)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"pool_size": 0}, r"provider\.pool_size must be -1 or >= 1, got 0"),
        ({"pool_size": -2}, r"provider\.pool_size must be -1 or >= 1, got -2"),
        ({"min_pool_size": -2}, r"provider\.min_pool_size must be -1 or >= 0, got -2"),
        ({"pool_size": "9"}, r"provider\.pool_size must be a whole number, got '9'"),
        ({"max_open_files": 0}, r"provider\.max_open_files must be a whole number >= 1, got 0"),
        ({"cache": 2}, r"provider\.cache must be one of CacheType\.NO_CACHE, .*got 2"),
        ({"cache": "all"}, r"provider\.cache must be one of CacheType\.NO_CACHE, .*got 'all'"),
        ({"calc_batch_size": 3}, r"provider\.calc_batch_size must be a function or None, got 3"),
    ],
)
def test_rules(bad, message):
    with pytest.raises(FieldError, match=message):
        Options(**bad)


@pytest.mark.parametrize(
    ("given", "policy"), [(False, None), (True, Skip()), (Skip(max=3), Skip(max=3))]
)
def test_what_becomes_of_samples_that_fail(given, policy):
    assert Options(check_fail_continue=given).skip_policy == policy


def test_a_hook_may_take_everything():
    got = {}

    def hook(settings, **given):
        got.update(given)

    call_hook(hook, settings(), {"dictionary": {"a": 1}})
    assert got == {
        "file_list": ["a"],
        "is_train": True,
        "input_order": None,
        "dictionary": {"a": 1},
    }


def test_a_hook_gets_no_more_than_it_takes():
    got = []
    call_hook(
        lambda settings, is_train, scale: got.append((is_train, scale)), settings(), {"scale": 2}
    )
    call_hook(lambda settings: got.append(settings.file_list), settings(), {})
    assert got == [(True, 2), ["a"]]


def test_a_hook_must_take_what_the_user_gives():
    with pytest.raises(TypeError, match="dictionary"):
        call_hook(lambda settings: None, settings(), {"dictionary": {}})


@pytest.mark.parametrize("name", ["file_list", "is_train", "input_order", "settings"])
def test_a_hook_gets_nothing_twice(name):
    def hook(settings, **given):
        pytest.fail("it was called")

    message = rf"an init_hook receives {name} from the provider itself; .*, which are size, {name}$"
    with pytest.raises(TypeError, match=message):
        call_hook(hook, settings(), {"size": 3, name: None})


def test_a_keyword_may_be_named_as_our_settings_are():
    got = []
    call_hook(lambda first, *, settings: got.append(settings), settings(), {"settings": 4})
    call_hook(lambda first, /, **given: got.append(given["first"]), settings(), {"first": 5})
    assert got == [4, 5]


def test_arguments_need_a_hook():
    with pytest.raises(
        TypeError, match=r"arguments dictionary, size are for an init_hook, got none"
    ):
        call_hook(None, settings(), {"dictionary": {}, "size": 3})


def test_settings_hold_the_options_and_a_logger():
    found = settings(pool_size=50, cache=CacheType.CACHE_PASS_IN_MEM)
    assert (found.pool_size, found.cache, found.input_types) == (50, 1, None)
    assert found.logger is logging.getLogger("gpufeed.provider")


def test_what_a_hook_sets_is_checked_again():
    found = settings(pool_size=50)
    found.pool_size = 70
    found.words = {"a": 1}
    assert found.options().pool_size == 70
    found.pool_size = 0
    with pytest.raises(FieldError, match="pool_size"):
        found.options()


def test_the_old_name_of_input_types():
    found = settings()
    found.slots = ["types"]
    with pytest.warns(DeprecationWarning, match="slots"):
        assert found.options().input_types == ["types"]
