"""Ray itself, in a process of its own: what its documentation promises, `ray_dataset` relies on."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.timeout(300),
]

SCRIPT = """
import numpy as np
import pyarrow as pa
import ray

import gpufeed as gf

ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
try:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    tables = [pa.table({"ids": [[n] * n, []], "label": [n, -n]}) for n in range(1, 5)]
    expected = [(label, ids) for table in tables for ids, label in zip(*table.to_pydict().values())]
    data = ray.data.from_arrow(tables)

    reader = gf.creator.ray_dataset(data, ["label", "ids"], order=True)
    rows = [(label, ids.tolist()) for label, ids in reader]
    assert rows == expected, rows
    rows = [(label, ids.tolist()) for label, ids in reader.open(0, 3)]
    assert rows == expected[3:], rows

    doubled = data.map_batches(
        lambda table: table.set_column(1, "label", pa.compute.multiply(table["label"], 2)),
        batch_format="pyarrow",
    )
    whole = gf.ColumnarBatch.concat(gf.creator.ray_dataset(doubled, columnar=True)).columns
    assert whole["label"].tolist() == [2 * label for label, _ in expected]
    assert whole["ids"].to_list() == [ids for _, ids in expected]

    images = ray.data.from_numpy([np.arange(12).reshape(3, 2, 2), np.arange(8).reshape(2, 2, 2)])
    (first, *_) = gf.creator.ray_dataset(images, columnar=True)
    assert first.columns["data"].shape[1:] == (2, 2), first
    assert first.columns["data"][0].tolist() == [[0, 1], [2, 3]]

    parts = [gf.creator.ray_dataset(part, ["label"]) for part in data.split(2)]
    labels = sorted(label for part in parts for (label,) in part)
    assert labels == sorted(label for label, _ in expected), labels
    print("ray reads as expected")
finally:
    ray.shutdown()
"""


def test_ray_gives_what_it_documents() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )

    assert run.stdout.strip().endswith("ray reads as expected"), run.stdout + run.stderr[-4000:]
