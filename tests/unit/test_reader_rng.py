"""Per-sample random numbers: a function of seed, epoch, stage and ordinal, and of nothing else."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support.readers import counting

from gpufeed.errors import FieldError, ReaderError
from gpufeed.reader import batch, firstn, map_readers
from gpufeed.reader.rng import PassRng, pass_rng, rng_seed


def draw(sample, rng):
    return sample, rng.integers(1 << 62)


def drawn(reader, epoch=0):
    reader.set_epoch(epoch)
    return [number for _, number in reader]


def test_seeds():
    assert [rng_seed("x.rng", rng) for rng in (False, True, np.True_, 0, 1, 7.0)] == [
        *(None, 0, 0, 0, 1, 7)
    ]


@pytest.mark.parametrize("rng", [-1, 1.5, "1", None])
def test_what_is_no_seed(rng):
    with pytest.raises(FieldError, match=r"map_readers.rng must be a whole number >= 0, got"):
        map_readers(draw, counting(3), rng=rng)


def test_a_reseated_generator_is_a_new_one():
    rng = PassRng((3, 4), first=2, step=5)
    at = rng.generators()
    for number in (0, 7, 3, 7):
        new = np.random.Philox(key=[3, 4], counter=[0, 2 + 5 * number, 0, 0])
        wanted = np.random.Generator(new)
        got = at(number)
        # Odd numbers of 32-bit draws leave half a word and a part of the buffer behind.
        assert got.integers(1 << 30, size=3, dtype=np.uint32).tolist() == (
            wanted.integers(1 << 30, size=3, dtype=np.uint32).tolist()
        )
        assert got.normal(size=5).tolist() == wanted.normal(size=5).tolist()


def test_numbers_do_not_depend_on_the_order_of_samples():
    at = PassRng((1, 2)).generators()
    forward = [at(number).random() for number in range(9)]
    backward = [at(number).random() for number in reversed(range(9))]
    assert forward == backward[::-1]
    assert len(set(forward)) == 9


def test_it_can_be_sent_to_a_worker():
    rng = pickle.loads(pickle.dumps(PassRng((1, 2), 3, 4)))
    assert rng == PassRng((1, 2), 3, 4)


def test_known_numbers():
    """A release that changed them would change every augmented data set."""
    assert drawn(map_readers(draw, counting(3), rng=7), epoch=2) == [
        2795291390308392916,
        1558742808986181056,
        1491535731619514513,
    ]


def test_seed_and_epoch_matter():
    def numbers(seed, epoch):
        return tuple(drawn(map_readers(draw, counting(4), rng=seed), epoch))

    assert numbers(0, 0) == numbers(True, 0) == numbers(0, 0)
    assert len({numbers(0, 0), numbers(1, 0), numbers(0, 1), numbers(1, 1)}) == 4


def test_skipping_does_not_change_the_numbers():
    everything = list(map_readers(draw, counting(9), rng=True))
    assert list(map_readers(draw, counting(9), rng=True).open(0, 4)) == everything[4:]
    skipping = map_readers(draw, counting(9), rng=True, on_error="skip")
    assert list(skipping.open(0, 4)) == everything[4:]


def test_stages_of_one_seed_draw_different_numbers():
    once = map_readers(lambda sample, rng: rng.random(), counting(4), rng=True)
    twice = map_readers(lambda sample, rng: (sample, rng.random()), once, rng=True)
    assert all(inner != outer for inner, outer in twice)


def test_stages_that_draw_nothing_do_not_count():
    plain = map_readers(draw, counting(4), rng=3)
    behind_others = map_readers(draw, firstn(map_readers(abs, counting(4)), 4), rng=3)
    assert list(plain) == list(behind_others)


def test_the_generator_is_the_last_argument():
    reader = map_readers(lambda a, b, rng: (a, b, rng), counting(1), counting(1), rng=True)
    [(_, _, rng)] = reader
    assert isinstance(rng, np.random.Generator)


def test_a_state_holds_the_seed():
    state = batch(map_readers(draw, counting(4), rng=5), 2).state_dict()
    assert state["seed"] == 5
    with pytest.raises(ReaderError, match=r"state\['seed'\] must be 6, got 5"):
        batch(map_readers(draw, counting(4), rng=6), 2).load_state_dict(state)
    with pytest.raises(ReaderError, match=r"state\['seed'\] must be None, got 5"):
        batch(map_readers(draw, counting(4)), 2).load_state_dict(state)


def test_a_pass_knows_its_ordinals():
    stage = map_readers(draw, counting(4), rng=5)
    assert (pass_rng(stage, 5, 0).first, pass_rng(stage, 5, 0).step) == (0, 1)
