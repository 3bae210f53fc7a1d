"""MaxPool."""

from tests.conformance.case import F32, Array, case, distinct, exact, normal, uniform
from tests.optional import torch


def pooled(x: Array, kernel_shape: list[int], strides: list[int] | None = None, **attrs: object) -> Array:
    """torch's, on what stands around the input for SAME_LOWER."""
    if attrs.get("auto_pad") == "SAME_LOWER":
        x = torch.nn.functional.pad(torch.from_numpy(x), (1, 0, 1, 0), value=float("-inf")).numpy()
    pads = attrs.get("pads", [0, 0])
    assert isinstance(pads, list)
    wide = torch.from_numpy(x.astype("float64"))
    return torch.nn.functional.max_pool2d(wide, kernel_shape, strides or 1, pads[:2]).numpy().astype(x.dtype)


OP = "MaxPool"
BYTES = {"dtypes": ["int8", "uint8"], "reference": pooled}
#: Dtypes that a GPU compares several of at once, and a size at which a thread has results side by side.
NARROW = {"dtypes": ["int8", "uint8", "float16", "bfloat16"], "reference": pooled, "dynamic": False, "gpu_only": True}
HALF = {"kernel_shape": [2, 2], "strides": [2, 2]}
CASES = [
    case("plain", normal(2, 3, 8, 9), **HALF),
    case("resnet", normal(1, 64, 9, 9), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("spp", normal(1, 17, 7, 7), kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    case("negative_beside_padding", uniform(-9, -1, 1, 3, 5, 5), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("uneven_pads", normal(1, 3, 6, 6), kernel_shape=[3, 2], pads=[0, 1, 2, 0], strides=[2, 1]),
    case("ceil", normal(1, 3, 8, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("dilated", normal(1, 3, 9, 9), kernel_shape=[2, 2], dilations=[2, 2]),
    case("same_upper", normal(1, 3, 7, 7), **HALF, auto_pad="SAME_UPPER"),
    case("same_lower", normal(1, 3, 7, 7), **HALF, auto_pad="SAME_LOWER", reference=pooled),
    case("one_dimension", normal(2, 3, 9), kernel_shape=[3], strides=[2]),
    case("three_dimensions", normal(1, 2, 4, 5, 6), kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
    case("infinite", exact([[[[float("-inf"), 1.0], [float("-inf"), float("-inf")]]]]), kernel_shape=[2, 1]),
    case("bytes", distinct(1, 3, 5, 5), dtypes=["int8"], kernel_shape=[2, 2], reference=pooled),
    case(
        "bytes_of_16_channels", distinct(1, 16, 4, 4), **BYTES, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    case("bytes_of_8_channels", normal(2, 8, 9, 9), **BYTES, kernel_shape=[2, 2], strides=[1, 1]),
    case("many_5x5", normal(1, 256, 65, 66), **NARROW, kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    case("many_3x3", normal(1, 256, 131, 130), **NARROW, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("many_2x2", normal(1, 264, 129, 131), **NARROW, **HALF),
    case("no_images", normal(0, 3, 4, 4), kernel_shape=[2, 2], dtypes=F32),
    case("indices", distinct(1, 2, 4, 6), **HALF, outputs=2, dtypes=F32),
]
