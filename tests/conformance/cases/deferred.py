"""Deferred."""

from typing import Any

import numpy as np

from tests.conformance.case import F32, Array, case, exact, normal

OP = "Deferred"


def reference(axes: Array, x: Array, **attrs: Any) -> Array:
    """Each case reduces or squeezes."""
    axis = tuple(int(a) for a in axes)
    if attrs["op"] == "Squeeze":
        return np.squeeze(x, axis)
    return np.sum(x, axis, keepdims=bool(attrs["attrs"]["keepdims"]))


def axes(*values: int) -> Any:
    """Axes that come with the call."""
    return exact(np.array(values, np.int64), np.int64)


CASES = [
    case(
        f"sum_{keepdims}",
        axes(0, -1),
        normal(4, 3, 5),
        dtypes=F32,
        reference=reference,
        opset=0,
        dynamic=False,
        sums=True,
        op="ReduceSum",
        into="axes",
        attrs={"keepdims": keepdims},
    )
    for keepdims in (0, 1)
]
CASES.append(
    case(
        "squeeze",
        axes(1),
        normal(4, 1, 5),
        dtypes=F32,
        reference=reference,
        opset=0,
        dynamic=False,
        op="Squeeze",
        into="axes",
        attrs={},
    )
)
