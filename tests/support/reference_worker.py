"""Feeds cases through PaddlePaddle itself; runs in an environment that has it, and no gpufeed.

``python reference_worker.py < cases.json > results.json``, both a list. PaddlePaddle 1.8.5 (Python
3.8, numpy<1.24, protobuf<=3.20.3) and 2.6.2 (Python 3.11, numpy<2) are known to work.
"""

import json
import sys

import numpy as np
import paddle
from reference_cases import batch_of


def feed(case):
    """Return the result of one case, or the type of the exception that it ends in."""
    try:
        tensor = _feed(case)
    except Exception as error:  # noqa: BLE001 - it is the result
        return {"error": type(error).__name__}
    values = np.array(tensor)
    return {
        "values": values.ravel().tolist(),
        "shape": list(values.shape),
        "dtype": str(values.dtype),
        "lengths": tensor.recursive_sequence_lengths(),
    }


def _feed(case):
    names = case["shape"], case["dtype"], case["lod_level"]
    rows = batch_of(case)
    if paddle.__version__.startswith("1."):
        from paddle import fluid

        with fluid.program_guard(fluid.Program(), fluid.Program()):
            variable = fluid.data("x", *names)
            return fluid.DataFeeder([variable], fluid.CPUPlace()).feed(rows)["x"]
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        variable = paddle.static.data("x", *names)
        return paddle.base.DataFeeder([variable], paddle.CPUPlace()).feed(rows)["x"]


if __name__ == "__main__":
    json.dump([feed(case) for case in json.load(sys.stdin)], sys.stdout)
