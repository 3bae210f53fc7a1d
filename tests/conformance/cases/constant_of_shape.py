"""ConstantOfShape."""

from collections.abc import Sequence

import numpy as np

from tests.conformance.case import Array, Case, case, dtype_of, ints


def filled(shape: Array, value: float, dtype: np.dtype) -> Array:
    return np.full(shape, value, dtype)


def of(name: str, shape: Sequence[int], value: float, dtype: str) -> Case:
    """A case through the Network API: in ONNX the attribute is a tensor."""
    attrs = {"value": value, "dtype": dtype_of(dtype)}
    options = {"dtypes": ["int64"], "opset": 0, "dynamic": False, "result": dtype}
    return case(name, ints(*shape), reference=filled, **options, **attrs)


OP = "ConstantOfShape"
CASES = [
    of("zeros", (2, 3), 0.0, "float32"),
    of("number", (2, 3), -1.5, "float32"),
    of("long", (4,), 7, "int64"),
    of("truth", (2, 2), 1, "bool"),
    of("half", (2, 2), 0.5, "float16"),
    of("rank_0", (), 3.0, "float32"),
    of("empty", (0, 3), 1.0, "float32"),
]
