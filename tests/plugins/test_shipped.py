"""The plugins that come with Neurenix and are made of layers: against torchvision and torch, by name and by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from neurenix.plugins import SHIPPED
from tests.optional import Lazy, torch
from tests.plugins.classes import built

ops: Any = Lazy("torchvision.ops")
TOLERANCE = {np.float32: 2e-5, np.float16: 4e-3}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(name: str, inputs: list[np.ndarray], fields: dict[str, Any], batch: bool = True) -> np.ndarray:
    """One plugin between an input and an output, whose batch and height calls tell."""
    made = trt.Builder().create_network()
    tensors = []
    for index, x in enumerate(inputs):
        free = batch and x.ndim == 4 and index != (3 if name.endswith("ModulatedDeformConv2d") else 2)
        tensors.append(made.add_input(f"x{index}", x.dtype, ("n", *x.shape[1:]) if free else x.shape))
    made.mark_output(made.add_plugin_v2(tensors, name, **fields))
    found: np.ndarray = built(made).create_execution_context().execute(*inputs)
    return found


DEFORMED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "version 2": (
        "ModulatedDeformConv2d",
        {"stride": [2, 1], "padding": [1, 2]},
        {"stride": (2, 1), "padding": (1, 2)},
    ),
    "mmcv": (
        "MMCVModulatedDeformConv2d",
        {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 2], "groups": 2, "deform_groups": 4},
        {"padding": 1, "dilation": (1, 2)},
    ),
    "tensorrt's words": (
        "ModulatedDeformConv2d",
        {"group": 4, "deformable_group": 2, "plugin_version": "2"},
        {"group": 4, "offsets": 2},
    ),
    "version 1": ("MMCVDeformConv2d", {"padding": [1, 1, 2, 2], "stride": 1, "bias": 0}, {"padding": (1, 2)}),
}
SIZES = {"mmcv": (2, 4), "tensorrt's words": (4, 2)}


def deformed(case: str, dtype: Any, bias: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Inputs of a plugin, and what torchvision gives for them."""
    name, _, options = DEFORMED[case]
    options = {key: value for key, value in options.items() if key in ("stride", "padding", "dilation")}
    group, offsets = SIZES.get(case, (1, 1))
    x, weights = normal(0, 2, 8, 13, 11), normal(1, 12, 8 // group, 3, 2) / 5
    plain = torch.nn.functional.conv2d(torch.zeros(1, 8 // group, 13, 11), torch.zeros(1, 8 // group, 3, 2), **options)
    places = plain.shape[2:]
    offset, mask = normal(2, 2, 12 * offsets, *places) * 1.5, 1 / (1 + np.exp(-normal(3, 2, 6 * offsets, *places)))
    masked = name != "MMCVDeformConv2d"
    given = [x, offset, *([mask] if masked else []), weights, *([normal(4, 12)] if bias else [])]
    given = [value.astype(dtype) for value in given]
    wide = [torch.from_numpy(value.astype(np.float64)) for value in given]
    back = {"mask": wide[2] if masked else None, "bias": wide[-1] if bias else None}
    want = ops.deform_conv2d(wide[0], wide[1], wide[3 if masked else 2], **back, **options)
    return given, want.numpy()


@pytest.mark.parametrize("case", DEFORMED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_deformable_convolution_is_torchvisions(case: str, dtype: Any, bias: bool) -> None:
    inputs, want = deformed(case, dtype, bias)
    got = run(DEFORMED[case][0], inputs, DEFORMED[case][1])
    assert got.dtype == dtype and got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_grid_is_sampled_as_torch_does(mode: str, padding: str, align: int, dtype: Any) -> None:
    x, grid = normal(5, 2, 3, 9, 7).astype(dtype), (normal(6, 2, 6, 5, 2) * 0.7).astype(dtype)
    numbers = ["bilinear", "nearest", "bicubic"].index(mode), ["zeros", "border", "reflection"].index(padding)
    fields = {"interpolation_mode": numbers[0], "padding_mode": numbers[1], "align_corners": align}
    got = run("grid_sampler", [x, grid], fields)
    wide = torch.from_numpy(x.astype(np.float64)), torch.from_numpy(grid.astype(np.float64))
    want = torch.nn.functional.grid_sample(*wide, mode, padding, bool(align)).numpy()
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype])


def test_they_leave_no_plugin_in_a_file(tmp_path: Path) -> None:
    inputs, want = deformed("version 2", np.float32, True)
    made = trt.Builder().create_network()
    tensors = [made.add_input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(inputs)]
    layer = made.add_plugin_v2(tensors, "ModulatedDeformConv2d", **DEFORMED["version 2"][1])
    layer.name = "deformed"
    made.mark_output(layer)
    built(made).save(str(tmp_path / "model.engine"))
    registry = trt.get_plugin_registry()
    creator = registry.get_creator("ModulatedDeformConv2d", "1", "")
    registry.deregister_creator(creator)
    try:
        model = nx.hardware.get_backend("cpu").load(tmp_path / "model.engine")
        np.testing.assert_allclose(model(*inputs), want, rtol=1e-4, atol=1e-4)
        assert [row["kernel"] for row in model.report()["kernels"] if row["provider"] == "cpu"] == ["DeformConv"]
    finally:
        assert registry.register_creator(creator)


def test_onnx_nodes_find_them() -> None:
    onnx = pytest.importorskip("onnx")
    helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
    inputs, want = deformed("mmcv", np.float32, True)
    grid = normal(7, 2, 4, 3, 2) * 0.5
    names = ["x", "offset", "mask", "w", "b"]
    nodes = [
        helper.make_node("MMCVModulatedDeformConv2d", names, ["d"], domain="mmdeploy", **DEFORMED["mmcv"][1]),
        helper.make_node(
            "grid_sampler", ["d", "grid"], ["y"], domain="mmcv", interpolation_mode=2, padding_mode=1, align_corners=1
        ),
    ]
    given = {**dict(zip(names, inputs, strict=True)), "grid": grid}
    weights = [onnx.numpy_helper.from_array(given.pop(name), name) for name in ("w", "b")]
    ports = [helper.make_tensor_value_info(name, FLOAT, ["n", *x.shape[1:]]) for name, x in given.items()]
    result = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "g", ports, [result], weights)
    opsets = [helper.make_opsetid(domain, 17 if not domain else 1) for domain in ("", "mmdeploy", "mmcv")]
    model = nx.hardware.get_backend("cpu").optimize_model(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    wide = torch.from_numpy(want), torch.from_numpy(grid.astype(np.float64))
    sampled = torch.nn.functional.grid_sample(*wide, "bicubic", "border", True).numpy()
    np.testing.assert_allclose(model(*given.values()), sampled, rtol=1e-4, atol=1e-4)


def test_a_detector_exported_for_tensorrt_runs_as_it_is() -> None:
    onnx = pytest.importorskip("onnx")
    from tests.plugins.test_efficient_nms import reference, scene

    helper, types = onnx.helper, onnx.TensorProto
    fields = {"score_threshold": 0.6, "iou_threshold": 0.45, "max_output_boxes": 10, "background_class": -1}
    fields |= {"score_activation": 0, "class_agnostic": 0, "box_coding": 0}
    names = ["num_dets", "det_boxes", "det_scores", "det_classes"]
    node = helper.make_node("EfficientNMS_TRT", ["boxes", "scores"], names, domain="TRT", plugin_version="1", **fields)
    boxes, scores = scene(9, 3, 50, 4)
    ports = [
        helper.make_tensor_value_info(n, types.FLOAT, ["n", *x.shape[1:]])
        for n, x in (("boxes", boxes), ("scores", scores))
    ]
    results = [helper.make_tensor_value_info(n, types.INT32 if n in names[::3] else types.FLOAT, None) for n in names]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", ports, results), opset_imports=opsets, ir_version=8)
    model = nx.hardware.get_backend("cpu").optimize_model(proto)
    for got, want in zip(model(boxes, scores), reference(boxes, scores, **fields), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_they_do_not_take_is_named() -> None:
    x = normal(0, 1, 4, 5, 5)
    for name, count, fields, message in [
        (
            "ModulatedDeformConv2d",
            3,
            {},
            "plugin ModulatedDeformConv2d version 1: compose: a deformable convolution has",
        ),
        ("MMCVDeformConv2d", 3, {"stride": [1, 2, 3]}, "'stride' has one number, or one for each axis"),
        ("grid_sampler", 2, {"interpolation_mode": 3}, "'interpolation_mode' is none of the known ones"),
        ("grid_sampler", 2, {"mode": 3}, "GridSampler does not take these fields"),
    ]:
        with pytest.raises(nx.InvalidArgumentError) as caught:
            run(name, [x] * count, fields, batch=False)
        assert message in caught.value.message


def test_all_of_them_are_registered() -> None:
    registry = trt.get_plugin_registry()
    for name, version in SHIPPED:
        assert registry.get_creator(name, version, "") is not None, name


class Gate(trt.IPluginV2):
    """A plugin of a user's that is made of layers, two of its results from one input."""

    def __init__(self, by: float = 1.0) -> None:
        self.by = by

    def compose(self, layers: Any, inputs: list[Any]) -> Any:
        if self.by < 0:
            return "nothing"
        factor = layers.constant(np.float32(self.by))
        return [layers.add("Tanh", inputs[0]), layers.add("Mul", layers.add("Sigmoid", inputs[0]), factor)]


def test_a_users_plugin_may_be_made_of_layers() -> None:
    made = trt.Builder().create_network()
    layer = made.add_plugin_v2([made.add_input("x", trt.float32, ("n", 4))], Gate(2.0))
    assert layer.num_outputs == 2
    for index in range(2):
        made.mark_output(layer.get_output(index))
    x = normal(0, 3, 4)
    left, right = built(made).create_execution_context().execute(x)
    np.testing.assert_allclose(left, np.tanh(x), rtol=1e-5)
    np.testing.assert_allclose(right, 2 / (1 + np.exp(-x)), rtol=1e-5)
    with pytest.raises(nx.PluginError, match="plugin Gate version 1: compose gave no tensors"):
        made.add_plugin_v2([made.add_input("z", trt.float32, ("n", 4))], Gate(-1.0))
