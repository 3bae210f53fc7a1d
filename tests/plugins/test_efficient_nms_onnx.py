"""EfficientNMS_ONNX_TRT against loops over plain numbers, and as a model names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.errors import Error, InvalidArgumentError
from neurenix.plugins import EfficientNMSONNX
from tests.plugins.test_efficient_nms import decoded, overlap, scene


def reference(boxes: np.ndarray, scores: np.ndarray, most: int, fields: dict[str, Any]) -> np.ndarray:
    """The contract of TensorRT's plugin, a number at a time."""
    rows: list[list[int]] = []
    for image, of_image in enumerate(scores):
        kept: list[tuple[int, list[float]]] = []
        for flat in np.argsort(-of_image, axis=None, kind="stable").tolist():
            place, kind = divmod(flat, of_image.shape[1])
            box = decoded(boxes[image, place].tolist(), None, fields.get("center_point_box", 0))
            near = [other for its, other in kept if its == kind]
            if of_image[place, kind] < fields.get("score_threshold", 0.5) or len(kept) == most:
                break
            if all(overlap(box, other) < fields.get("iou_threshold", 0.5) for other in near):
                kept.append((kind, box))
                rows.append([image, kind, place])
    rows += [rows[-1] if rows else [-1, -1, -1]] * (len(boxes) * most - len(rows))
    return np.array(rows, np.int32)


@pytest.mark.parametrize(
    "fields",
    [{}, {"score_threshold": 0.9, "iou_threshold": 0.2}, {"score_threshold": 2.0}, {"center_point_box": 1}],
    ids=["plain", "few", "none", "centres"],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_model_that_names_it_gets_the_indices(fields: dict[str, Any], dtype: str) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    boxes, scores = scene(3, 2, 60, 3, dtype)
    node = helper.make_node(
        "EfficientNMS_ONNX_TRT", ["b", "s"], ["y"], domain="TRT", max_output_boxes_per_class=25, **fields
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [helper.make_tensor_value_info(n, kind, ["n", *x.shape[1:]]) for n, x in (("b", boxes), ("s", scores))]
    results = [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", ports, results), opset_imports=opsets, ir_version=8)
    found = nx.hardware.get_backend("cpu").optimize_model(proto)(boxes, scores)
    wanted = reference(boxes, scores, 25, fields)
    assert found.dtype == np.int32
    if dtype == "float32":
        np.testing.assert_array_equal(found, wanted)
    else:
        # Boxes that overlap by the threshold but for a rounding may fall either way; the best one never does.
        assert found.shape == wanted.shape and np.array_equal(found[0], wanted[0])


def test_what_it_does_not_take_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="out of range"):
        EfficientNMSONNX(0)
    plugin = EfficientNMSONNX(5)
    for shapes in ([(1, 6, 3, 4), (1, 6, 3)], [(1, 6, 4), (1, 6, 3), (1, 6, 4)]):
        with pytest.raises(Error, match="anchors, or boxes of each class"):
            plugin.get_output_shape(shapes)
    with pytest.raises(Error, match="do not go together"):
        plugin.get_output_shape([(1, 6, 4), (1, 7, 3)])
    assert plugin.get_output_shape([(2, 6, 4), (2, 6, 3)]) == [(10, 3)]
