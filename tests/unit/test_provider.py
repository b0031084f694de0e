"""@provider: what the decorator makes, how it pools and cuts, and what it feeds."""

from __future__ import annotations

import random
from itertools import pairwise

import cloudpickle
import numpy as np
import pytest
from support.readers import BrokenError, taken_until

from gpufeed.errors import FieldError, ReaderError
from gpufeed.provider import (
    CacheType,
    Provider,
    ProviderFactory,
    dense_vector,
    integer_value,
    integer_value_sequence,
    provider,
    sparse_binary_vector,
)
from gpufeed.reader import shard
from gpufeed.variables import Program, data, default_main_program, program_guard

COUNT = [integer_value(10_000)]


def counting(num, **options):
    """A provider of ``num`` samples a file, each the file's number and its own."""

    @provider(**{"input_types": [integer_value(10), integer_value(10_000)], **options})
    def process(settings, name):
        for number in range(num):
            yield int(name), number

    return process


def numbers(rows):
    return [number for _, number in rows]


class TestDecorator:
    def test_it_keeps_the_name_and_the_documentation(self):
        @provider(input_types=COUNT)
        def read_lines(settings, name):
            """Lines of text."""

        assert isinstance(read_lines, ProviderFactory)
        assert read_lines.__name__ == "read_lines"
        assert read_lines.__doc__ == "Lines of text."
        assert "read_lines" in repr(read_lines)

    def test_it_decorates_functions(self):
        with pytest.raises(TypeError, match="provider must decorate a function, got 5"):
            provider(input_types=COUNT)(5)

    def test_it_has_arguments(self):
        with pytest.raises(TypeError, match=r"must be called before it decorates: @provider\("):

            @provider
            def process(settings, name):
                yield 1

    def test_a_hook_is_a_function(self):
        with pytest.raises(FieldError, match=r"provider\.init_hook must be a function or None, go"):
            provider(input_types=COUNT, init_hook=5)

    def test_arguments_are_checked_at_once(self):
        with pytest.raises(FieldError, match=r"provider\.pool_size"):
            provider(input_types=COUNT, pool_size=0)

    def test_unknown_arguments_are_errors(self):
        with pytest.raises(TypeError, match="pool_sise"):
            provider(input_types=COUNT, pool_sise=0)

    def test_the_old_name_of_input_types(self):
        with pytest.warns(DeprecationWarning, match="slots= is input_types="):
            decorate = provider(slots=COUNT)
        assert decorate(lambda settings, name: [1])(["a"]).input_types == tuple(COUNT)

    def test_positional_arguments_are_those_of_the_reference(self):
        calc = len
        made = provider(COUNT, False, 7, 5, False, calc, CacheType.CACHE_PASS_IN_MEM, True, True)
        options = made(lambda settings, name: ()).options
        assert (options.input_types, options.should_shuffle) == (COUNT, False)
        assert (options.pool_size, options.min_pool_size) == (7, 5)
        assert (options.can_over_batch_size, options.calc_batch_size) == (False, calc)
        assert (options.cache, options.check, options.check_fail_continue) == (1, True, True)

    def test_types_are_needed_when_a_provider_is_made(self):
        made = provider()(lambda settings, name: ())
        with pytest.raises(FieldError, match=r"input_types must be a list or dict .*init_hook"):
            made(["a"])


class TestHook:
    def test_it_may_set_the_types(self):
        def hook(settings, dictionary, **others):
            settings.input_types = {"words": integer_value_sequence(len(dictionary))}
            settings.dictionary = dictionary

        @provider(init_hook=hook, input_types=COUNT)
        def process(settings, name):
            yield [settings.dictionary[word] for word in name.split()]

        reader = process(["b a", "c"], False, dictionary={"a": 0, "b": 1, "c": 2})
        assert reader.names == ("words",)
        assert reader.input_types == (integer_value_sequence(3),)
        assert list(reader) == [([1, 0],), ([2],)]

    def test_it_is_called_for_each_provider(self):
        calls = []

        def hook(settings, is_train, file_list, **others):
            calls.append((is_train, file_list, others))

        made = counting(3, init_hook=hook)
        made(["1"], is_train=True, input_order=["a", "b"])
        made(["2", "3"], is_train=False)
        assert calls == [
            (True, ["1"], {"input_order": ["a", "b"]}),
            (False, ["2", "3"], {"input_order": None}),
        ]

    def test_it_may_change_the_other_settings(self):
        def hook(settings):
            settings.should_shuffle = False
            settings.logger.debug("made")

        assert numbers(counting(20, init_hook=hook)(["1"])) == list(range(20))

    def test_without_it_there_are_no_arguments(self):
        with pytest.raises(TypeError, match="dictionary"):
            counting(3)(["1"], dictionary={})


