"""Conv."""

from tests.conformance.case import F32, Array, case, constant, exact, normal
from tests.optional import torch


def convolved(x: Array, w: Array, b: Array | None = None, **attrs: object) -> Array:
    """torch's convolution in double precision, after padding by hand."""
    given: dict[str, list[int]] = {k: v for k, v in attrs.items() if isinstance(v, list)}
    rank = x.ndim - 2
    pads = given.get("pads", [0] * 2 * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], given.get("dilations", [1] * rank), strict=True)]
    strides = given.get("strides", [1] * rank)
    if str(attrs.get("auto_pad", "")).startswith("SAME"):
        sizes = zip(x.shape[2:], reach, strides, strict=True)
        total = [max((-(-size // s) - 1) * s + r - size, 0) for size, r, s in sizes]
        less, more = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = less + more if attrs["auto_pad"] == "SAME_UPPER" else more + less
    backwards = [p for axis in reversed(range(rank)) for p in (pads[axis], pads[axis + rank])]
    padded = torch.nn.functional.pad(torch.from_numpy(x), backwards)
    convolve = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[rank - 1]
    bias = None if b is None else torch.from_numpy(b)
    dilations, groups = given.get("dilations", 1), attrs.get("group", 1)
    return convolve(padded, torch.from_numpy(w), bias, stride=strides, dilation=dilations, groups=groups).numpy()


def weights(*shape: int):
    return constant(normal(*shape))


OP = "Conv"
OPTIONS = {"sums": True, "reference": convolved}
CASES = [
    case("plain", normal(2, 3, 8, 9), weights(16, 3, 3, 3), **OPTIONS),
    case("bias", normal(2, 3, 8, 9), weights(16, 3, 3, 3), weights(16), **OPTIONS, pads=[1, 1, 1, 1]),
    case("one_by_one", normal(2, 16, 5, 7), weights(32, 16, 1, 1), weights(32), **OPTIONS),
    case("one_by_one_of_few", normal(2, 6, 5, 8), weights(4, 6, 1, 1), weights(4), **OPTIONS),
    case("one_by_one_at_run_time", normal(2, 6, 5, 8), normal(4, 6, 1, 1), normal(4), **OPTIONS),
    case("one_by_one_strided", normal(1, 16, 6, 7), weights(16, 16, 1, 1), **OPTIONS, strides=[2, 2]),
    case("apart", normal(2, 8, 7, 10), weights(6, 8, 1, 2), weights(6), **OPTIONS, strides=[2, 3]),
    case("one_dimension_apart", normal(2, 4, 15), weights(8, 4, 2), **OPTIONS, strides=[4]),
    case("three_dimensions_apart", normal(1, 4, 5, 6, 7), weights(4, 4, 1, 2, 1), **OPTIONS, strides=[2, 2, 3]),
    case("odd_channels", normal(2, 5, 7, 7), weights(13, 5, 3, 3), weights(13), **OPTIONS, pads=[1, 1, 1, 1]),
    case("one_channel", normal(2, 1, 9, 9), weights(1, 1, 3, 3), **OPTIONS),
    case("stem", normal(1, 3, 17, 19), weights(64, 3, 7, 7), **OPTIONS, strides=[2, 2], pads=[3, 3, 3, 3]),
    case("even_kernel", normal(1, 3, 12, 12), weights(32, 3, 6, 6), **OPTIONS, strides=[2, 2], pads=[2, 2, 2, 2]),
    case("uneven_pads", normal(1, 4, 6, 6), weights(8, 4, 3, 3), **OPTIONS, pads=[0, 1, 2, 0]),
    case("uneven_strides", normal(1, 4, 9, 9), weights(8, 4, 3, 2), **OPTIONS, strides=[3, 1]),
    case("dilated", normal(1, 4, 9, 9), weights(8, 4, 3, 3), **OPTIONS, dilations=[2, 2], pads=[2, 2, 2, 2]),
    case("depthwise", normal(2, 16, 7, 7), weights(16, 1, 3, 3), weights(16), **OPTIONS, group=16, pads=[1, 1, 1, 1]),
    case("depthwise_odd", normal(1, 9, 8, 8), weights(9, 1, 5, 5), **OPTIONS, group=9, strides=[2, 2], pads=[2] * 4),
    case("depthwise_doubled", normal(1, 6, 5, 5), weights(12, 1, 3, 3), **OPTIONS, group=6),
    case("grouped", normal(1, 12, 6, 6), weights(8, 3, 3, 3), weights(8), **OPTIONS, group=4),
    case("same_upper", normal(1, 3, 8, 7), weights(8, 3, 4, 4), **OPTIONS, auto_pad="SAME_UPPER", strides=[2, 2]),
    case("same_lower", normal(1, 3, 8, 7), weights(8, 3, 4, 4), **OPTIONS, auto_pad="SAME_LOWER", strides=[2, 2]),
    case("one_dimension", normal(2, 4, 15), weights(8, 4, 3), weights(8), **OPTIONS, pads=[1, 1]),
    case("three_dimensions", normal(1, 2, 5, 6, 7), weights(4, 2, 3, 3, 3), **OPTIONS, pads=[1] * 6, strides=[1, 2, 2]),
    case("tiles", normal(2, 48, 9, 12), weights(80, 48, 3, 3), weights(80), **OPTIONS, pads=[1, 0, 1, 2]),
    case("the_whole_image", normal(2, 8, 5, 5), weights(4, 8, 5, 5), **OPTIONS),
    case("weights_at_run_time", normal(1, 3, 6, 6), normal(8, 3, 3, 3), normal(8), **OPTIONS, dynamic=False),
    case("no_images", normal(0, 3, 8, 8), weights(4, 3, 3, 3), **OPTIONS),
    case("a_nan", exact([[[[1.0, float("nan"), 3.0, 4.0]]]]), weights(1, 1, 1, 2), **OPTIONS, dtypes=F32),
]
