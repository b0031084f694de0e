"""The one change that a script of PaddlePaddle's time needs: that of `gpufeed.compat`."""

from __future__ import annotations

import re


def ported(script: str) -> str:
    """Return a script after ``gpufeed.compat.`` was put in front of ``paddle`` in its imports."""
    script = re.sub(
        r"^import paddle$", "import gpufeed.compat.paddle as paddle", script, flags=re.M
    )
    return re.sub(r"^(from|import) paddle\b", r"\1 gpufeed.compat.paddle", script, flags=re.M)
