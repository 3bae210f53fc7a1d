"""ConvInteger."""

import numpy as np

from tests.conformance.case import Array, case, constant
from tests.conformance.cases.dequantize_linear import whole
from tests.conformance.cases.matmul_integer import of
from tests.optional import torch


def convolution(
    x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, group: int = 1, **attrs: object
) -> Array:
    """PyTorch's in double precision, which has every integer that occurs."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    if x_zero is not None:
        x = x - x_zero
    if w_zero is not None:
        w = w - (w_zero.reshape(-1, *[1] * (w.ndim - 1)) if w_zero.ndim else w_zero)
    pads = attrs.get("pads", [0] * 2 * (x.ndim - 2))
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[: x.ndim - 2], pads[x.ndim - 2 :], strict=True)])
    function = [torch.nn.functional.conv1d, torch.nn.functional.conv2d][x.ndim - 3]
    steps = {"stride": attrs.get("strides", 1), "dilation": attrs.get("dilations", 1)}
    return function(torch.tensor(x), torch.tensor(w), groups=group, **steps).numpy().astype(np.int32)


OP = "ConvInteger"
OPTIONS = {"dtypes": ("uint8", "int8"), "reference": convolution}
CASES = [
    case("plain", whole(1, 3, 5, 6), constant(whole(4, 3, 3, 3)), **OPTIONS),
    case(
        "padded_with_the_zero_point",
        whole(2, 8, 6, 6),
        constant(whole(16, 8, 3, 3)),
        whole(),
        **OPTIONS,
        pads=[1, 1, 1, 1],
    ),
    case(
        "per_channel",
        whole(1, 16, 6, 6),
        constant(whole(8, 16, 3, 3)),
        constant(whole()),
        constant(whole(8)),
        **OPTIONS,
    ),
    case("signed_weights", whole(1, 128, 4, 4), of("int8", constant(whole(8, 128, 3, 3))), whole(1), **OPTIONS),
    case("long_sums", whole(1, 700, 3, 3), whole(2, 700, 3, 3), **OPTIONS, dynamic=False),
    case("groups", whole(1, 8, 7, 7), constant(whole(8, 1, 3, 3)), whole(), **OPTIONS, group=8, strides=[2, 2]),
    case("one_axis", whole(1, 4, 30), constant(whole(6, 2, 5)), **OPTIONS, group=2, pads=[3, 1], dilations=[2]),
]
