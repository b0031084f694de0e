"""Sums of float16 values, which numba's CPU target does not know, out of their bits.

`combined` is what a second entry of one place does to the first: numbers add, truth values are
or-ed. Words of 16 bits stand for float16, since nothing here is a plain unsigned 16-bit number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

__all__ = ["combined"]

_NEGATIVE_ZERO = 0x8000
_ABOVE_LARGEST = 0x477FF000  # bits of 65520, the least float32 that rounds to infinity
_SMALLEST_NORMAL = 0x38800000  # of 2**-14
_INFINITY = 0x7F800000


def combined(held: Any, value: Any) -> Any:
    """Return what two entries of one place make; compiled code only."""
    raise NotImplementedError


@overload(combined, strict=False)  # type: ignore[untyped-decorator]
def _choose(held: Any, value: Any) -> Callable[[Any, Any], Any]:
    if held == types.uint16:
        return lambda held, value: _half_sum(held, value)
    if held == types.boolean:
        return lambda held, value: held | value
    return lambda held, value: held + value


@njit  # type: ignore[untyped-decorator]
def _half_sum(held: Any, value: Any) -> Any:
    if held == 0 and value != _NEGATIVE_ZERO:  # nearly always, as an entry is mostly its only one
        return value
    return _half_bits(_single(held) + _single(value))


@njit  # type: ignore[untyped-decorator]
def _bits_of(single: Any) -> Any:
    return np.float32(single).view(np.uint32)


@njit  # type: ignore[untyped-decorator]
def _from_bits(bits: Any) -> Any:
    return np.uint32(bits).view(np.float32)


@njit  # type: ignore[untyped-decorator]
def _single(half: Any) -> Any:
    """Return the float32 that equals the float16 of these bits."""
    bits = np.uint32(half)  # numba calculates in 64 bits from here on
    sign, magnitude = (bits & 0x8000) << 16, (bits & 0x7FFF) << 13
    if bits & 0x7C00 == 0x7C00:
        return _from_bits(sign | magnitude | _INFINITY)
    # The exponent's bias differs by 112; a product is right for subnormal numbers too.
    return _from_bits(sign | _bits_of(_from_bits(magnitude) * np.float32(2.0**112)))


@njit  # type: ignore[untyped-decorator]
def _half_bits(single: Any) -> Any:
    """Return the bits of the float16 nearest to a float32, the even one of two."""
    bits = _bits_of(single)
    sign, magnitude = (bits >> 16) & 0x8000, bits & 0x7FFFFFFF
    if magnitude > _INFINITY:
        half = 0x7E00
    elif magnitude >= _ABOVE_LARGEST:
        half = 0x7C00
    elif magnitude < _SMALLEST_NORMAL:
        # 0.5 counts in the steps of subnormal float16 numbers, so the sum is rounded to them.
        half = _bits_of(_from_bits(magnitude) + np.float32(0.5)) - 0x3F000000
    else:
        odd = (magnitude >> 13) & 1
        half = (magnitude + 0xFFF + odd - 0x38000000) >> 13
    return np.uint16(sign | half)
