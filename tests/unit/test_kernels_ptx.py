"""Every CUDA kernel compiles for real hardware (compute capability 9.0), with or without a GPU.

One of each is assembled too, which tells the registers it takes and what it has no registers for.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(600)  # it takes 20 s where nobody else is at work

# numba's simulator, which the other tests use, cannot compile: hence other processes without it.
NUM_COMPILERS = 2
# They share their input, and each compiles what it draws the number of.
NUMBERS = b"".join(b"%4d" % number for number in range(1000))
COMPILE = """
import json
import re
import sys
from os import read
from itertools import product
from types import SimpleNamespace
import numba.np.arrayobj, numpy
if "row_stack" in vars(numpy):  # not from NumPy 2.5 on
    del numpy.row_stack
    numpy.__all__.remove("row_stack")
from numba import cuda, types
from numba.cuda import dispatcher
from numba.np.numpy_support import as_dtype, from_dtype
from gpufeed.kernels import cuda as others, cuda_densify, cuda_unpack
from gpufeed.kernels.words import arithmetic_dtype

# Functions that kernels call are compiled for the device there is.
dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(9, 0))

def array(dtype, ndim=1):
    return types.Array(dtype, ndim, "C")

def sum_of(dtype):
    return from_dtype(arithmetic_dtype(as_dtype(dtype)))

floats = [types.float16, types.float32, types.float64]
indices = [types.int32, types.int64]
words = [types.uint8, types.uint16, types.uint32, types.uint64]
narrow = [types.int8, types.int16, types.uint8, types.float16]
wide = [types.int32, types.int64, types.float32, types.float64]
numbers = narrow + wide
index = array(types.int64)

def rows(i, j, *values, out, fault=types.int64):
    old = array(i), array(j)
    return (array(i), array(j), *values, *old, array(fault), i64, i64, array(out))

i32, i64, single = types.int32, types.int64, types.float32
moved = [(i32, types.uint8), (i64, types.uint32), (i32, types.uint64)]
signatures = {  # the largest kernel first
    "_unpack": [(array(types.uint8), i64, array(i64))],
    "_set_rows": [
        *[rows(i32, i32, word, out=word) for word in words],
        *[rows(i, i64, types.uint32, out=types.uint32) for i in indices],
        rows(i32, i32, types.uint32, out=types.uint32, fault=i32),
    ],
    "_put_rows": [
        rows(i32, i32, array(single), out=single),
        *[rows(i64, i64, array(dtype), out=dtype) for dtype in [types.boolean, *numbers]],
        rows(i64, i64, array(single), out=types.float16),
    ],
    "_add_rows": [
        rows(i32, i32, array(types.float16), out=single),
        *[rows(i64, i64, array(dtype), out=dtype) for dtype in wide],
    ],
    "_add_rows_by_owner": [
        *[rows(i64, i64, array(single), sum_of(dtype), out=dtype)
          for dtype in [*narrow, types.boolean]],
    ],
    "_pad": [(array(word), array(i), i64, word, types.boolean, types.boolean, i64, array(word))
             for i, word in moved],
    "_unpad": [(array(word), array(i), i64, types.boolean, i64, array(word)) for i, word in moved],
    **{name: [(array(word), array(i), array(i), array(i), i64, array(word)) for i, word in moved]
       for name in ["_gather", "_gather_reversed"]},
    "_number": [(array(i), types.boolean, array(j)) for i, j in product(indices, indices)],
    "_mask": [(array(i), types.boolean, i64, array(types.boolean)) for i in indices],
    "_cast": [
        *[(array(types.boolean), array(dtype)) for dtype in [types.boolean, i64, *floats]],
        *[(array(types.uint8), array(dtype)) for dtype in wide],
        *[(array(dtype), array(types.float16)) for dtype in numbers],
    ],
    "_scale_channels": [
        (array(dtype), array(sum_of(to)), array(sum_of(to)), sum_of(to), i64, array(to))
        for dtype, to in product([types.uint8, types.int64], floats)],
    "_narrow": [
        *[(array(dtype), *[sum_of(dtype)] * 3, types.boolean, array(to), array(i64))
          for dtype, to in product([types.int16, i32, i64], [types.uint8, types.int8])],
        *[(array(dtype), *[sum_of(dtype)] * 3, types.boolean, array(to), array(i64))
          for dtype, to in product(floats, [types.uint8, types.float16, single])],
    ],
    "_unpack_bits": [(array(types.uint8), array(types.boolean))],
    "_scale": [(array(dtype), sum_of(to), sum_of(to), array(to))
               for dtype, to in product([types.uint8, types.int64], floats)],
}
found = {
    name: value for module in (cuda_densify, cuda_unpack, others)
    for name, value in vars(module).items()
    if hasattr(value, "py_func") and not value.targetoptions.get("device")
}
if set(found) != set(signatures):
    raise SystemExit(f"signatures are listed for {set(signatures)}, kernels are {set(found)}")
