"""Known networks through TensorRT-RTX's real builder, with a profile of batches: no GPU is needed for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neurenix.hardware.tensorrt.plan import build_plan
from tests.tensorrt.plan_bytes import has_extents, texts

pytest.importorskip("onnx")

BATCHES = (1, 4, 8)
#: The sizes of the dimensions besides.
NETWORKS: dict[str, dict[str, int]] = {
    "resnet50": {},
    "bert": {"sequence": 128},
    "yolov5s": {"height": 640, "width": 640},
    "unet": {"height": 256, "width": 256},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_plan_has_the_inputs_the_outputs_and_the_profile(
    name: str, tmp_path: Path, library: tuple[str, str, str]
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    pytest.importorskip("transformers")
    from benchmarks.zoo import export_entry
    from benchmarks.zoo_models import ZOO

    entry, path = ZOO[name], tmp_path / f"{name}.onnx"
    export_entry(entry, entry.build(), False, path, torch)
    profile = {key: tuple(x.at(NETWORKS[name] | {"batch": b}) for b in BATCHES) for key, x in entry.inputs.items()}
    plan = build_plan(path, profile, targets=["8.6"])
    assert plan.refusals == () and plan.library == library
    assert [port.name for port in plan.inputs] == list(entry.inputs)
    # The exporter's own words: the network may not have lost a name, an output or a dtype on the way.
    model = _model(path)
    assert [port.name for port in plan.outputs] == [output.name for output in model.graph.output]
    assert [port.dtype for port in plan.inputs] == [_dtype(given) for given in model.graph.input]
    assert [port.dtype for port in plan.outputs] == [_dtype(given) for given in model.graph.output]
    assert all(port.shape[0] == -1 for port in (*plan.inputs, *plan.outputs))
    inside = texts(plan.data)
    for port in plan.inputs:
        assert port.profiles == (profile[port.name],)
        assert all(has_extents(plan.data, shape) for shape in profile[port.name])
    assert {port.name for port in (*plan.inputs, *plan.outputs)} <= inside
    assert b"accelerators={sm86" in plan.data


def _model(path: Path) -> Any:
    import onnx

    return onnx.load(path, load_external_data=False)


def _dtype(value: Any) -> str:
    from onnx import TensorProto

    return {TensorProto.FLOAT: "FLOAT", TensorProto.INT64: "INT64"}[value.type.tensor_type.elem_type]
