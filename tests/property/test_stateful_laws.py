"""Laws of stateful readers: a held pass is the pass, and a batch is its samples end to end."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import lod_tensors

import gpufeed.reader as rd
from gpufeed.errors import EOFException
from gpufeed.feeder import DataFeeder
from gpufeed.stateful import (
    BatchReader,
    DoubleBufferReader,
    MultiPassReader,
    ReaderHolder,
    ShuffleReader,
)
from gpufeed.stateful.tensors import TensorFields
from gpufeed.variables import Program, data, program_guard

# Each stage held open, and the decorator that it is.
STAGES = {
    "shuffle": (
        lambda reader: ShuffleReader(reader, 3, seed=5),
        lambda reader: rd.shuffle(reader, 3, seed=5),
    ),
    "batch": (lambda reader: BatchReader(reader, 2), lambda reader: rd.batch(reader, 2)),
    "multi pass": (lambda reader: MultiPassReader(reader, 2), lambda reader: rd.repeat(reader, 2)),
    "double buffer": (DoubleBufferReader, lambda reader: rd.buffered(reader, 2)),
    "hold": (ReaderHolder, lambda reader: rd.firstn(reader, None)),
}
pipelines = st.lists(st.sampled_from(sorted(STAGES)), max_size=4)


def build(names, num):
    """Return a pipeline of ``num`` samples as stateful readers, and as plain decorators."""
    held, plain = ReaderHolder(lambda: range(num)), rd.firstn(lambda: range(num), None)
    for name in names:
        hold, decorate = STAGES[name]
        held, plain = hold(held), decorate(plain)
    return held, plain


@given(pipelines, st.integers(0, 7), st.lists(st.sampled_from(["has_next", "read_next", "reinit"])))
def test_any_order_of_questions_is_answered_as_by_lists(names, num, questions):
    held, plain = build(names, num)
    left, is_fresh = list(plain()), True
    with held:
        for question in questions:
            if question == "has_next":
                assert held.has_next() == bool(left)
                is_fresh = is_fresh and bool(left)
            elif question == "reinit":
                held.reinit()
                if not is_fresh:
                    left, is_fresh = list(plain()), True
            else:
                is_fresh = False
                if left:
                    assert held.read_next() == left.pop(0)
                else:
                    with pytest.raises(EOFException):
                        held.read_next()


@given(pipelines, st.integers(0, 7), st.integers(0, 9), st.booleans())
def test_a_held_pass_resumes_where_it_was(names, num, num_read, looks_ahead):
    held, plain = build(names, num)
    again, _ = build(names, num)
    expected = list(plain())
    with held, again:
        for _ in range(min(num_read, len(expected))):
            held.read_next()
        if looks_ahead:
            held.has_next()
        again.load_state_dict(held.state_dict())
        assert list(again()) == expected[num_read:]


@given(st.data(), st.integers(0, 3), st.integers(1, 4))
def test_a_batch_is_its_instances_end_to_end(draw, levels, batch_size):
    tensors = draw.draw(st.lists(lod_tensors(levels, dtypes=("int64",)), max_size=7))
    tensors = [tensor for tensor in tensors if tensor.shape[1:] == tensors[0].shape[1:]]
    reader = BatchReader(lambda: [(tensor,) for tensor in tensors], batch_size)
    groups = [tensors[i : i + batch_size] for i in range(0, len(tensors), batch_size)]
    merged = [tensor.to_list() for (tensor,) in reader()]
    assert merged == [list(chain(*(tensor.to_list() for tensor in group))) for group in groups]


ids = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=3)
samples = st.lists(st.tuples(ids, st.floats(-1, 1, width=32)), max_size=9)


@given(samples, st.integers(1, 4))
def test_the_face_feeds_what_a_feeder_feeds(rows, batch_size):
    declared = [[-1, 1], [-1]], [2, 0], ["int64", "float32"]
    face = BatchReader(ReaderHolder(lambda: rows, TensorFields("test", *declared)), batch_size)
    with program_guard(Program()):
        variables = [
            data(f"x{number}", shape, dtype, lod_level)
            for number, (shape, lod_level, dtype) in enumerate(zip(*declared, strict=True))
        ]
        feeder = DataFeeder(variables, "cpu")
    plain = rd.batch(lambda: rows, batch_size)
    for instance, batch in zip(face(), plain(), strict=True):
        for tensor, expected in zip(instance, feeder.feed(batch).values(), strict=True):
            np.testing.assert_array_equal(tensor.data, expected.data)
            assert (tensor.dtype, tensor.lod()) == (expected.dtype, expected.lod())


@given(samples)
def test_samples_one_by_one_are_samples_of_a_batch(rows):
    fields = TensorFields("test", [[-1, 1], [-1]], [2, 0], ["int64", "float32"])
    if not rows:
        return
    single = [fields(row) for row in rows]
    merged = BatchReader(lambda: single, len(rows)).read_next()
    for tensor, expected in zip(merged, fields.batch(rows), strict=True):
        np.testing.assert_array_equal(tensor.data, expected.data)
        assert tensor.lod() == expected.lod()
