"""The kernel that does all that one batch needs after its transfer (`gpufeed.kernels.jobs`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpufeed.kernels.checks import FAULT_DTYPES, check_array
from gpufeed.kernels.dispatch import resolve
from gpufeed.kernels.jobs import FAULT_WORDS

__all__ = ["prepare_unpack", "unpack_fields"]


def unpack_fields(
    slab: Any, fault: Any, *, has_late: bool = False, stream: Any | None = None
) -> None:
    """Do the jobs of the table that ``slab`` begins with.

    >>> from gpufeed.kernels.jobs import convert_job, table_shape, write_table
    >>> slab, fault = np.zeros(512, "uint8"), np.zeros(5, "int64")
    >>> ids = (256, (3,), np.dtype("uint8"))
    >>> slab[256:259] = 7, 8, 9
    >>> job = convert_job(ids, None, None, (384, (3,), np.dtype("int64")))
    >>> table = slab[:256].view("int64").reshape(table_shape(1))
    >>> write_table(table, [(0, job)])
    >>> unpack_fields(slab, fault)
    >>> slab[384:408].view("int64").tolist()
    [7, 8, 9]

    Args:
        slab: ``(nbytes,)`` uint8, a multiple of 8 bytes at a multiple of 8. What the table says is
            the caller's promise; only indices of sparse rows are checked.
        fault: ``(5,)`` int64, in memory that the device writes to: `gpufeed.kernels.jobs` says
            what it is told there. Entries outside their rows are left out.
        has_late: Whether there are jobs that overwrite what others read.
        stream: As for `densify_rows`.

    Raises:
        TypeError: An array of another dtype, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape.
    """
    run, slab, fault = _checked("unpack_fields", slab, fault, stream)
    run(slab, fault, has_late=has_late)


def prepare_unpack(slab: Any, fault: Any, *, stream: Any | None = None) -> Callable[[bool], None]:
    """Return `unpack_fields` for these arguments, as a function of ``has_late``.

    On a device each call of it is one launch, or two, for a fraction of what a launch costs else.
    """
    run, slab, fault = _checked("prepare_unpack", slab, fault, stream)
    if isinstance(slab, np.ndarray):
        return lambda has_late: run(slab, fault, has_late=has_late)
    from gpufeed.kernels import cuda_unpack

    return cuda_unpack.prepare_unpack(slab, fault, stream)


def _checked(
    owner: str, slab: Any, fault: Any, stream: Any | None
) -> tuple[Callable[..., None], Any, Any]:
    run, (fault, slab) = resolve("unpack_fields", stream, fault=fault, out=slab)
    check_array(f"{owner}.slab", slab, ("nbytes",), (np.dtype("uint8"),), is_written=True)
    check_array(f"{owner}.fault", fault, (FAULT_WORDS,), FAULT_DTYPES, is_written=True)
    if slab.size % 8:
        raise ValueError(f"{owner}.slab must be a multiple of 8 bytes, got {slab.size}")
    return run, slab, fault
