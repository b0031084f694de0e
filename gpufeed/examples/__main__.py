"""``python -m gpufeed.examples``: which examples there are."""

from __future__ import annotations

import gpufeed.examples

print(gpufeed.examples.__doc__)
