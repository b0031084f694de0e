"""``from paddle.trainer.PyDataProvider2 import *``: `@provider` and the input types.

What `gpufeed.provider` has repaired stays repaired: the default pool holds some thousand samples
and not all there are.
"""

# ruff: noqa: N999 - the reference's name

from __future__ import annotations

from gpufeed.provider import *  # noqa: F403 - these names, whatever they are
from gpufeed.provider import __all__ as __all__
