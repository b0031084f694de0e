"""``import paddle.v2 as paddle``: the same names as `gpufeed.compat.paddle`.

Its modules are those, too: ``import paddle.v2.fluid as fluid``, ``paddle.v2.dataset.mnist`` ...
"""

from __future__ import annotations

import sys

from gpufeed.compat.paddle import (
    DataFeeder,
    batch,
    data_type,
    dataset,
    event,
    fluid,
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
    "fluid",
    "init",
    "layer",
    "reader",
    "train",
]

for _name, _module in list(sys.modules.items()):
    _parent, _, _below = _name.partition(".compat.paddle.")
    if _parent == "gpufeed" and _module.__name__ != __name__:
        sys.modules[f"{__name__}.{_below}"] = _module
