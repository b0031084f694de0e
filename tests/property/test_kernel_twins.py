"""reference == cpu == cuda for every kernel, on random shapes, dtypes and contents.

The CUDA twins run in numba's simulator where there is no GPU, with launches of at most 64 threads:
each of its threads is a Python thread.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import config
from numba import cuda as numba_cuda

from gpufeed import kernels
from gpufeed.kernels import (
    cpu,
    cpu_densify,
    cpu_launch,
    cuda,
    cuda_densify,
    cuda_launch,
    reference,
)
from gpufeed.kernels.checks import VALUE_DTYPES

INDEX_DTYPES = st.sampled_from(["int32", "int64"])
DTYPES = st.sampled_from(VALUE_DTYPES)
FAR_OUTSIDE = st.sampled_from([-(2**31), 2**31 - 1])
FEW = settings(max_examples=20, deadline=None)
MANY = settings(max_examples=100, deadline=None)
BESIDE = 256  # bytes of memory on either side of an output, which nothing may touch


@pytest.fixture(scope="module", autouse=True)
def small_launches():
    with pytest.MonkeyPatch.context() as patch:
        if config.ENABLE_CUDASIM:
            patch.setattr(cuda_launch, "WARP", 4)
            patch.setattr(cuda_launch, "THREADS_PER_BLOCK", 8)
            patch.setattr(cuda_launch, "MIN_BLOCKS", 3)
            patch.setattr(cuda_launch, "MAX_BLOCKS", 4)
            patch.setattr(cuda_densify, "LARGEST_TILE_NBYTES", 64)
        yield


def sent(argument):
    """Return device copies of arrays, alone or in a tuple."""
    if isinstance(argument, tuple):
        return tuple(map(sent, argument))
    return numba_cuda.to_device(argument) if isinstance(argument, np.ndarray) else argument


def surrounded(out):
    """Return memory with a copy of ``out`` in its middle."""
    memory = np.full(out.nbytes + 2 * BESIDE, 0xCD, np.uint8)
    memory[BESIDE : BESIDE + out.nbytes] = out.reshape(-1).view(np.uint8)
    return memory


def inside(memory, out):
    """Return what is in the middle of such memory, after a look at what is beside it."""
    beside = np.concatenate([memory[:BESIDE], memory[BESIDE + out.nbytes :]])
    assert (beside == 0xCD).all(), "written outside of out"
    return memory[BESIDE : BESIDE + out.nbytes].view(out.dtype).reshape(out.shape)


def on_device(operation, *arguments, **options):
    """Run the CUDA twin on device copies and return what it left in ``out``."""
    *inputs, out = arguments
    memory = sent(surrounded(out))
    there = memory[BESIDE : BESIDE + out.nbytes].view(out.dtype).reshape(out.shape)
    options = {name: sent(option) for name, option in options.items()}
    getattr(cuda, operation)(*sent(tuple(inputs)), there, **options)
    fault = options.get("fault")
    return inside(memory.copy_to_host(), out), None if fault is None else fault.copy_to_host()


def on_host(operation, *arguments, twin=cpu, **options):
    *inputs, out = arguments
    memory = surrounded(out)
    if "fault" in options:
        options["fault"] = options["fault"].copy()
    getattr(twin, operation)(*inputs, inside(memory, out), **options)
    return inside(memory, out), options.get("fault")


def check(twin, operation, *arguments, **options):
    """Compare ``twin`` with the reference; both start from the same garbage in ``out``."""
    expected, expected_fault = on_host(operation, *arguments, twin=reference, **options)
    got, got_fault = twin(operation, *arguments, **options)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got_fault, expected_fault)


def exact(draw, shape, dtype, largest=3):
    """Draw small multiples of 1/4, whose sums and products are exact in every dtype."""
    size = int(np.prod(shape))
    low = -largest if dtype.kind in "if" else 0
    drawn = draw(st.lists(st.integers(low, largest), min_size=size, max_size=size))
    quarter = 0.25 if dtype.kind == "f" else 1
    return (np.array(drawn).reshape(shape) * quarter).astype(dtype)


@st.composite
def row_offsets(draw):
    lengths = draw(st.lists(st.integers(0, 6), max_size=6))
    return np.concatenate([[0], np.cumsum(lengths)]).astype(draw(INDEX_DTYPES))


@st.composite
def csr(draw, offsets, dim, *, is_unique=False):
    """Draw the indices of rows: of each row all different, or any, some outside ``[0, dim)``."""
    columns = []
    for length in np.diff(offsets).tolist():
        some = st.integers(0, dim - 1) if is_unique else st.integers(-1, dim) | FAR_OUTSIDE
        columns += draw(st.lists(some, min_size=length, max_size=length, unique=is_unique))
    return np.array(columns, draw(INDEX_DTYPES))


@st.composite
def densify_calls(draw):
    """Draw arguments and options of `densify_rows`; ``out`` is garbage where it may be."""
    offsets, dim, out_dtype = draw(row_offsets()), draw(st.integers(1, 40)), draw(DTYPES)
    total, rows = int(offsets[-1]), len(offsets) - 1
    is_unique = dim >= np.diff(offsets).max(initial=0) and draw(st.booleans())
    options = {"assume_unique": is_unique, "fault": np.array([draw(st.integers(0, 9))])}
    indices = draw(csr(offsets, dim, is_unique=is_unique))
    values = None
    if draw(st.booleans()):
        to_bool = st.just(np.dtype("bool"))
        values = exact(draw, total, draw(to_bool if out_dtype == np.bool_ else DTYPES))
        if out_dtype == np.uint8:
            values = abs(values)
    out = np.ones((rows, dim), out_dtype)
    if draw(st.booleans()):
        old_lengths = draw(st.lists(st.integers(0, 6), min_size=rows, max_size=rows))
        old_offsets = np.cumsum([0, *old_lengths]).astype(offsets.dtype)
        old = old_offsets, draw(csr(old_offsets, dim)).astype(indices.dtype)
        options["previous"] = old
        reference.densify_rows(*old, None, out)
    return (offsets, indices, values, out), options


@st.composite
def pad_calls(draw):
    offsets, dtype = draw(row_offsets()), draw(DTYPES)
    item = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    values = exact(draw, (int(offsets[-1]), *item), dtype)
    max_length = draw(st.integers(0, 8))
    pad_value = draw(st.sampled_from([0, 1]))
    options = {"pads_left": draw(st.booleans()), "keeps_end": draw(st.booleans())}
    out = np.ones((len(offsets) - 1, max_length, *item), dtype)
    return (values, offsets, pad_value, out), options


@st.composite
def unpad_calls(draw):
    (values, offsets, _, padded), options = draw(pad_calls())
    padded[...] = exact(draw, padded.shape, padded.dtype)
    return (padded, offsets, np.ones_like(values)), {"pads_left": options["pads_left"]}


@st.composite
def gather_calls(draw):
    (values, offsets, _, _), _ = draw(pad_calls())
    some = st.lists(st.integers(0, max(0, len(offsets) - 2)), max_size=8 if len(offsets) > 1 else 0)
    sequences = np.array(draw(some), offsets.dtype)
    lengths = np.diff(offsets)[sequences]
    new_offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(offsets.dtype)
    out = np.ones((int(new_offsets[-1]), *values.shape[1:]), values.dtype)
    arguments = (values, offsets, sequences, new_offsets, out)
    return arguments, {"is_reversed": draw(st.booleans())}


@st.composite
def number_calls(draw):
    offsets = draw(row_offsets())
    out = np.full(int(offsets[-1]), 7, draw(INDEX_DTYPES))
    return (offsets, out), {"restarts": draw(st.booleans())}


@st.composite
def mask_calls(draw):
    offsets = draw(row_offsets())
    out = np.full((len(offsets) - 1, draw(st.integers(0, 8))), draw(st.booleans()))
    return (offsets, out), {"pads_left": draw(st.booleans())}


@st.composite
def convert_calls(draw):
    shape = draw(st.sampled_from([(), (0,), (5,), (2, 3), (300,)]))
    source, target = draw(DTYPES), draw(DTYPES)
    if target == np.bool_:
        source = target
    values = exact(draw, shape, source, largest=1 if shape == (300,) else 100)
    if target == np.uint8:
        values = abs(values) if source != np.bool_ else values
    factors = st.sampled_from([None, 0.5, -2.0] if target.kind == "f" else [None])
    # Arithmetic makes scalars of arrays without dimensions, which would stay on the host.
    return np.asarray(values), draw(factors), draw(factors), np.ones(shape, target)


@MANY
@given(densify_calls())
def test_densify_rows_on_the_cpu(call):
    arguments, options = call
    check(on_host, "densify_rows", *arguments, **options)


@MANY
@given(densify_calls())
def test_densify_rows_past_the_cache(call):
    arguments, options = call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_densify, "STREAM_NBYTES", 0)
        # Some rows are longer, of some there fit several.
        patch.setattr(cpu_densify, "SCRATCH_NBYTES", 128)
        patch.setattr(cpu_densify, "SWEEP_NBYTES", 128)
        check(on_host, "densify_rows", *arguments, **options)


@MANY
@given(densify_calls())
def test_densify_rows_by_what_was_written(call):
    arguments, options = call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_densify, "CLEAR_NBYTES", 0)  # however much that is
        check(on_host, "densify_rows", *arguments, **options)


@FEW
@given(densify_calls())
def test_densify_rows_on_cuda(call):
    arguments, options = call
    check(on_device, "densify_rows", *arguments, **options)


@MANY
@given(pad_calls())
def test_pad_rows_on_the_cpu(call):
    arguments, options = call
    check(on_host, "pad_rows", *arguments, **options)


@FEW
@given(pad_calls())
def test_pad_rows_on_cuda(call):
    arguments, options = call
    check(on_device, "pad_rows", *arguments, **options)


@MANY
@given(unpad_calls())
def test_unpad_rows_on_the_cpu(call):
    arguments, options = call
    check(on_host, "unpad_rows", *arguments, **options)


@FEW
@given(unpad_calls())
def test_unpad_rows_on_cuda(call):
    arguments, options = call
    check(on_device, "unpad_rows", *arguments, **options)


@MANY
@given(gather_calls())
def test_gather_sequences_on_the_cpu(call):
    arguments, options = call
    check(on_host, "gather_sequences", *arguments, **options)


@FEW
@given(gather_calls())
def test_gather_sequences_on_cuda(call):
    arguments, options = call
    check(on_device, "gather_sequences", *arguments, **options)


@MANY
@given(number_calls())
def test_number_rows_on_the_cpu(call):
    arguments, options = call
    check(on_host, "number_rows", *arguments, **options)


@FEW
@given(number_calls())
def test_number_rows_on_cuda(call):
    arguments, options = call
    check(on_device, "number_rows", *arguments, **options)


@MANY
@given(mask_calls())
def test_mask_rows_on_the_cpu(call):
    arguments, options = call
    check(on_host, "mask_rows", *arguments, **options)


@FEW
@given(mask_calls())
def test_mask_rows_on_cuda(call):
    arguments, options = call
    check(on_device, "mask_rows", *arguments, **options)


@MANY
@given(convert_calls())
def test_convert_values_on_the_cpu(call):
    check(on_host, "convert_values", *call)


@FEW
@given(convert_calls())
def test_convert_values_on_cuda(call):
    check(on_device, "convert_values", *call)


@st.composite
def channel_calls(draw):
    source, target = draw(DTYPES), draw(st.sampled_from(["float16", "float32", "float64"]))
    shape = draw(st.sampled_from([(0, 2, 3), (2, 3), (3, 2, 2), (2, 4, 1, 3)]))
    axis = draw(st.integers(0, len(shape) - 1))
    wide = np.dtype("float32" if target == "float16" else target)
    scale, shift = (exact(draw, shape[axis], wide) for _ in range(2))
    values = abs(exact(draw, shape, source)) if source != np.bool_ else np.ones(shape, bool)
    num_inner = int(np.prod(shape[axis + 1 :]))
    return (values, scale, shift, np.ones(shape, target)), {"num_inner": num_inner}


@MANY
@given(channel_calls())
def test_convert_values_by_channel_on_the_cpu(call):
    arguments, options = call
    check(on_host, "convert_values", *arguments, **options)


@FEW
@given(channel_calls())
def test_convert_values_by_channel_on_cuda(call):
    arguments, options = call
    check(on_device, "convert_values", *arguments, **options)


@st.composite
def narrow_calls(draw):
    """Draw numbers near the limits of what narrower dtypes keep."""
    numbers = [dtype for dtype in VALUE_DTYPES if dtype != np.bool_]
    source = draw(st.sampled_from([dtype for dtype in numbers if dtype.itemsize > 1]))
    kinds = "f" if source.kind == "f" else "iu"
    target = draw(st.sampled_from([d for d in numbers if d.kind in kinds or d == np.uint8]))
    limits = [0, 1, 127, 128, 255, 256, 2048, 2049, 32767, 32768, 65504, 2**24, 2**24 + 1]
    edges = st.sampled_from([*limits, *(-limit for limit in limits)])
    if source.kind == "f":
        edges |= st.sampled_from([-0.0, 0.5, 0.1, 1e-8, float("nan"), float("inf")])
    drawn = draw(st.lists(edges, max_size=5)) + [0] * draw(st.sampled_from([0, 1100]))
    with np.errstate(all="ignore"):
        return np.array(drawn).astype(source), target


def kept(twin, values, target):
    """Return whether every value is kept, and the narrow values if they are."""
    fault = np.zeros(1, "int64")
    arrays = (values, np.zeros(values.shape, target), fault)
    if twin is cuda:
        arrays = tuple(map(numba_cuda.to_device, arrays))
    twin.narrow_values(*arrays)
    if twin is cuda:
        arrays = [array.copy_to_host() for array in arrays]
    return None if arrays[2][0] else arrays[1].tobytes()


AS_WIDE = np.array([7, 255], "uint8"), np.dtype("int8")  # and back, where it would be 255 again


@MANY
@given(narrow_calls())
@example(AS_WIDE)
def test_narrow_values_on_the_cpu(call):
    assert kept(cpu, *call) == kept(reference, *call)


@FEW
@given(narrow_calls())
@example(AS_WIDE)
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")  # of Python, simulating
def test_narrow_values_on_cuda(call):
    assert kept(cuda, *call) == kept(reference, *call)


@FEW
@given(densify_calls(), pad_calls(), unpad_calls(), gather_calls())
def test_in_threads(densify, pad, unpad, gather):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_NUM_THREADS", "3")
        patch.setattr(config, "NUMBA_NUM_THREADS", 3)
        patch.setattr(cpu_launch, "PART_NBYTES", 1)
        patch.setattr(cpu_densify, "CLEAR_NBYTES", 0)
        for operation, (arguments, options) in (
            ("densify_rows", densify),
            ("pad_rows", pad),
            ("unpad_rows", unpad),
            ("gather_sequences", gather),
        ):
            check(on_host, operation, *arguments, **options)


@FEW
@given(st.lists(st.booleans(), max_size=40))
def test_unpack_bits(drawn):
    values = np.array(drawn, bool)
    packed = np.packbits(values, bitorder="little")
    for twin in (on_host, on_device):
        got, _ = twin("unpack_bits", packed, np.ones(len(values), bool))
        np.testing.assert_array_equal(got, values)
        check(twin, "unpack_bits", packed, np.ones(len(values), bool))


@MANY
@given(pad_calls())
def test_unpadding_undoes_padding(call):
    (values, offsets, pad_value, out), options = call
    side = {"pads_left": options["pads_left"]}
    longest = int(np.diff(offsets).max(initial=0))
    padded = np.empty((out.shape[0], longest, *out.shape[2:]), out.dtype)
    back = np.empty_like(values)
    cpu.pad_rows(values, offsets, pad_value, padded, **options)
    cpu.unpad_rows(padded, offsets, back, **side)
    np.testing.assert_array_equal(back, values)


@MANY
@given(pad_calls())
def test_a_mask_finds_what_padding_kept(call):
    (values, offsets, _, out), options = call
    ones, padded = np.ones(len(values), bool), np.zeros(out.shape[:2], bool)
    kernels.pad_rows(ones, offsets, False, padded, **options)
    mask = np.ones_like(padded)
    kernels.mask_rows(offsets, mask, pads_left=options["pads_left"])
    np.testing.assert_array_equal(mask, padded)


@MANY
@given(number_calls())
def test_a_row_stands_where_its_numbers_say(call):
    (offsets, out), _ = call
    positions = out.copy()
    kernels.number_rows(offsets, out)
    kernels.number_rows(offsets, positions, restarts=True)
    np.testing.assert_array_equal(offsets[out] + positions, np.arange(len(out)))


def test_one_giant_row_among_empty_ones():
    rng = np.random.default_rng(0)
    offsets = np.array([0, 0, 200_000, 200_000])
    indices = rng.integers(0, 1_000_000, 200_000)
    values = rng.integers(-8, 8, 200_000).astype("float32")
    check(on_host, "densify_rows", offsets, indices, values, np.ones((3, 1_000_000), "float32"))
    check(on_host, "pad_rows", values, offsets, 1, np.zeros((3, 150_000), "float32"))
    check(on_host, "mask_rows", offsets, np.zeros((3, 150_000), bool))
    for restarts in (False, True):
        check(on_host, "number_rows", offsets, np.ones(200_000, "int64"), restarts=restarts)


@given(st.lists(st.integers(0, 2**16 - 1), min_size=2, max_size=8))
def test_sums_of_half_precision_numbers_are_those_of_numpy(words):
    values = np.array(words, "uint16").view("float16")
    offsets, indices = np.array([0, len(values)]), np.zeros(len(values), "int64")
    with np.errstate(all="ignore"):
        check(on_host, "densify_rows", offsets, indices, values, np.zeros((1, 1), "float16"))


@pytest.mark.parametrize("twin", [on_host, on_device])
def test_half_precision_rounds_after_each_operation(twin):
    values = np.arange(0, 256, 5, "uint8")
    check(twin, "convert_values", values, 1 / 255, -0.3, np.zeros(len(values), "float16"))
    offsets, indices = np.array([0, len(values)]), np.zeros(len(values), "int64")
    check(twin, "densify_rows", offsets, indices, values / 255, np.zeros((1, 1), "float16"))
