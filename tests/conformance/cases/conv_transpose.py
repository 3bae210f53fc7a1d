"""ConvTranspose."""

from tests.conformance.case import F32, Array, case, constant, normal
from tests.optional import torch


def convolved(x: Array, w: Array, b: Array | None = None, **attrs: object) -> Array:
    """torch's transposed convolution in double precision, without padding, cut by hand."""
    given: dict[str, list[int]] = {k: v for k, v in attrs.items() if isinstance(v, list)}
    rank = x.ndim - 2
    strides, dilations = given.get("strides", [1] * rank), given.get("dilations", [1] * rank)
    extra = given.get("output_padding", [0] * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [(size - 1) * s + r for size, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    pads = given.get("pads", [0] * 2 * rank)
    wanted = [full[a] + extra[a] - pads[a] - pads[a + rank] for a in range(rank)]
    if str(attrs.get("auto_pad", "")).startswith("SAME"):
        wanted = [size * s for size, s in zip(x.shape[2:], strides, strict=True)]
    wanted = given.get("output_shape", wanted)
    if "output_shape" in attrs or "auto_pad" in attrs:
        total = [full[a] + extra[a] - wanted[a] for a in range(rank)]
        upper = attrs.get("auto_pad") == "SAME_UPPER"
        pads = [t // 2 if upper else t - t // 2 for t in total]
    convolve = (
        torch.nn.functional.conv_transpose1d,
        torch.nn.functional.conv_transpose2d,
        torch.nn.functional.conv_transpose3d,
    )[rank - 1]
    groups = attrs.get("group", 1)
    y = convolve(torch.from_numpy(x), torch.from_numpy(w), stride=strides, dilation=dilations, groups=groups)
    more = [max(pads[a] + wanted[a] - full[a], 0) for a in range(rank)]
    y = torch.nn.functional.pad(y, [p for axis in reversed(range(rank)) for p in (0, more[axis])])
    for axis in range(rank):
        y = y.narrow(axis + 2, pads[axis], wanted[axis])
    bias = 0 if b is None else torch.from_numpy(b).reshape(-1, *[1] * rank)
    return (y + bias).numpy()


def weights(*shape: int):
    return constant(normal(*shape))


OP = "ConvTranspose"
OPTIONS = {"sums": True, "reference": convolved}
CASES = [
    case("plain", normal(2, 3, 5, 6), weights(3, 8, 3, 3), **OPTIONS),
    case("doubles", normal(2, 16, 5, 7), weights(16, 8, 2, 2), weights(8), **OPTIONS, strides=[2, 2]),
    case("odd_channels", normal(1, 5, 6, 5), weights(5, 7, 2, 2), weights(7), **OPTIONS, strides=[2, 2]),
    case("overlapping", normal(1, 4, 5, 5), weights(4, 4, 4, 4), **OPTIONS, strides=[2, 2], pads=[1, 1, 1, 1]),
    case(
        "output_padding",
        normal(1, 4, 5, 5),
        weights(4, 6, 3, 3),
        **OPTIONS,
        strides=[2, 2],
        pads=[1] * 4,
        output_padding=[1, 1],
    ),
    case("uneven_pads", normal(1, 2, 5, 5), weights(2, 3, 3, 3), **OPTIONS, pads=[0, 1, 2, 0]),
    case("dilated", normal(1, 2, 5, 5), weights(2, 3, 3, 3), **OPTIONS, dilations=[2, 2]),
    case("grouped", normal(1, 8, 5, 5), weights(8, 3, 3, 3), weights(6), **OPTIONS, group=2),
    case("depthwise", normal(1, 8, 5, 5), weights(8, 1, 2, 2), **OPTIONS, group=8, strides=[2, 2]),
    case("stride_above_kernel", normal(1, 2, 4, 4), weights(2, 3, 2, 2), **OPTIONS, strides=[3, 3]),
    case(
        "output_shape",
        normal(1, 2, 4, 4),
        weights(2, 3, 3, 3),
        **OPTIONS,
        strides=[2, 2],
        output_shape=[8, 8],
        dynamic=False,
    ),
    case("same_upper", normal(1, 2, 4, 5), weights(2, 3, 3, 3), **OPTIONS, strides=[2, 2], auto_pad="SAME_UPPER"),
    case("same_lower", normal(1, 2, 4, 5), weights(2, 3, 3, 3), **OPTIONS, strides=[2, 2], auto_pad="SAME_LOWER"),
    case("one_dimension", normal(2, 4, 7), weights(4, 3, 4), weights(3), **OPTIONS, strides=[2], pads=[1, 1]),
    case("three_dimensions", normal(1, 3, 3, 4, 5), weights(3, 2, 2, 2, 2), **OPTIONS, strides=[2, 2, 2]),
    case("weights_at_run_time", normal(1, 3, 4, 4), normal(3, 2, 2, 2), **OPTIONS, strides=[2, 2], dynamic=False),
    case("no_images", normal(0, 3, 4, 4), weights(3, 2, 2, 2), **OPTIONS, dtypes=F32),
]
