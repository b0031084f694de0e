"""define_py_data_sources2: modules, names, lists and arguments."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import gpufeed as gf
from gpufeed.errors import FieldError
from gpufeed.provider import define_py_data_sources2, integer_value, provider


def hook(settings, is_train, offset=0):
    settings.offset = offset + (100 if is_train else 200)


@pytest.fixture
def config(monkeypatch):
    @provider(input_types=[integer_value(1000)], init_hook=hook)
    def process(settings, name):
        yield settings.offset + int(name)

    @provider(input_types=[integer_value(1000)])
    def plain(settings, name):
        yield int(name)

    module = ModuleType("provider_of_this_test")
    module.process, module.plain = process, plain
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def values(reader):
    return sorted(number for (number,) in reader)


def test_it_is_a_public_name():
    assert gf.define_py_data_sources2 is define_py_data_sources2
    assert gf.provider.define_py_data_sources2 is define_py_data_sources2


def test_lists_are_files_or_lists(config, tmp_path):
    path = tmp_path / "train.list"
    path.write_text("1\n2\n")
    train, test = define_py_data_sources2(str(path), ["3"], config.__name__, "process")
    assert (values(train), values(test)) == ([101, 102], [203])
    assert train.is_shuffled
    assert not test.is_shuffled


def test_a_module_may_be_given_itself(config):
    train, _ = define_py_data_sources2(["1"], None, config, "process")
    assert values(train) == [101]


def test_either_list_may_be_missing(config):
    assert define_py_data_sources2(["1"], None, config, "process")[1] is None
    assert define_py_data_sources2(None, ["1"], config, "process")[0] is None
    with pytest.raises(FieldError, match="a train_list or a test_list, got neither"):
        define_py_data_sources2(None, None, config, "process")


def test_arguments_are_for_the_hook(config):
    args = {"offset": 10}
    train, test = define_py_data_sources2(["1"], ["1"], config, "process", args)
    assert (values(train), values(test)) == ([111], [211])


def test_a_hook_s_seed_is_not_that_of_the_order(config):
    def hook(settings, seed):
        settings.start = seed

    @provider(input_types=[integer_value(1000)], init_hook=hook)
    def process(settings, name):
        yield from range(settings.start, settings.start + 30)

    config.process = process
    first, again, other = (
        define_py_data_sources2(["1"], None, config, "process", {"seed": 500}, seed=seed)[0]
        for seed in (1, 1, 2)
    )
    orders = [list(reader) for reader in (first, again, other)]
    assert orders[0] == orders[1] != orders[2]
    assert [sorted(order) for order in orders] == [[(n,) for n in range(500, 530)]] * 3


def test_a_seed_for_a_hook_that_takes_none(config):
    with pytest.raises(TypeError, match="unexpected keyword argument 'seed'"):
        define_py_data_sources2(["1"], None, config, "process", {"seed": 1})
    with pytest.raises(TypeError, match="arguments seed are for an init_hook, got none"):
        define_py_data_sources2(["1"], None, config, "plain", {"seed": 1})


def test_what_a_hook_gets_anyway_is_no_argument(config):
    with pytest.raises(TypeError, match="receives is_train from the provider itself"):
        define_py_data_sources2(["1"], None, config, "process", {"is_train": False})


def test_training_and_testing_may_differ(config):
    train, test = define_py_data_sources2(
        ["1"], ["1"], [config, config], ("process", "plain"), ({"offset": 10}, None)
    )
    assert (values(train), values(test)) == ([111], [1])


def test_names_and_seed_are_passed_on(config):
    train, _ = define_py_data_sources2(["1"], None, config, "process", input_order=["x"], seed=3)
    assert train.names == ("x",)
    assert train.state_dict()["delivered"] == 0


def test_a_pair_is_two(config):
    with pytest.raises(FieldError, match="a pair must have one for training and one for testing"):
        define_py_data_sources2(["1"], None, config, ["process"])


@pytest.mark.parametrize("name", ["nothing", "__name__"])
def test_the_object_is_a_provider(config, name):
    message = rf"must name what @provider decorates in provider_of_this_test, got '{name}'"
    with pytest.raises(FieldError, match=message):
        define_py_data_sources2(["1"], None, config, name)


@pytest.mark.parametrize("name", [3, None])
def test_the_object_is_named(config, name):
    with pytest.raises(FieldError, match=rf"define_py_data_sources2\.obj must name .*got {name}"):
        define_py_data_sources2(["1"], None, config, name)


def test_a_module_is_one(config):
    with pytest.raises(FieldError, match=r"\.module must be a module or its name, got 3"):
        define_py_data_sources2(["1"], None, 3, "process")


@pytest.mark.parametrize("args", [3, 0, "offset", {3: 1}])
def test_arguments_are_keywords(config, args):
    with pytest.raises(FieldError, match=r"\.args must map keywords to values, got"):
        define_py_data_sources2(["1"], None, config, "process", args)


def test_a_missing_module_is_an_import_error():
    with pytest.raises(ImportError, match="no_such_module"):
        define_py_data_sources2(["1"], None, "no_such_module", "process")
