"""For the tests of those who use gpufeed: on any machine, without a GPU.

With gpufeed installed, pytest also has the fixtures of `gpufeed.pytest_plugin`:
``gpufeed_virtual_devices`` and ``gpufeed_no_leaks``.
"""

from __future__ import annotations

from gpufeed.testing.compare import assert_equal
from gpufeed.testing.faults import chaos
from gpufeed.testing.resume import assert_resumes_exactly

__all__ = ["assert_equal", "assert_resumes_exactly", "chaos"]
