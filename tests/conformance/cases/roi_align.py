"""RoiAlign, against ONNX's own evaluator."""

from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.conformance.case import F32, Array, Case, Given, case, exact, normal

OP = "RoiAlign"
X = normal(2, 3, 9, 8)
ROIS = exact([[0, 0, 8, 9], [1.5, 2.5, 3, 7.25], [5, 5, 4, 4], [-3, -2, 12, 20]])
IMAGES = exact([1, 0, 1, 0], np.int64)


def old(x: Array, rois: Array, images: Array, **attrs: Any) -> Array:
    """Opset 10 samples as opset 16 does with whole pixels."""
    whole = {"coordinate_transformation_mode": "output_half_pixel", **attrs}
    node = helper.make_node("RoiAlign", ["x", "rois", "images"], ["y"], **whole)
    kinds = zip(["x", "rois", "images"], (x, rois, images), strict=True)
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in kinds]
    output = helper.make_tensor_value_info("y", inputs[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph([node], "old", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=10)
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x, "rois": rois, "images": images})[0])


def align(name: str, x: Given, **options: Any) -> Case:
    options = {"dtypes": F32, "sums": True, "output_height": 3, "output_width": 2, "dynamic": False, **options}
    return case(name, x, ROIS, IMAGES, **options)


CASES = [
    align("plain", X, dtypes=["float32", "float64", "float16"]),
    align("whole_pixels", X, coordinate_transformation_mode="output_half_pixel"),
    align("two_samples", X, sampling_ratio=2, spatial_scale=0.5),
    align("max", X, sampling_ratio=2, mode="max"),
    align("max_whole_pixels", X, mode="max", coordinate_transformation_mode="output_half_pixel"),
    align("many_channels", normal(2, 33, 9, 8), sampling_ratio=1),
    case(
        "old",
        X,
        ROIS,
        IMAGES,
        dtypes=F32,
        sums=True,
        opset=10,
        output_height=3,
        output_width=2,
        sampling_ratio=2,
        dynamic=False,
        reference=old,
    ),
]
