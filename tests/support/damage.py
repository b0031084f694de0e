"""Damage to files: random edits, with bytes that mean something to one format or another."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

__all__ = ["edits"]

TELLING = [
    *(b"\0", b"\xff", b"\n", b'"', b":", b"_", b"-", b"{", b"nan", b"1e999", b"9" * 30, b"\xc3"),
    *(b"\4\3\2\1", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\0" * 8),
]


@st.composite
def edits(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A few replacements, insertions and deletions at places given as fractions of the length."""
    changes = draw(
        st.lists(
            st.tuples(
                st.floats(0, 1),
                st.integers(0, 6),
                st.sampled_from(TELLING) | st.binary(max_size=6),
            ),
            max_size=4,
        )
    )

    def apply(content: bytes) -> bytes:
        for where, width, new in changes:
            at = int(where * len(content))
            content = content[:at] + new + content[at + width :]
        return content

    return apply
