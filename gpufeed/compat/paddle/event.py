"""``paddle.event``: what a training loop tells its ``event_handler``."""

from __future__ import annotations

from gpufeed.training import BeginIteration, BeginPass, EndIteration, EndPass

__all__ = ["BeginIteration", "BeginPass", "EndIteration", "EndPass"]
