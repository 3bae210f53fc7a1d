"""Packages that the extra `test` leaves out, for code that tests share and that must be importable without them."""

from __future__ import annotations

from typing import Any

import pytest


class Lazy:
    """A module that is imported when something of it is asked for; where it is missing, that skips the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks what it collects for such
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)


torch: Any = Lazy("torch")
