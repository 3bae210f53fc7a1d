"""DequantizeLinear."""

import numpy as np

from tests.conformance.case import Array, Given, case, constant, exact, floats, normal


def dequantized(x: Array, scale: Array, zero: Array | None = None, axis: int = 1, **_: object) -> Array:
    """The definition."""
    shape = [1] * x.ndim
    if scale.ndim == 1 and scale.size > 1:
        shape[axis] = scale.size
    centred = x.astype(np.float64) - (
        0 if zero is None else zero.astype(np.float64).reshape(shape if zero.size > 1 else ())
    )
    return centred * scale.reshape(shape if scale.size > 1 else ())


def whole(*shape: int) -> Given:
    """Any numbers of an integer dtype."""

    def make(rng: np.random.Generator, dtype: "np.dtype[np.generic]") -> Array:
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, shape, endpoint=True).astype(dtype)

    return Given(make)


OP = "DequantizeLinear"
NARROW = ("int8", "uint8", "int16", "uint16")
OPTIONS = {"dtypes": NARROW, "reference": dequantized, "result": "float32"}
CASES = [
    case("one_scale", whole(3, 257), floats(0.0173), constant(whole()), **OPTIONS),
    case("no_zero_point", whole(3, 5), exact(np.asarray(0.25), "float32"), **OPTIONS),
    case("int32", normal(3, 5), floats(0.0125), dtypes=("int32",), reference=dequantized, result="float32"),
    case("per_channel", whole(2, 3, 4, 5), floats(0.5, 0.3, 2), constant(whole(3)), **OPTIONS),
    case("per_channel_last", whole(4, 3), floats(0.5, 0.3, 2), constant(whole(3)), **OPTIONS, axis=-1),
    case("computed", whole(2, 3), exact([0.1], "float32"), whole(1), **OPTIONS),
    case(
        "half",
        whole(7, 9),
        constant(exact([0.125], "float16")),
        constant(whole(1)),
        **(OPTIONS | {"dtypes": ("int8",), "result": "float16"}),
    ),
    case(
        "blocked",
        whole(5, 4),
        constant(exact([[0.5, 0.1, 2, 1], [1, 0.25, 4, 3]], "float32")),
        constant(whole(2, 4)),
        dtypes=("int8", "uint8"),
        result="float32",
        axis=0,
        block_size=3,
        dynamic=False,
    ),
]
