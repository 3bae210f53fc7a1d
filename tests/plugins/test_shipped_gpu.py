"""The plugins that come with Neurenix on a GPU: against a recorded H200 everywhere, and on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.cuda import stand_in
from tests.cuda.conftest import libraries
from tests.plugins import gpu_jobs as jobs
from tests.plugins.test_efficient_nms import CASES, prepared, reference, scene
from tests.plugins.test_gpu import needs_gpu
from tests.plugins.test_shipped import DEFORMED, deformed, normal

__all__ = ["libraries"]


@pytest.fixture(scope="module")
def process(libraries: Path) -> Iterator[stand_in.Process]:
    """A process that sees the recorded device."""
    with stand_in.Process(libraries) as process:
        yield process


def test_the_kernel_of_efficient_nms_is_launched_and_recorded(process: stand_in.Process) -> None:
    rows, launches, later = process.run(jobs.detected)
    assert [kernel for _, kernel in rows] == ["Sigmoid", "Plugin EfficientNMS_TRT version 1"]
    # A block for each image.
    assert launches == ["efficient_nms 1 1 1 1024", "efficient_nms 5 1 1 1024"]
    # A call that repeats is one graph, the plugin inside.
    assert later == [1, 0]


def test_those_made_of_layers_run_by_the_kernels_of_those(process: stand_in.Process) -> None:
    assert process.run(jobs.made_of_layers) == [("cuda", "DeformConv"), ("cuda", "GridSample")]


def on_gpu(name: str, inputs: list[np.ndarray], fields: dict[str, Any], first: int) -> list[np.ndarray]:
    """The outputs of a plugin whose first inputs have a batch that calls tell; the third call is a CUDA graph."""
    network = trt.Builder().create_network()
    tensors = []
    for index, x in enumerate(inputs):
        shape = ("n", *x.shape[1:]) if index < first else x.shape
        tensors.append(network.add_input(f"x{index}", x.dtype, shape))
    layer = network.add_plugin_v2(tensors, name, **fields)
    for index in range(layer.num_outputs):
        network.mark_output(layer.get_output(index))
    batch = len(inputs[0])
    shapes = {
        f"x{i}": nx.Shape((1, *x.shape[1:]), x.shape, (batch, *x.shape[1:])) for i, x in enumerate(inputs[:first])
    }
    model = nx.hardware.get_backend("cuda", fallback=False).optimize_model(network.to_network(), shapes)
    found = [model(*inputs) for _ in range(4)]
    found = [list(one) if isinstance(one, (list, tuple)) else [one] for one in found]
    for one in found[1:]:
        for a, b in zip(found[0], one, strict=True):
            np.testing.assert_array_equal(a, b)
    return found[-1]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_efficient_nms_on_a_gpu(case: str, dtype: Any) -> None:
    inputs, fields = prepared(case)
    inputs = [x.astype(dtype) for x in inputs]
    got = on_gpu("EfficientNMS_TRT", inputs, fields, first=2)
    want = reference(*inputs, **fields)
    if dtype == np.float32:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-5, atol=2e-5)
    else:
        assert found_again(got, want) > 0.9


def found_again(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The share of detections that the reference has too. Halves have ties, and decide for
    another box here and there."""
    found = []
    for image, count in enumerate(want[0].reshape(-1)):
        boxes, scores, classes = (np.asarray(of[image, :count], np.float64) for of in want[1:])
        for box, score, kind in zip(*(of[image] for of in got[1:]), strict=True):
            if score > 0:
                near = np.abs(boxes - box.astype(np.float64)).max(1) + np.abs(scores - np.float64(score))
                found.append(bool(((near < 0.02) & (classes == kind)).any()))
    return float(np.mean(found)) if found else 1.0


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.999])
def test_efficient_nms_of_a_real_size_on_a_gpu(threshold: float) -> None:
    boxes, scores = scene(11, 3, 8400, 80)
    fields = {"score_threshold": threshold, "iou_threshold": 0.45, "max_output_boxes": 100}
    got = on_gpu("EfficientNMS_TRT", [boxes, scores], fields, first=2)
    network = trt.Builder().create_network()
    tensors = [network.add_input(f"x{i}", x.dtype, x.shape) for i, x in enumerate((boxes, scores))]
    layer = network.add_plugin_v2(tensors, "EfficientNMS_TRT", **fields)
    for index in range(4):
        network.mark_output(layer.get_output(index))
    # Numpy, which the other tests hold against plain loops and torchvision.
    want = nx.hardware.get_backend("cpu").optimize_model(network.to_network())(boxes, scores)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("case", DEFORMED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_deformable_convolutions_on_a_gpu(case: str, dtype: Any, bias: bool) -> None:
    inputs, want = deformed(case, dtype, bias)
    first = 2 if DEFORMED[case][0] == "MMCVDeformConv2d" else 3
    (got,) = on_gpu(DEFORMED[case][0], inputs, DEFORMED[case][1], first)
    tolerance = 2e-5 if dtype == np.float32 else 4e-3
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_grids_on_a_gpu(mode: str, padding: str, align: int, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    x, grid = normal(5, 2, 3, 9, 7).astype(dtype), (normal(6, 2, 6, 5, 2) * 0.7).astype(dtype)
    numbers = ["bilinear", "nearest", "bicubic"].index(mode), ["zeros", "border", "reflection"].index(padding)
    fields = {"interpolation_mode": numbers[0], "padding_mode": numbers[1], "align_corners": align}
    (got,) = on_gpu("grid_sampler", [x, grid], fields, first=2)
    wide = torch.from_numpy(x.astype(np.float64)), torch.from_numpy(grid.astype(np.float64))
    want = torch.nn.functional.grid_sample(*wide, mode, padding, bool(align)).numpy()
    tolerance = 2e-5 if dtype == np.float32 else 4e-3
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=4 * tolerance)
