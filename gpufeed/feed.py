"""`Feed`: what one step of training gets, by name, on one place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpufeed.places import Place
from gpufeed.sparse import SparseRows
from gpufeed.tensor import LoDTensor

__all__ = ["Feed"]


class Feed(dict[str, LoDTensor | SparseRows]):
    """A mapping from field name to tensor, in the order of ``feed_list``.

    Attributes:
        place: Where all its tensors live.
    """

    __slots__ = ("place",)

    place: Place

    def __init__(
        self, tensors: Iterable[tuple[str, LoDTensor | SparseRows]] = (), *, place: Place
    ) -> None:
        super().__init__(tensors)
        self.place = place

    def copy(self) -> Feed:
        """Return another feed of the same tensors."""
        return Feed(self.items(), place=self.place)

    def to_torch(self) -> dict[str, Any]:
        """Return the tensors as torch's, without a copy; sparse ones as CSR tensors.

        Raises:
            MissingExtra: torch is not installed.
        """
        return {name: tensor.to_torch() for name, tensor in self.items()}

    def to_jax(self) -> dict[str, Any]:
        """Return the tensors as JAX arrays, without a copy where JAX can take one so.

        Raises:
            MissingExtra: JAX is not installed.
        """
        return {name: tensor.to_jax() for name, tensor in self.items()}
