"""Cast."""

from collections.abc import Sequence

from tests.conformance.case import (
    BOOL,
    FLOATS,
    INTS,
    NARROW_INTS,
    ORDERED_INTS,
    Array,
    Case,
    Given,
    case,
    dtype_of,
    exact,
    normal,
    uniform,
)


def cast(name: str, given: Given, to: str, dtypes: Sequence[str] = FLOATS) -> Case:
    """A case whose reference is numpy's cast: ONNX's evaluator would get doubles and round twice."""

    def reference(x: Array, to: object) -> Array:
        return x.astype(to)

    return case(name, given, dtypes=dtypes, reference=reference, result=to, to=dtype_of(to))


OP = "Cast"
NAN = float("nan")
CASES = [
    cast("to_float", uniform(-70, 70, 3, 37), "float32"),
    cast("to_double", uniform(-70, 70, 3, 37), "float64"),
    cast("to_half", uniform(-70, 70, 3, 37), "float16"),
    cast("to_bfloat16", uniform(-70, 70, 3, 37), "bfloat16"),
    cast("half_overflows", exact([65504.0, 65519.0, 65520.0, 1e6, -1e6]), "float16", ["float32"]),
    cast("truncates", exact([1.5, -1.5, 2.9, -2.9, 0.0, -0.5]), "int32"),
    cast("to_long", uniform(-90, 90, 4, 17), "int64"),
    cast("to_byte", uniform(0, 250, 4, 17), "uint8"),
    cast("to_bool", exact([0.0, -0.0, 1.0, 0.25, -3.0]), "bool"),
    cast("nan_to_bool", exact([NAN, float("inf")]), "bool"),
    cast("int_to_float", normal(3, 37), "float32", [*INTS, *ORDERED_INTS, *BOOL]),
    cast("int_to_int", normal(3, 37), "int64", [*INTS, *NARROW_INTS, *BOOL]),
    cast("int_narrows", exact([300, -1, 127, 128]), "int8", INTS),
    cast("int_to_bool", exact([0, 1, 2, 255]), "bool", [*INTS, "uint8"]),
    cast("same", normal(3, 5), "float32", ["float32"]),
    cast("rank_0", normal(), "float32"),
    cast("empty", normal(0, 3), "float32"),
]
