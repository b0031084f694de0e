"""Feeds are equal to those of PaddlePaddle, value for value and LoD for LoD, but for `REPAIRS`.

Three ways: recorded results of 1.8.5 and 2.6.2 (which agree on all of them), an oracle for as many
random batches as one likes, and PaddlePaddle itself where ``GPUFEED_REFERENCE_PYTHON`` names an
interpreter that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support import reference
from support.reference_cases import DTYPES, batch_of, random_case

import gpufeed as gf
from gpufeed.compat import fluid
from gpufeed.errors import FieldError

SUPPORT = Path(__file__).parents[1] / "support"
RECORDED = json.loads((SUPPORT / "reference_results.json").read_text(encoding="utf-8"))

# What is different, by what there is to see of a batch: its lengths, and how many rows it has.
REPAIRS = {
    "a level of the LoD without entries is legal: empty batches, and samples without sequences": (
        lambda lengths, num_rows: any(not level for level in lengths)
    ),
    "sequences of rows without values are refused: there, lengths fit if there are no rows": (
        lambda lengths, num_rows: bool(lengths) and not num_rows and sum(lengths[-1]) > 0
    ),
}


def repair_of(case):
    """Return the repair that concerns a case, or None."""
    try:
        array, lengths = reference.convert(case)
    except ValueError:
        return None
    return next((name for name, concerns in REPAIRS.items() if concerns(lengths, len(array))), None)


def feed(case, feeder=fluid.DataFeeder):
    """Return what we make of a case, or None where it is refused."""
    with gf.program_guard(gf.Program()):
        x = fluid.data("x", case["shape"], case["dtype"], case["lod_level"])
        rows = batch_of(case)
        try:
            return feeder([x], fluid.CPUPlace()).feed(rows)["x"]
        except FieldError:
            return None


def assert_equal(tensor, expected, case):
    """Compare a feed with values and lengths, or with None."""
    if expected is None:
        assert tensor is None, case
        return
    array, lengths = expected
    assert tensor is not None, case
    assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype), case
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.recursive_sequence_lengths() == lengths, case


def oracle(case):
    """Return what the reference makes of a case, as far as we know, or None."""
    try:
        array, lengths = reference.convert(case)
    except ValueError:
        return None
    return (array, lengths) if reference.accepts(lengths, len(array)) else None


def recorded(result):
    """Return a result of the reference itself, or None."""
    if "error" in result:
        return None
    array = np.array(result["values"], result["dtype"]).reshape(result["shape"])
    return array, result["lengths"]


@pytest.mark.parametrize("entry", RECORDED["results"], ids=lambda entry: "")
def test_recorded_results(entry):
    case, result = entry
    expected = recorded(result)
    known = oracle(case)
    if expected is None:
        assert known is None
    else:
        np.testing.assert_array_equal(known[0], expected[0])
        assert (known[0].dtype, known[0].shape) == (expected[0].dtype, expected[0].shape)
        assert known[1] == expected[1]
    if repair_of(case) is None:
        assert_equal(feed(case), expected, case)


def test_the_recorded_results_are_of_all_kinds():
    cases = [case for case, _ in RECORDED["results"]]
    assert len(cases) >= 600
    assert {case["lod_level"] for case in cases} == {0, 1, 2, 3}
    forms = {case["arrays"][0] for case in cases if case["arrays"]}
    assert forms == {"row", "sequence", "scalar", "tuple"}
    assert {case["dtype"] for case in cases} == set(DTYPES)
    assert {name for name in map(repair_of, cases) if name} == set(REPAIRS)
    num_refused = sum("error" in result for _, result in RECORDED["results"])
    assert len(cases) / 10 < num_refused < len(cases) / 2


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_random_batches(random):
    case = random_case(random)
    repair = repair_of(case)
    event(repair or "no repair")
    if repair is None:
        assert_equal(feed(case), oracle(case), case)


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_what_the_strict_feeder_takes_it_feeds_as_the_reference(random):
    case = random_case(random)
    tensor = feed(case, gf.DataFeeder)
    event("refused" if tensor is None else "fed")
    if tensor is not None:
        array, lengths = reference.convert(case)
        repair = repair_of(case)
        assert reference.accepts(lengths, len(array)) or repair is not None
        if array.size:
            assert_equal(tensor, (array, lengths), case)
        else:
            assert tensor.recursive_sequence_lengths() == lengths


class TestRepairs:
    """Each difference, by example: how the reference ends, and what happens here."""

    @pytest.mark.parametrize("rows", [[], [[]], [[], []]])
    def test_a_level_without_entries(self, rows):
        case = {"shape": [-1, 1], "dtype": "int64", "lod_level": 2, "rows": rows}
        assert oracle(case) is None
        assert feed(case).recursive_sequence_lengths() == [[0] * len(rows), []]

    def test_rows_without_values(self):
        case = {"shape": [-1, 2, 2], "dtype": "int64", "lod_level": 1, "rows": [[[], []], [[]]]}
        array, lengths = oracle(case)
        assert (array.shape, lengths) == ((0, 2, 2), [[2, 1]])
        assert feed(case) is None


INTERPRETER = os.environ.get("GPUFEED_REFERENCE_PYTHON")


@pytest.mark.skipif(not INTERPRETER, reason="GPUFEED_REFERENCE_PYTHON names no interpreter")
def test_paddlepaddle_itself():
    random = Random()
    cases = [random_case(random) for _ in range(500)]
    done = subprocess.run(
        [INTERPRETER, "-W", "ignore", str(SUPPORT / "reference_worker.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    for case, result in zip(cases, json.loads(done.stdout), strict=True):
        if repair_of(case) is None:
            assert_equal(feed(case), recorded(result), case)
