"""What writes some of torch's operators as ONNX in place of torch's own exporter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from neurenix.importers.torch import arithmetic, attention


@functools.cache
def translations() -> dict[Any, Callable[..., Any]]:
    """Functions of onnxscript, by the operators that they write."""
    return attention.translations() | arithmetic.translations()
