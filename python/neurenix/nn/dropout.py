"""Dropout, which inference leaves out."""

from __future__ import annotations

from neurenix.errors import InvalidArgumentError
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced


class Dropout(Module):
    """The input: inference drops nothing. Raises `InvalidArgumentError` for a probability outside of 0 to 1."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidArgumentError("p is a probability", expected="0 to 1", got=repr(p))
        self.p = p

    def forward(self, x: Traced) -> Traced:
        """Of any shape."""
        return x

    def _describe(self) -> str:
        return f"p={self.p}"


class Dropout1d(Dropout):
    """The input: inference drops nothing."""


class Dropout2d(Dropout):
    """The input: inference drops nothing."""


class Dropout3d(Dropout):
    """The input: inference drops nothing."""


class AlphaDropout(Dropout):
    """The input: inference drops nothing."""


class FeatureAlphaDropout(Dropout):
    """The input: inference drops nothing."""
