"""DynamicQuantizeLinear."""

import numpy as np

from tests.conformance.case import Array, case, exact, normal, uniform

ENDS = (np.float32(0), np.float32(255))


def quantized(x: Array) -> tuple[Array, Array, Array]:
    """The definition, in single precision as ONNX has it; where there is no range, the scale is 1."""
    single = x.astype(np.float32)
    low, high = single.min(initial=0), single.max(initial=0)
    scale = np.float32(high - low) / ENDS[1] if high > low else np.float32(1)
    zero = np.rint(np.clip(ENDS[0] - low / scale, *ENDS))
    y = np.clip(np.rint(single / scale) + zero, *ENDS)
    return y.astype(np.uint8), np.asarray(scale), zero.astype(np.uint8)


OP = "DynamicQuantizeLinear"
OPTIONS = {"dtypes": ("float32",), "reference": quantized, "outputs": 3}
CASES = [
    case("of_either_sign", normal(3, 257), **OPTIONS),
    case("positive", uniform(2, 5, 2, 3, 4), **OPTIONS),
    case("negative", uniform(-9, -1, 40), **OPTIONS),
    case("halves", exact(np.arange(-10, 246) / 2), **OPTIONS),
    case("zeros", exact(np.zeros((3, 4))), **OPTIONS),
    case("nothing", normal(0, 5), **OPTIONS),
    case("one_number", exact(np.asarray(-2.5)), **OPTIONS),
    case("over_several_threads", normal(70, 1001), **OPTIONS),
]
