"""QuantizeLinear."""

import numpy as np

from tests.conformance.case import Array, Given, case, constant, exact, floats, normal, uniform

FIELDS = {np.dtype(d): np.iinfo(d) for d in ("int8", "uint8", "int16", "uint16")}


def quantized(x: Array, scale: Array, zero: Array | None = None, axis: int = 1, **_: object) -> Array:
    """The definition; scales are powers of two, so that double precision gives the same quotients."""
    to = np.dtype(np.uint8) if zero is None else zero.dtype
    shape = [1] * x.ndim
    if scale.ndim == 1 and scale.size > 1:
        shape[axis] = scale.size
    field = FIELDS[to]
    y = np.rint(x / scale.reshape(shape if scale.size > 1 else ())).astype(np.int64)
    y = y + (0 if zero is None else zero.astype(np.int64).reshape(shape if zero.size > 1 else ()))
    return np.clip(y, field.min, field.max).astype(to)


def zero(value: int, dtype: str) -> Given:
    return constant(exact(np.asarray(value), dtype))


def zeros(*values: int, dtype: str = "uint8") -> Given:
    return constant(exact(np.asarray(values), dtype))


OP = "QuantizeLinear"
F32 = {"dtypes": ("float32",), "reference": quantized}
CASES = [
    case(
        "halves",
        exact(np.arange(-40, 40) / 2),
        floats(1),
        zero(3, "int8"),
        dtypes=("float32", "float16"),
        reference=quantized,
    ),
    case("saturates", uniform(-900, 900, 3, 257), exact(np.asarray(0.5), "float32"), zero(128, "uint8"), **F32),
    case("int16", uniform(-90000, 90000, 3, 257), floats(2), zero(-5, "int16"), **F32),
    case("uint16", uniform(-90000, 90000, 3, 257), floats(1), zero(100, "uint16"), **F32),
    case("no_zero_point", normal(4, 5), floats(0.25), **F32),
    case("per_channel", normal(2, 3, 4, 5), floats(0.5, 0.25, 2), zeros(1, 2, 3), **F32),
    case("per_channel_last", normal(2, 4, 3), floats(0.5, 0.25, 2), zeros(1, -2, 3, dtype="int8"), **F32, axis=-1),
    case("scale_that_is_computed", normal(5, 7), exact([0.125], "float32"), zero(7, "uint8"), **F32),
    case(
        "blocked",
        normal(2, 6),
        constant(exact([[0.5, 1, 2], [1, 0.25, 4]], "float32")),
        dtypes=("float32",),
        block_size=2,
        dynamic=False,
    ),
    case(
        "blocked_not_evenly",
        normal(5, 3),
        constant(exact([[0.5, 1, 2], [1, 0.25, 4]], "float32")),
        constant(exact([[0, 1, 2], [3, 4, 5]], "int8")),
        dtypes=("float32",),
        axis=0,
        block_size=3,
        dynamic=False,
    ),
    case("dtype_by_attribute", normal(3, 4), floats(0.125), dtypes=("float32",), output_dtype=5),
    case("inexact_scale", normal(64, 33), floats(0.0173), zero(11, "uint8"), dtypes=("float32",), opset=13),
    case(
        "double",
        normal(6, 5),
        exact(np.asarray(0.5), "float64"),
        zero(1, "uint8"),
        dtypes=("float64",),
        reference=quantized,
        opset=23,
    ),
]
