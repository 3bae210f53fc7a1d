"""torch's ONNX exporter, for which the table that it makes anew for each model is made once."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any


def pytest_runtest_setup() -> None:
    """Of small models, most of the time is that of a table of how each of torch's functions is written."""
    # Who needs the exporter imports it.
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    registry: Any = getattr(module, "ONNXRegistry", None)
    made = getattr(registry, "from_torchlib", None)
    if made is not None and not hasattr(made, "__wrapped__"):
        registry.from_torchlib = staticmethod(_copied(made))


def _copied(made: Callable[..., Any]) -> Callable[..., Any]:
    """Gives copies, since models bring functions of their own."""
    kept = functools.cache(made)

    @functools.wraps(made)
    def copied(*given: Any, **named: Any) -> Any:
        table = copy.copy(kept(*given, **named))
        table.functions = {target: list(functions) for target, functions in table.functions.items()}
        return table

    return copied
