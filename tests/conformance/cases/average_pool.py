"""AveragePool."""

from tests.conformance.case import F32, Array, case, normal
from tests.optional import torch


def pooled(x: Array, *, count_include_pad: int = 0, **attrs: list[int]) -> Array:
    """torch's in double precision: it takes ceil_mode together with padding as ONNX does since opset 19."""
    pool = torch.nn.AvgPool2d(
        attrs["kernel_shape"],
        attrs["strides"],
        attrs["pads"][:2],
        ceil_mode=bool(attrs["ceil_mode"]),
        count_include_pad=bool(count_include_pad),
    )
    return pool(torch.from_numpy(x)).numpy()


OP = "AveragePool"
CEIL = {"ceil_mode": 1, "reference": pooled}
CASES = [
    case("plain", normal(2, 3, 8, 9), kernel_shape=[2, 2], strides=[2, 2]),
    case("strides_are_1", normal(1, 4, 5, 6), kernel_shape=[3, 3]),
    case("padded", normal(1, 17, 7, 7), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("padding_counts", normal(1, 17, 7, 7), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("uneven_pads", normal(1, 3, 6, 6), kernel_shape=[3, 2], pads=[0, 1, 2, 0], strides=[2, 1]),
    case("ceil", normal(1, 3, 8, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("ceil_padded", normal(1, 3, 8, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, **CEIL),
    case(
        "ceil_padding_counts",
        normal(1, 3, 8, 8),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1] * 4,
        count_include_pad=1,
        **CEIL,
    ),
    case("same_upper", normal(1, 3, 7, 7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    case("same_lower", normal(1, 3, 7, 7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
    case("dilated", normal(1, 3, 9, 9), kernel_shape=[2, 2], dilations=[2, 2], dtypes=F32),
    case("one_dimension", normal(2, 3, 9), kernel_shape=[3], strides=[2]),
    case("three_dimensions", normal(1, 2, 4, 5, 6), kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
    case("whole", normal(2, 5, 4, 4), kernel_shape=[4, 4]),
    case("no_images", normal(0, 3, 4, 4), kernel_shape=[2, 2], dtypes=F32),
]
