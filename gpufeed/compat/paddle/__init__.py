"""``import paddle``, and ``import paddle.v2 as paddle``: readers, batches, data types, `train`.

`batch` keeps a last batch that is not full, as most releases did; ``drop_last=True`` leaves it out,
which for some months of 2018 and in the last ``paddle.v2`` was the default.

`train` is that of the design of readers, which was never released: its ``step`` is the network.
"""

from __future__ import annotations

from gpufeed.compat.paddle import data_type, dataset, event, fluid, layer, reader, trainer
from gpufeed.compat.paddle.data_feeder import DataFeeder
from gpufeed.reader.batch import batch
from gpufeed.training import train

__all__ = [
    "DataFeeder",
    "batch",
    "data_type",
    "dataset",
    "event",
    "fluid",
    "init",
    "layer",
    "reader",
    "train",
    "trainer",
]


def init(**arguments: object) -> None:
    """Do nothing: ``use_gpu`` and the like were for the trainer; feeders are told their place."""
