"""Comparisons and truth values."""

from __future__ import annotations

from neurenix.importers.onnx.node import Rule
from neurenix.importers.onnx.same import same

RULES: dict[str, Rule] = {
    **same(
        "And",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "Not",
        "Or",
        "Where",
        "Xor",
    )
}