class TestOrder:
    def test_training_shuffles_and_testing_does_not(self):
        made = counting(50)
        assert numbers(made(["1"], is_train=False)) == list(range(50))
        shuffled = numbers(made(["1"], is_train=True))
        assert shuffled != list(range(50))
        assert sorted(shuffled) == list(range(50))

    @pytest.mark.parametrize("is_train", [True, False])
    def test_should_shuffle_decides(self, is_train):
        assert numbers(counting(50, should_shuffle="f")(["1"], is_train)) == list(range(50))
        assert numbers(counting(50, should_shuffle="t")(["1"], is_train)) != list(range(50))

    def test_a_seed_fixes_the_order_of_every_epoch(self):
        def passes(seed):
            reader = counting(30)(["1", "2"], seed=seed)
            return [list(reader) for _ in range(2)]

        assert passes(3) == passes(3)
        assert passes(3)[0] != passes(3)[1]
        assert passes(3) != passes(4)

    def test_without_one_random_seed_does(self):
        reader = counting(30)(["1", "2"])
        random.seed(5)
        first = list(reader)
        random.seed(5)
        assert list(reader) == first != list(reader)

    def test_samples_do_not_leave_their_block(self):
        rows = numbers(counting(100, min_pool_size=10)(["1"], seed=0))
        assert all(
            sorted(rows[at : at + 10]) == list(range(at, at + 10)) for at in range(0, 100, 10)
        )

    def test_the_default_does_not_load_everything(self):
        read = []

        @provider(input_types=COUNT)
        def process(settings, name):
            for number in range(100_000):
                read.append(number)
                yield number

        rows = process(["1"], seed=0)()
        next(rows)
        assert len(read) < 10_000
        rows.close()

    def test_a_seed_is_a_whole_number(self):
        with pytest.raises(FieldError, match=r"provider\.seed must be a whole number >= 0, got -1"):
            counting(3)(["1"], seed=-1)


class TestPosition:
    @pytest.mark.parametrize("cache", CacheType)
    @pytest.mark.parametrize("is_train", [True, False])
    def test_a_state_resumes(self, is_train, cache):
        def make():
            made = counting(40, cache=cache, min_pool_size=16)
            return made([str(n) for n in range(5)], is_train, seed=1).batches(7)

        whole = make()
        expected = [list(whole) for _ in range(3)]
        for epoch, num in [(0, 4), (1, 0), (1, 9), (2, 29)]:
            reader = make()
            reader.set_epoch(epoch)
            batches = reader()
            head = [next(batches) for _ in range(num)]
            state = reader.state_dict()
            batches.close()
            again = make()
            again.load_state_dict(state)
            assert head + list(again) == expected[epoch]

    def test_without_a_seed_a_shuffled_one_says_why_not(self):
        with pytest.raises(ReaderError, match=r"provider shuffles without a seed.*pass it seed="):
            counting(3)(["1"]).state_dict()

    def test_what_keeps_its_order_needs_no_seed(self):
        assert counting(3)(["1"], is_train=False).state_dict()["delivered"] == 0

    def test_a_state_is_of_these_files(self):
        state = counting(3)(["1"], seed=1).state_dict()
        with pytest.raises(ReaderError, match="fingerprint"):
            counting(3)(["2"], seed=1).load_state_dict(state)


class TestCache:
    def read(self, num=50, **options):
        calls = []

        @provider(input_types=COUNT, cache=CacheType.CACHE_PASS_IN_MEM, **options)
        def process(settings, name):
            calls.append(name)
            yield from range(num)

        return process, calls

    def test_later_passes_come_from_memory(self):
        process, calls = self.read()
        reader = process(["1", "2"], seed=0)
        passes = [list(reader) for _ in range(3)]
        assert sorted(calls) == ["1", "2"]
        assert [sorted(rows) for rows in passes] == [sorted(passes[0])] * 3
        assert all(one != other for one, other in pairwise(passes))

    def test_later_passes_mix_all_samples(self):
        process, _ = self.read(num=100, min_pool_size=10)
        reader = process(["1"], seed=0)
        first, second = list(reader), list(reader)
        assert max(first[:10]) == (9,)
        assert max(second[:10]) > (30,)

    def test_testing_keeps_the_order(self):
        process, calls = self.read()
        reader = process(["1"], is_train=False)
        assert list(reader) == list(reader) == [(number,) for number in range(50)]
        assert calls == ["1"]

    def test_an_unfinished_pass_keeps_nothing(self):
        process, calls = self.read()
        reader = process(["1"], is_train=False)
        rows = reader()
        next(rows)
        rows.close()
        assert len(list(reader)) == 50
        assert len(list(reader)) == 50
        assert calls == ["1", "1"]

    def test_how_many_samples_there_are_is_known_after_it(self):
        process, _ = self.read()
        reader = process(["1", "2"], seed=0)
        assert reader.count() is None
        list(reader)
        assert reader.count() == 100

    def test_samples_that_were_left_out_stay_out(self):
        process, calls = self.read(num=10_010, check=True, check_fail_continue=True)
        reader = process(["1"], is_train=False)
        assert [len(list(reader)) for _ in range(2)] == [10_000, 10_000]
        assert calls == ["1"]


