"""The files of a provider: their names, their order, how many are open, and what errors say."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.readers import BrokenError, taken_until

from gpufeed.errors import FieldError, MissingFile
from gpufeed.provider import Settings, integer_value
from gpufeed.provider.files import Files, read_file_list
from gpufeed.provider.options import Options
from gpufeed.provider.slots import Slots
from gpufeed.reader.skipping import Skip

TYPES = [integer_value(100), integer_value(1000)]


class Source:
    """A ``process`` that counts how many of its generators are begun and not yet closed.

    File ``"n:m"`` holds ``(n, 0)`` to ``(n, m - 1)``.
    """

    __name__ = "process"

    def __init__(self) -> None:
        self.num_open = 0
        self.most_open = 0
        self.begun = []

    def __call__(self, settings, name):
        file, num = map(int, name.split(":"))
        self.begun.append(file)
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            for number in range(num):
                yield file, number
        finally:
            self.num_open -= 1


def files(process, names, *, mixed=False, seed=None, types=TYPES, **options):
    options = Options(**options)
    settings = Settings.of(options, names, True, None)
    return Files(process, settings, options, Slots(types), is_mixed=mixed, seed=seed)


class TestFileLists:
    def test_a_text_file_has_a_name_a_line(self, tmp_path):
        path = tmp_path / "train.list"
        path.write_text("a.txt\n  b.txt \n\nc d.txt\r\n")
        for given in (path, str(path)):
            assert read_file_list(given) == ["a.txt", "b.txt", "c d.txt"]

    def test_a_list_may_hold_paths(self):
        assert read_file_list([Path("a"), "b"]) == ["a", "b"]
        assert read_file_list(("a",)) == ["a"]

    def test_a_missing_list_is_named(self, tmp_path):
        with pytest.raises(MissingFile, match=r"train\.list"):
            read_file_list(tmp_path / "train.list")

    def test_there_must_be_a_name(self, tmp_path):
        path = tmp_path / "train.list"
        path.write_text("\n\n")
        for given in (path, []):
            with pytest.raises(
                FieldError, match=r"provider\.file_list must name at least one file"
            ):
                read_file_list(given)

    @pytest.mark.parametrize("given", [["a", 5], 5])
    def test_names_are_text(self, given):
        with pytest.raises(
            FieldError, match=r"provider\.file_list must hold names of files, got 5"
        ):
            read_file_list(given)


class TestInOrder:
    def test_one_file_follows_the_other(self):
        source = Source()
        rows = list(files(source, ["1:2", "2:0", "3:1"]))
        assert rows == [(1, 0), (1, 1), (3, 0)]
        assert (source.most_open, source.num_open) == (1, 0)

    def test_a_row_comes_as_soon_as_it_is_read(self):
        source = Source()
        rows = files(source, ["1:2", "2:2"])()
        assert next(rows) == (1, 0)
        assert source.begun == [1]
        rows.close()
        assert source.num_open == 0

    def test_process_may_return_any_iterable(self):
        assert list(files(lambda settings, name: [(1, 2)], ["a", "b"])) == [(1, 2)] * 2

    def test_process_receives_its_settings(self):
        got = []
        reader = files(lambda settings, name: got.append((settings.file_list, name)) or (), ["a"])
        assert list(reader) == []
        assert got == [(["a"], "a")]


NAMES = [f"{file}:{10 + file}" for file in range(20)]
ALL = [(file, number) for file in range(20) for number in range(10 + file)]


class TestMixed:
    @pytest.mark.parametrize("max_open_files", [1, 2, 8, 100])
    @pytest.mark.parametrize("min_pool_size", [0, 1, 40, 1000, 10**12])
    def test_every_row_comes_once(self, max_open_files, min_pool_size):
        source = Source()
        options = {"max_open_files": max_open_files, "min_pool_size": min_pool_size}
        rows = list(files(source, NAMES, mixed=True, seed=1, **options))
        assert sorted(rows) == ALL
        assert source.most_open <= max_open_files
        assert source.num_open == 0

    def test_files_are_mixed_and_begin_in_any_order(self):
        source = Source()
        options = {"max_open_files": 4, "min_pool_size": 32}
        rows = list(files(source, NAMES, mixed=True, seed=1, **options))
        assert source.begun != sorted(source.begun)
        assert len({file for file, _ in rows[:40]}) >= 4

    def test_within_a_file_order_is_kept(self):
        rows = list(files(Source(), NAMES, mixed=True, seed=1))
        for file in range(20):
            assert [n for f, n in rows if f == file] == list(range(10 + file))

    def test_the_mixture_is_a_function_of_seed_and_epoch(self):
        def passes(seed):
            reader = files(Source(), NAMES, mixed=True, seed=seed)
            return [list(reader) for _ in range(2)]

        assert passes(1) == passes(1)
        assert passes(1)[0] != passes(1)[1]
        assert passes(1)[0] != passes(2)[0]

    def test_the_mixture_is_the_same_on_every_machine(self):
        reader = files(Source(), ["0:3", "1:3", "2:3"], mixed=True, seed=7, min_pool_size=1)
        assert [file for file, _ in reader] == [2, 1, 1, 1, 0, 0, 2, 0, 2]

    def test_skipping_is_reading(self):
        reader = files(Source(), NAMES, mixed=True, seed=1, max_open_files=3)
        everything = list(reader.open(2, 0))
        for skip in (1, 5, 100, len(everything), len(everything) + 1):
            assert list(reader.open(2, skip)) == everything[skip:]

    def test_leaving_closes_what_is_open(self):
        source = Source()
        rows = files(source, NAMES, mixed=True, seed=1, min_pool_size=8)()
        for _ in range(20):
            next(rows)
        assert source.num_open > 1
        rows.close()
        assert source.num_open == 0

    def test_dicts_and_single_slots_become_rows(self):
        def process(settings, name):
            yield from ({"x": number} for number in range(5))

        rows = files(process, ["a", "b"], mixed=True, seed=1, types={"x": integer_value(9)})
        assert sorted(rows) == [(number,) for number in range(5) for _ in range(2)]


class TestErrors:
    @pytest.mark.parametrize("mixed", [False, True])
    def test_of_process_come_after_its_samples_and_say_where(self, mixed):
        def process(settings, name):
            yield from [(1, 1), (1, 2), (1, 3)]
            raise BrokenError(name)

        taken, error = taken_until(files(process, ["a.txt"], mixed=mixed, seed=1))
        assert taken == [(1, 1), (1, 2), (1, 3)]
        assert isinstance(error, BrokenError)
        assert error.__notes__ == ["in process('a.txt'), which had yielded 3 samples"]

    @pytest.mark.parametrize("mixed", [False, True])
    def test_of_the_call_itself_say_where(self, mixed):
        def process(settings, name):
            raise BrokenError(name)

        _, error = taken_until(files(process, ["a.txt"], mixed=mixed, seed=1))
        assert error.__notes__ == ["in process('a.txt'), which had yielded 0 samples"]

    @pytest.mark.parametrize("mixed", [False, True])
    def test_process_must_yield(self, mixed):
        with pytest.raises(TypeError, match="not iterable"):
            list(files(lambda settings, name: None, ["a.txt"], mixed=mixed, seed=1))

    @pytest.mark.parametrize("mixed", [False, True])
    def test_of_a_sample_come_after_those_before_it(self, mixed):
        def process(settings, name):
            yield from [(1, 1), (1, 2), "three", (1, 4)]

        taken, error = taken_until(files(process, ["a.txt"], mixed=mixed, seed=1))
        assert taken == [(1, 1), (1, 2)]
        assert "sample 2: expected a tuple, list of 2 slots, got str three" in str(error)
        assert "in process('a.txt')" in error.__notes__[0]

    @pytest.mark.parametrize("mixed", [False, True])
    def test_close_the_other_files(self, mixed):
        source = Source()

        def process(settings, name):
            if name == "bad":
                raise BrokenError
            return source(settings, name)

        names = ["1:50", "2:50", "bad", "3:50"]
        _, error = taken_until(files(process, names, mixed=mixed, seed=1, min_pool_size=8))
        assert isinstance(error, BrokenError)
        assert source.num_open == 0


def faulty(settings, name):
    """Every fourth sample has a label out of range."""
    for number in range(12):
        yield 1, 1000 if number % 4 == 3 else number


class TestChecks:
    @pytest.mark.parametrize("mixed", [False, True])
    def test_the_error_names_file_sample_slot_and_value(self, mixed):
        reader = files(faulty, ["a.txt"], mixed=mixed, seed=1, check=True)
        taken, error = taken_until(reader)
        assert taken == [(1, 0), (1, 1), (1, 2)]
        assert str(error) == (
            "faulty('a.txt'): field 'slot 1', sample 3: expected values in [0, 1000), got 1000"
        )
        assert not hasattr(error, "__notes__")  # they would say it again

    @pytest.mark.parametrize("mixed", [False, True])
    def test_an_error_of_a_sample_s_form_names_the_file_in_a_note(self, mixed):
        reader = files(lambda settings, name: [3], ["a.txt"], mixed=mixed, seed=1, check=True)
        _, error = taken_until(reader)
        assert str(error).startswith("sample 0: expected a tuple")
        assert error.__notes__ == ["in <lambda>('a.txt'), which had yielded 1 samples"]

    @pytest.mark.parametrize("mixed", [False, True])
    def test_without_a_check_values_are_not_looked_at(self, mixed):
        assert len(list(files(faulty, ["a.txt"], mixed=mixed, seed=1))) == 12

    @pytest.mark.parametrize("mixed", [False, True])
    def test_what_fails_may_be_left_out(self, mixed, caplog):
        options = {"check": True, "check_fail_continue": True}
        reader = files(faulty, ["a.txt", "b.txt"], mixed=mixed, seed=1, **options)
        with caplog.at_level(logging.WARNING):
            rows = list(reader)
        assert sorted(label for _, label in rows) == sorted([0, 1, 2, 4, 5, 6, 8, 9, 10] * 2)
        assert reader.skipped()["count"] == 6
        assert "field 'slot 1', sample 3: expected values in [0, 1000), got 1000" in caplog.text

    def test_ordinals_count_the_samples_of_all_files(self):
        options = {"check": True, "check_fail_continue": True}
        reader = files(faulty, ["a.txt", "b.txt"], **options)
        list(reader)
        assert reader.skipped()["ordinals"] == [3, 7, 11, 15, 19, 23]

    @pytest.mark.parametrize("mixed", [False, True])
    def test_what_is_left_out_may_be_limited(self, mixed):
        options = {"check": True, "check_fail_continue": Skip(max=1)}
        taken, error = taken_until(files(faulty, ["a.txt"], mixed=mixed, seed=1, **options))
        assert [label for _, label in taken] == [0, 1, 2, 4, 5, 6]
        assert "faulty('a.txt'): field 'slot 1', sample 7" in str(error)
        assert not any("a.txt" in note for note in error.__notes__)

    def test_only_what_fails_the_check_is_left_out(self):
        def process(settings, name):
            yield 1, 1
            raise BrokenError

        options = {"check": True, "check_fail_continue": True}
        taken, error = taken_until(files(process, ["a.txt"], **options))
        assert taken == [(1, 1)]
        assert isinstance(error, BrokenError)


def test_what_decides_the_order_is_part_of_the_identity():
    def identity(**changed):
        given = {"names": ["a", "b"], "mixed": True, "seed": 1, **changed}
        return files(Source(), **given).identity()

    assert identity() == identity(seed=2)
    assert identity(names=["b", "a"]) != identity()
    assert identity(mixed=False) != identity()
    assert identity(max_open_files=1) != identity()
    assert identity(min_pool_size=2) != identity()
    assert identity(check=True) != identity()
    assert identity(check=True) != identity(check=True, check_fail_continue=True)
    few = Skip(max=1)
    assert identity(check=True, check_fail_continue=few) == identity(
        check=True, check_fail_continue=True
    )


def test_without_a_seed_a_mixture_cannot_be_repeated():
    assert "seed" in files(Source(), ["1:1"], mixed=True).unrepeatable()
    assert files(Source(), ["1:1"], mixed=True, seed=1).unrepeatable() is None
    assert files(Source(), ["1:1"]).unrepeatable() is None
