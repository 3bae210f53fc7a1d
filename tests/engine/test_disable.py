"""`NEURENIX_DISABLE`: what a build does without, and that its results stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import neurenix as nx

SHAPE = (1, 3, 17, 19)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    rng = np.random.default_rng(3)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.uniform(0.1, 0.5, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "x"], ["y"]),
    ]
    given = [weights("w", 8, 3, 3, 3), weights("v", 3, 8, 3, 3)]
    given += [weights(name, 8) for name in ("scale", "bias", "mean", "var")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    graph = helper.make_graph(nodes, "model", [x], [y], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def built(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, disabled: str) -> tuple[np.ndarray, dict]:
    monkeypatch.setenv("NEURENIX_DISABLE", disabled)
    engine = nx.hardware.get_backend("cpu").optimize_model(model, {"x": SHAPE}, optimization_level=0)
    x = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    got = engine({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return got, engine.report()


def test_each_feature_and_pass_can_be_left_out(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    _, full = built(model, monkeypatch, "")
    _, apart = built(model, monkeypatch, "fusion, fold_batch_norm")
    _, unshared = built(model, monkeypatch, "arena")
    together = [max(len(kernel["layers"]) for kernel in report["kernels"]) for report in (full, apart)]
    assert together[0] > 1 == together[1]
    assert dict(apart["passes"]).get("fold_batch_norm", 0) == 0 < dict(full["passes"])["fold_batch_norm"]
    memory = unshared["memory"]
    assert memory["arena"] >= full["memory"]["arena"] and memory["reuse"] <= 0
    # An engine that was built without something is none that others are to find.
    _, again = built(model, monkeypatch, "")
    assert len(again["kernels"]) == len(full["kernels"])


def test_an_unknown_name_is_refused_with_those_that_are_there(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(nx.errors.InvalidArgumentError, match="NEURENIX_DISABLE") as caught:
        built(model, monkeypatch, "fusions")
    assert "fusion" in str(caught.value) and "fold_batch_norm" in str(caught.value) and "fusions" in str(caught.value)