todo = [(name, each) for name, listed in signatures.items() for each in listed]
try:
    from cuda.core import Linker, LinkerOptions, ObjectCode
except ImportError:  # of a numba-cuda that came without
    Linker = None
num_compiled, assembled = 0, {}
while (number := int(read(0, 4))) < len(todo):
    name, signature = todo[number]
    ptx, _ = cuda.compile_ptx(found[name].py_func, signature, cc=(9, 0))
    if ".target sm_90" not in ptx or ".entry" not in ptx:
        raise SystemExit(f"{name}{signature}: no kernel for sm_90 in the PTX")
    if ".extern .func" in ptx:
        raise SystemExit(f"{name}{signature}: calls a function that must be linked")
    if Linker and name not in assembled:
        linker = Linker(
            ObjectCode.from_ptx(ptx.encode()),
            options=LinkerOptions(arch="sm_90", ptxas_options=["-v"]),
        )
        linker.link("cubin")
        told = re.findall(r"(\\d+) (registers|bytes stack|bytes spill)", linker.get_info_log())
        assembled[name] = [(what, int(number)) for number, what in told]
    num_compiled += 1
print(json.dumps([num_compiled, assembled if Linker else None]))
"""


@pytest.fixture(scope="module")
def compiled():
    """Return how many kernels were compiled, and of each name what assembling one of them told."""
    if importlib.util.find_spec("nvidia") is None:
        pytest.skip("compiling to PTX needs nvrtc and nvvm: pip install 'gpufeed[dev]'")
    source, sink = os.pipe()
    os.write(sink, NUMBERS)
    parts = [
        subprocess.Popen(
            [sys.executable, "-c", COMPILE],
            env=os.environ | {"NUMBA_ENABLE_CUDASIM": "0"},
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(NUM_COMPILERS)
    ]
    os.close(source), os.close(sink)
    told = [part.communicate() for part in parts]
    assert all(part.returncode == 0 for part in parts), [errors for _, errors in told]
    counts, assembled = zip(*(json.loads(output) for output, _ in told), strict=True)
    return sum(counts), assembled


def test_every_cuda_kernel_compiles_for_compute_capability_9_0(compiled):
    assert compiled[0] > 50


def test_no_cuda_kernel_needs_more_registers_than_there_are(compiled):
    """Local memory is where registers spill to, and arrays whose index is not known."""
    _, parts = compiled
    if None in parts:
        pytest.skip("assembling needs cuda.core and nvJitLink: pip install 'gpufeed[dev]'")
    assembled = [(name, *told) for part in parts for name, told in part.items()]
    assert len({name for name, *_ in assembled}) > 10
    for name, *told in assembled:
        assert {what for what, _ in told} == {"registers", "bytes stack", "bytes spill"}, name
        for what, number in told:
            # With 128, two blocks of 256 threads run on a multiprocessor of 65,536 registers; how
            # many fewer a kernel takes differs between versions of the assembler.
            assert number <= (128 if what == "registers" else 0), f"{name}: {number} {what}"
