"""``fluid.framework``: programs and their variables."""

from __future__ import annotations

from gpufeed.variables import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_guard,
)

__all__ = [
    "Program",
    "Variable",
    "default_main_program",
    "default_startup_program",
    "program_guard",
]