class TestBatches:
    @pytest.mark.parametrize("pool_size", [1, 2, 5, 7, 8, 100])
    @pytest.mark.parametrize("is_train", [True, False])
    def test_a_pool_smaller_than_a_batch_does_not_hang(self, pool_size, is_train):
        reader = counting(50, pool_size=pool_size)(["1"], is_train, seed=0).batches(8)
        batches = list(reader)
        assert [len(rows) for rows in batches] == [8] * 6 + [2]
        assert sorted(number for rows in batches for number in numbers(rows)) == list(range(50))

    def test_a_last_short_batch_may_be_left_out(self):
        reader = counting(50)(["1"]).batches(8, drop_last=True)
        assert [len(rows) for rows in reader] == [8] * 6

    @pytest.mark.parametrize("prefetch", [0, 1, 100])
    def test_what_waits_changes_nothing(self, prefetch):
        reader = counting(50, min_pool_size=16)(["1"], seed=1)
        assert list(reader.batches(8, prefetch=prefetch)) == list(reader.batches(8))

    def test_what_waits_is_a_number(self):
        with pytest.raises(
            FieldError, match=r"batches\.prefetch must be a whole number >= 0, got -1"
        ):
            counting(3)(["1"]).batches(8, prefetch=-1)

    def test_batches_have_a_size(self):
        with pytest.raises(FieldError, match=r"batches\.batch_size must be a whole number >= 1"):
            counting(3)(["1"]).batches(0)

    def test_calc_batch_size_may_exceed(self):
        calc = {"calc_batch_size": lambda row: row[1]}
        batches = list(counting(10, **calc)(["1"], False).batches(10))
        assert [numbers(rows) for rows in batches] == [[0, 1, 2, 3, 4], [5, 6], [7, 8], [9]]

    def test_calc_batch_size_may_be_kept_to(self):
        calc = {"calc_batch_size": lambda row: row[1], "can_over_batch_size": False}
        batches = list(counting(10, **calc)(["1"], False).batches(10))
        assert [numbers(rows) for rows in batches] == [[0, 1, 2, 3, 4], [5], [6], [7], [8], [9]]

    @pytest.mark.parametrize("can_over", [True, False])
    def test_calc_batch_size_with_drop_last(self, can_over):
        calc = {"calc_batch_size": lambda row: 3, "can_over_batch_size": can_over}
        batches = list(counting(10, **calc)(["1"], False).batches(9, drop_last=True))
        assert [len(rows) for rows in batches] == [3, 3, 3]

    def test_a_sample_larger_than_a_batch_is_an_error(self):
        calc = {"calc_batch_size": lambda row: row[1], "can_over_batch_size": False}
        taken, error = taken_until(counting(10, **calc)(["1"], False).batches(4))
        assert [numbers(rows) for rows in taken] == [[0, 1, 2], [3], [4]]
        assert isinstance(error, FieldError)
        assert str(error) == (
            "provider.calc_batch_size must be at most the batch size 4 with "
            "can_over_batch_size=False, got 5 for (1, 5)"
        )

    def test_an_oversized_first_sample_is_one_too(self):
        calc = {"calc_batch_size": lambda row: 5, "can_over_batch_size": False}
        with pytest.raises(FieldError, match=r"at most the batch size 4 .*got 5"):
            list(counting(10, **calc)(["1"], False).batches(4))

    @pytest.mark.parametrize("size", [2.5, -1, "2", None])
    @pytest.mark.parametrize("can_over", [True, False])
    def test_sizes_are_whole_numbers(self, can_over, size):
        calc = {"calc_batch_size": lambda row: size, "can_over_batch_size": can_over}
        with pytest.raises(FieldError, match=r"calc_batch_size must be a whole number >= 0"):
            list(counting(10, **calc)(["1"]).batches(4))

    @pytest.mark.parametrize("calc", [None, lambda row: 1])
    @pytest.mark.parametrize("can_over", [True, False])
    def test_what_came_before_an_error_comes_first(self, calc, can_over):
        @provider(input_types=COUNT, calc_batch_size=calc, can_over_batch_size=can_over)
        def process(settings, name):
            yield from range(5)
            raise BrokenError

        taken, error = taken_until(process(["1"], False).batches(3))
        assert [[number for (number,) in rows] for rows in taken] == [[0, 1, 2], [3, 4]]
        assert isinstance(error, BrokenError)

    @pytest.mark.parametrize("can_over", [True, False])
    def test_batches_by_size_resume(self, can_over):
        def make():
            calc = {"calc_batch_size": lambda row: row[1] % 5, "can_over_batch_size": can_over}
            return counting(60, min_pool_size=16, **calc)(["1"], seed=1).batches(9)

        expected = list(make())
        reader = make()
        batches = reader()
        head = [next(batches) for _ in range(6)]
        state = reader.state_dict()
        batches.close()
        again = make()
        again.load_state_dict(state)
        assert head + list(again) == expected


