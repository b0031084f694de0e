"""The kernel that makes dense rows of sparse ones.

What is written is never outside ``out``: each index is compared with ``dim`` where it is used. On
the host a bad one is an error at once. A device cannot raise; it notes the entry in ``fault``,
which the host reads when it synchronizes next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpufeed.kernels.checks import (
    FAULT_DTYPES,
    INDEX_DTYPES,
    check_array,
    check_castable,
    check_offsets,
)
from gpufeed.kernels.dispatch import resolve

__all__ = ["densify_rows"]


def densify_rows(
    offsets: Any,
    indices: Any,
    values: Any | None,
    out: Any,
    *,
    assume_unique: bool = False,
    previous: tuple[Any, Any] | None = None,
    fault: Any | None = None,
    stream: Any | None = None,
) -> None:
    """Write CSR rows as dense ones: ``out[i, indices[k]] += values[k]`` over zeros.

    ``k`` runs over ``offsets[i]:offsets[i + 1]``; duplicates add (of bool values: either). Without
    ``values`` the entries named are set to 1, and duplicates change nothing.

    >>> out = np.empty((2, 3), "float32")
    >>> old = np.array([0, 2, 3]), np.array([0, 0, 2])
    >>> densify_rows(*old, None, out)
    >>> out.tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]

    A large output is written again for less if only what is not 0 is cleared:

    >>> densify_rows(np.array([0, 1, 1]), np.array([2]), np.array([0.5]), out, previous=old)
    >>> out.tolist()
    [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]

    Args:
        offsets: ``(rows + 1,)``, int32 or int64.
        indices: ``(total,)``, int32 or int64, in ``[0, dim)``.
        values: ``(total,)``, or None for binary rows. Cast to ``out``'s dtype before they add.
        out: ``(rows, dim)``; overwritten.
        assume_unique: The caller knows that no row names a column twice, so that values are set
            and not added; of duplicates one is kept, which is not said.
        previous: The ``(offsets, indices)`` that ``out`` was last written from, if nobody else
            wrote to it since: then only their entries are cleared, where these are few enough for
            that to be sooner done. None clears all of ``out``.
        fault: ``(1,)`` int64. Becomes 1 + the last entry whose index is outside ``[0, dim)``, if
            that is more; such entries are left out. Without it nobody is told on a device.
        stream: For device arrays: has ``__cuda_stream__``; None is the one that ``out`` names in
            its ``__cuda_array_interface__`` (CuPy's current stream), or else the legacy default
            stream. On a device duplicates of a float row add in any order.

    Raises:
        TypeError: An array of a dtype that no kernel takes, or arrays of host and device mixed.
        ValueError: An array that is not contiguous, or of another shape; on the host and without
            ``fault`` also an index outside ``[0, dim)``.
    """
    old_offsets, old_indices = previous or (None, None)
    run, (offsets, indices, values, old_offsets, old_indices, fault, out) = resolve(
        "densify_rows",
        stream,
        offsets=offsets,
        indices=indices,
        values=values,
        previous_offsets=old_offsets,
        previous_indices=old_indices,
        fault=fault,
        out=out,
    )
    check_array("densify_rows.out", out, ("rows", "dim"), is_written=True)
    _check_rows("densify_rows.", offsets, indices, out.shape[0])
    if values is not None:
        check_array("densify_rows.values", values, indices.shape)
        check_castable("densify_rows.values", values, out)
    if previous is not None:
        _check_rows("densify_rows.previous_", old_offsets, old_indices, out.shape[0])
        previous = old_offsets, old_indices
    if fault is not None:
        check_array("densify_rows.fault", fault, (1,), FAULT_DTYPES, is_written=True)
    noted = fault
    if noted is None and isinstance(out, np.ndarray):
        noted = np.zeros(1, np.int64)
    options = {"assume_unique": assume_unique, "previous": previous, "fault": noted}
    run(offsets, indices, values, out, **options)
    if fault is None and noted is not None and noted[0]:
        entry = int(noted[0]) - 1
        raise ValueError(
            f"densify_rows.indices must be in [0, {out.shape[1]}), "
            f"got {indices[entry]} at entry {entry}"
        )


def _check_rows(argument: str, offsets: Any, indices: Any, rows: int) -> None:
    check_array(f"{argument}indices", indices, ("total",), INDEX_DTYPES)
    check_offsets(f"{argument}offsets", offsets, rows, indices.shape[0])
