"""`interleave` and `mix`: whose turn it is, what an end means, and what skipping reads."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from support.readers import BrokenError, Watched, counting, failing, taken_until

from gpufeed.errors import FieldError
from gpufeed.reader import batch, cache, firstn, interleave, mix, repeat, shuffle
from gpufeed.reader.base import Reader


def tagged(tag, num):
    return [(tag, n) for n in range(num)]


class Sized(Reader[int]):
    """Tells its count, and how often it was opened where."""

    def __init__(self, num: int) -> None:
        super().__init__("sized", num=num)
        self.num = num
        self.opened: list[int] = []

    def open(self, epoch, skip):
        self.opened.append(skip)
        return iter(range(skip, self.num))

    def count(self):
        return self.num


def test_readers_take_turns():
    assert list(interleave(lambda: "abc", lambda: "123")) == ["a", "1", "b", "2", "c", "3"]


def test_when_one_ends_the_others_go_on():
    assert "".join(interleave(lambda: "a", lambda: "", lambda: "1234", lambda: "xy")) == "a1x2y34"


def test_all_may_be_empty():
    assert list(interleave(list, list)) == []
    assert list(mix([list])) == []


def test_there_must_be_a_reader():
    with pytest.raises(TypeError, match=r"interleave.readers must be at least one reader"):
        interleave()
    with pytest.raises(TypeError, match=r"mix.readers must be at least one reader"):
        mix([])
    with pytest.raises(TypeError, match=r"mix.reader must be callable, got 'ab'"):
        mix(["ab"])


@pytest.mark.parametrize("readers", [None, 3, list])
def test_readers_must_be_a_list(readers):
    with pytest.raises(TypeError, match=r"mix.readers must be a list of readers, got "):
        mix(readers)


@pytest.mark.parametrize(
    "weights",
    [[1], 3, 0.5, [1, 2, 3], [1, 0], [1, -1], [1, math.inf], [1, math.nan], [1, "1"], [1, True]],
)
def test_weights_are_checked(weights):
    with pytest.raises(FieldError, match=r"mix.weights must be one finite number > 0 for each"):
        mix([counting(1), counting(1)], weights)


def test_a_mix_holds_every_sample_once_and_in_order():
    parts = [tagged(tag, num) for tag, num in (("a", 30), ("b", 7), ("c", 0), ("d", 12))]
    readers = [lambda part=part: part for part in parts]
    samples = list(mix(readers, [5, 1, 1, 3], seed=3))
    for part in parts:
        assert [sample for sample in samples if sample in part] == part
    assert len(samples) == 49


def test_weights_are_shares():
    endless = [repeat(lambda tag=tag: [tag]) for tag in "abc"]
    found = Counter(firstn(mix(endless, [6, 3, 1], seed=0), 20_000))
    assert [found[tag] / 20_000 for tag in "abc"] == pytest.approx([0.6, 0.3, 0.1], abs=0.015)


def test_choices_depend_on_seed_and_epoch():
    def choices(seed, epoch):
        reader = mix([lambda: "a" * 50, lambda: "b" * 50], seed=seed)
        reader.set_epoch(epoch)
        return "".join(reader)

    assert choices(1, 0) == choices(1, 0)
    assert len({choices(1, 0), choices(1, 1), choices(2, 0)}) == 3


def test_known_choices():
    """A release that changed them would change the order of every mixture."""
    reader = mix([lambda: "a" * 99, lambda: "b" * 99, lambda: "c" * 99], [0.5, 0.3, 0.2], seed=7)
    assert "".join(firstn(reader, 24)) == "ccabbcbabaabaaabcabaabca"


@pytest.mark.parametrize("skip", [1, 2, 3, 10, 11, 12, 13, 100, 1000])
def test_skipping_passes_shares_on(skip):
    for make in (lambda *r: interleave(*r), lambda *r: mix(r, [5, 1, 2])):
        whole = list(firstn(make(*[counting(10**6)] * 3), skip + 20))
        readers = [Sized(10**6) for _ in range(3)]
        rest = make(*readers).open(0, skip)
        assert [next(rest) for _ in range(20)] == whole[skip:]
        assert sum(reader.opened[-1] for reader in readers) == skip
        assert all(len(reader.opened) == 1 for reader in readers)


def test_an_end_within_what_is_skipped_is_found():
    for make in (lambda *r: interleave(*r), lambda *r: mix(r, [1, 9])):
        short, long = tagged("a", 3), tagged("b", 40)
        for wrap in (lambda part: lambda: part, lambda part: cache(lambda: part)):
            reader = make(wrap(long), wrap(short))
            everything = list(reader)
            for skip in range(len(everything) + 2):
                assert list(reader.open(0, skip)) == everything[skip:]


def test_failures_arrive_after_the_samples_before():
    taken, error = taken_until(interleave(counting(5), failing(2)))
    assert taken == [0, 0, 1, 1, 2]
    assert isinstance(error, BrokenError)


def test_a_failure_behind_what_is_skipped_arrives_in_its_turn():
    reader = interleave(counting(9), failing(3))
    taken, error = taken_until(reader.open(0, 6))
    assert taken == [3]
    assert isinstance(error, BrokenError)


def test_all_sources_are_closed():
    sources = [Watched(5), Watched(50)]
    samples = interleave(*sources)()
    next(samples), next(samples)
    samples.close()
    assert [source.num_open for source in sources] == [0, 0]
    list(mix(sources))
    assert [source.num_open for source in sources] == [0, 0]


def test_a_state_names_weights_and_seed():
    def pipeline(weights, seed):
        return batch(mix([counting(5), counting(5)], weights, seed=seed), 2)

    state = pipeline([1, 2], 3).state_dict()
    assert state["seed"] == 3
    pipeline([1.0, 2.0], 3).load_state_dict(state)
    for other, match in ((pipeline([2, 1], 3), "fingerprint"), (pipeline([1, 2], 4), "seed")):
        with pytest.raises(RuntimeError, match=match):
            other.load_state_dict(state)


def test_counts_add_up():
    assert interleave(Sized(3), Sized(4)).count() == 7
    assert mix([Sized(3), shuffle(Sized(4), 2, seed=1)]).count() == 7
    assert mix([Sized(3), counting(4)]).count() is None