class TestFeeder:
    TYPES = staticmethod(
        lambda: {
            "words": integer_value_sequence(100),
            "tags": sparse_binary_vector(9),
            "label": integer_value(2),
        }
    )

    def made(self, input_types):
        @provider(input_types=input_types)
        def process(settings, name):
            yield [7, 8], [0, 5], 1
            yield [9], [], 0

        return process(["1"], is_train=False)

    def test_it_feeds_the_batches(self):
        reader = self.made(self.TYPES())
        [feed] = reader.feeder("cpu").decorate_reader(reader.batches(2))
        assert list(feed) == ["words", "tags", "label"]
        assert feed["words"].to_list() == [[[7], [8]], [[9]]]
        assert feed["tags"].to_dense().sum() == 2
        assert feed["label"].data.dtype == np.int64

    def test_positional_types_are_called_as_the_program_says(self):
        reader = self.made(list(self.TYPES().values()))
        program = Program()
        with program_guard(program):
            data("a", [1], "int64", lod_level=1)
            data("b", [9], layout="sparse_binary", densify=True)
            data("c", [1], "int32")
            here = reader.feeder("cpu")
        for feeder in (here, reader.feeder("cpu", program)):
            [feed] = map(feeder.feed, reader.batches(2))
            assert list(feed) == ["a", "b", "c"]
            assert feed["b"].shape == (2, 9)
            assert feed["c"].dtype == np.int32

    def test_or_as_input_order_says(self):
        reader = counting(3)(["1"], False, ["file", "number"])
        [feed] = map(reader.feeder("cpu").feed, reader.batches(3))
        assert list(feed) == ["file", "number"]

    def test_it_declares_nothing(self):
        before = dict(default_main_program().global_block().vars)
        self.made(self.TYPES()).feeder("cpu")
        assert default_main_program().global_block().vars == before

    def test_variables_are_those_it_feeds(self):
        reader = self.made(self.TYPES())
        assert [one.name for one in reader.variables()] == ["words", "tags", "label"]

    def test_it_may_feed_many_places(self):
        reader = counting(8)(["1"], False, ["file", "number"])
        feeds = reader.feeder(["cpu", "cpu"]).decorate_reader(reader.batches(2), multi_devices=True)
        assert [[len(feed["number"].data) for feed in step] for step in feeds] == [[2, 2], [2, 2]]

    def test_it_may_convert_as_the_reference_does(self):
        @provider(input_types={"x": dense_vector(2)})
        def process(settings, name):
            yield ["1", "2"]

        reader = process(["1"])
        [feed] = map(reader.feeder("cpu", strict=False).feed, reader.batches(1))
        assert feed["x"].to_list() == [[1.0, 2.0]]


def test_ranks_share_a_provider():
    readers = [shard(counting(20)(["1", "2"], seed=1), 3, index) for index in range(3)]
    rows = sorted(row for reader in readers for row in reader)
    assert rows == [(file, number) for file in (1, 2) for number in range(20)]


def test_a_provider_travels_to_another_process():
    reader = counting(20, min_pool_size=8)(["1", "2"], seed=1)
    again = cloudpickle.loads(cloudpickle.dumps(reader.batches(4)))
    assert list(again) == list(reader.batches(4))


def test_a_provider_is_a_reader_that_shows_its_pipeline():
    reader = counting(20)(["1"], seed=1)
    assert isinstance(reader, Provider)
    assert repr(reader).startswith("provider(shuffle(files(process, names=['1']")
