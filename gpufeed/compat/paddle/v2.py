"""``import paddle.v2 as paddle``: the same names as `gpufeed.compat.paddle`."""

from __future__ import annotations

from gpufeed.compat.paddle import (
    DataFeeder,
    batch,
    data_type,
    dataset,
    event,
    init,
    layer,
    reader,
    train,
)

__all__ = [
    "DataFeeder",
    "batch",
    "data_type",
    "dataset",
    "event",
    "init",
    "layer",
    "reader",
    "train",
]
