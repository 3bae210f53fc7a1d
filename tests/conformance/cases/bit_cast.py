"""BitCast."""

from typing import Any

import ml_dtypes
import numpy as np

from tests.conformance.case import Array, Case, case, exact


def of(name: str, values: list[float], source: str, target: Any) -> Case:
    given = np.asarray(values).astype(ml_dtypes.bfloat16 if source == "bfloat16" else source)

    def reference(x: Array, to: Any) -> Array:
        # The suite widens floating-point inputs; the bits are those of the narrow ones.
        return x.astype(given.dtype).view(to)

    result = None if np.dtype(target).kind in "iub" else np.dtype(target).name
    return case(
        name,
        exact(given, given.dtype),
        dtypes=[source],
        opset=26,
        reference=reference,
        result=result,
        to=np.dtype(target),
    )


OP = "BitCast"
CASES = [
    of("float_as_int", [1.0, -0.0, np.inf, 3.5], "float32", np.int32),
    of("int_as_float", [0x3F800000, -1082130432, 0], "int32", np.float32),
    of("double_as_long", [1.0, -2.0], "float64", np.int64),
    of("half_as_short", [1.0, -2.0], "float16", np.uint16),
    of("short_as_bfloat16", [0x3F80, 0x4040], "uint16", ml_dtypes.bfloat16),
    of("signed_as_unsigned", [-1, 1, -128], "int8", np.uint8),
    of("bool_as_byte", [0, 1, 1], "bool", np.uint8),
    of("byte_as_bool", [0, 1, 1], "uint8", np.bool_),
]
