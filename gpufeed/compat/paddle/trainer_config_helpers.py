"""``from paddle.trainer_config_helpers import *``: where a configuration names its providers."""

from __future__ import annotations

from gpufeed.provider.sources import define_py_data_sources2

__all__ = ["define_py_data_sources2"]
