"""MaxRoiPool."""

import math

import numpy as np

from tests.conformance.case import F32, Array, case, distinct, exact


def pooled(x: Array, rois: Array, pooled_shape: list[int], spatial_scale: float = 1.0) -> Array:
    """Caffe's bins: rounded corners that belong to the region, from floor to ceil."""
    y = np.zeros((len(rois), x.shape[1], *pooled_shape))
    for r, (image, *corners) in enumerate(rois):
        left, top, right, bottom = (math.floor(c * spatial_scale + 0.5) for c in corners)
        rows, columns = (
            max(b - a + 1, 1) / n for a, b, n in zip((top, left), (bottom, right), pooled_shape, strict=True)
        )
        for i in range(pooled_shape[0]):
            for j in range(pooled_shape[1]):
                ys = slice(max(math.floor(i * rows) + top, 0), max(math.ceil((i + 1) * rows) + top, 0))
                xs = slice(max(math.floor(j * columns) + left, 0), max(math.ceil((j + 1) * columns) + left, 0))
                part = x[int(image), :, ys, xs]
                y[r, :, i, j] = part.max((1, 2)) if part.size else 0
    return y


OP = "MaxRoiPool"
X = distinct(2, 3, 9, 8)
ROIS = exact([[0, 0, 0, 7, 8], [1, 1.5, 2.5, 3, 7.25], [0, 5, 5, 4, 4], [1, 20, 20, 22, 22], [0, 2, 1, 40, 12]])
CASES = [
    case(
        "plain", X, ROIS, pooled_shape=[3, 2], reference=pooled, dtypes=["float32", "float64", "float16"], dynamic=False
    ),
    case("scaled", X, ROIS, pooled_shape=[2, 2], spatial_scale=0.5, reference=pooled, dtypes=F32, dynamic=False),
]
