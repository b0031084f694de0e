"""LoDTensor by whole sequences: padded on either side, first and last steps, reverse, expand..."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import lod_tensors

from gpufeed.device import virtual_devices
from gpufeed.errors import FieldError, LoDError, PlaceError
from gpufeed.tensor import LoDTensor


@pytest.fixture(params=["cpu", "cuda:0"])
def tensor(request):
    with virtual_devices(1):
        yield LoDTensor([7, 8, 9, 1, 2], lod=[[0, 3, 3, 5]], place=request.param)


def host(array):
    return np.asarray(array).tolist()


@pytest.mark.parametrize(
    ("side", "keep", "expected"),
    [
        ("right", "start", [[7, 8], [0, 0], [1, 2]]),
        ("left", "start", [[7, 8], [0, 0], [1, 2]]),
        ("right", "end", [[8, 9], [0, 0], [1, 2]]),
        ("left", "end", [[8, 9], [0, 0], [1, 2]]),
    ],
)
def test_long_sequences_are_cut_at_either_end(tensor, side, keep, expected):
    padded, lengths = tensor.to_padded(max_length=2, side=side, keep=keep)
    assert (host(padded), host(lengths)) == (expected, [2, 0, 2])


def test_short_sequences_are_padded_on_either_side(tensor):
    assert host(tensor.to_padded(-1)[0]) == [[7, 8, 9], [-1, -1, -1], [1, 2, -1]]
    assert host(tensor.to_padded(-1, side="left")[0]) == [[7, 8, 9], [-1, -1, -1], [-1, 1, 2]]


def test_steps(tensor):
    assert host(tensor.first_step(-1)) == [7, -1, 1]
    assert host(tensor.last_step(-1)) == [9, -1, 2]


def test_reverse_expand_and_gather(tensor):
    assert tensor.reverse().to_list() == [[9, 8, 7], [], [2, 1]]
    assert tensor.expand([0, 2, 2]).to_list() == [[], [], [1, 2], [1, 2]]
    assert tensor[[2, 0, 2]].to_list() == [[1, 2], [7, 8, 9], [1, 2]]
    assert tensor.reverse().place == tensor.place


def test_concat_joins_what_belongs_to_one_sample(tensor):
    joined = LoDTensor.concat([tensor, tensor.reverse(), tensor])
    assert joined.to_list() == [[7, 8, 9, 9, 8, 7, 7, 8, 9], [], [1, 2, 2, 1, 1, 2]]
    assert joined.cu_seqlens().tolist() == [0, 9, 9, 15]


@given(lod_tensors(levels=2), st.data())
def test_two_levels_are_taken_expanded_and_joined_like_lists(tensor, drawing):
    samples = tensor.to_list()
    repeats = drawing.draw(
        st.lists(st.integers(0, 3), min_size=len(samples), max_size=len(samples))
    )
    expanded = [s for s, n in zip(samples, repeats, strict=True) for _ in range(n)]
    assert tensor.expand(repeats).to_list() == expanded
    joined = LoDTensor.concat([tensor, tensor.reverse()])
    assert joined.to_list() == [s + [row[::-1] for row in s] for s in samples]


@given(lod_tensors(levels=1), st.sampled_from(["left", "right"]))
def test_either_side_is_undone_by_the_same(tensor, side):
    padded, lengths = tensor.to_padded(side=side)
    back = LoDTensor.from_padded(padded, lengths, side=side)
    np.testing.assert_array_equal(back.data, tensor.data)
    assert back.lod() == tensor.lod()


@given(lod_tensors(levels=1))
def test_reversing_twice_changes_nothing(tensor):
    back = tensor.reverse().reverse()
    np.testing.assert_array_equal(back.data, tensor.data)
    assert back.lod() == tensor.lod()


def test_dtypes_that_no_kernel_takes_are_still_gathered():
    tensor = LoDTensor(np.array([7, 8, 9], "uint32"), lod=[[0, 2, 3]])
    assert tensor[[1, 0]].to_list() == [[9], [7, 8]]
    with pytest.raises(FieldError, match=r"must be of dtype bool, .*, got uint32"):
        tensor.reverse()


PLAIN, RAGGED = LoDTensor([1, 2]), LoDTensor([1, 2], lod=[[0, 1, 2]])
REFUSED = [
    (lambda: RAGGED.to_padded(side="top"), FieldError, "side must be 'right' or 'left', got 'top'"),
    (lambda: RAGGED.to_padded(keep=1), FieldError, "keep must be 'start' or 'end', got 1"),
    (lambda: LoDTensor.from_padded([[1]], [1], side=0), FieldError, "side must be 'right' or"),
    (lambda: PLAIN.reverse(), LoDError, "lod must have a level"),
    (lambda: PLAIN.first_step(), LoDError, "lod must have a level"),
    (lambda: RAGGED.expand([1]), LoDError, "repeats must be 2 numbers, got 1"),
    (lambda: RAGGED.expand([1, -1]), LoDError, "repeats level 0 must hold lengths >= 0, got -1"),
    (lambda: RAGGED.expand("12"), FieldError, "repeats must hold numbers or bools, got str"),
    (lambda: RAGGED[...], TypeError, "index must be a number, a slice, .* or a mask, got Ellipsis"),
    (lambda: RAGGED[0, 1], TypeError, r"index must be a number, a slice, .*, got \(0, 1\)"),
    (lambda: LoDTensor.concat([]), FieldError, "parts must be of this type, got none"),
    (lambda: LoDTensor.concat([PLAIN, PLAIN]), LoDError, "parts must have a LoD"),
    (lambda: LoDTensor.concat([RAGGED, RAGGED[:1]]), LoDError, r"equally many .* \[2, 1\] samples"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_concat_refuses_parts_of_two_places():
    with virtual_devices(1), pytest.raises(PlaceError, match="parts must be on one place"):
        LoDTensor.concat([RAGGED, RAGGED.to("cuda:0")])
