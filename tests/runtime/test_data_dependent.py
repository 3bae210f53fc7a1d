"""Sizes that show only when the model runs, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from neurenix import Shape
from neurenix.errors import Error
from neurenix.hardware.tensorrt import TensorRTBackend

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, int]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "late",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
        [helper.make_tensor("one", INT64, [1], [1]), helper.make_tensor("zero", INT64, [1], [0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def picked_rows() -> ModelProto:
    """The rows of x whose sum is positive, doubled; how many there are; and the same rows, flattened."""
    node = helper.make_node
    nodes = [
        node("ReduceSum", ["x", "one"], ["sums"], keepdims=0),
        node("Greater", ["sums", "threshold"], ["positive"]),
        node("NonZero", ["positive"], ["places"]),
        node("Squeeze", ["places", "zero"], ["rows"]),
        node("Gather", ["x", "rows"], ["picked"]),
        node("Add", ["picked", "picked"], ["doubled"]),
        node("Shape", ["rows"], ["count"]),
        node("Mul", ["count", "width"], ["length"]),
        node("Reshape", ["doubled", "length"], ["flat"]),
    ]
    inputs = {"x": (FLOAT, ["n", 4]), "threshold": (FLOAT, []), "width": (INT64, [1])}
    return model(nodes, inputs, {"doubled": FLOAT, "count": INT64, "flat": FLOAT})


def compare(proto: ModelProto, optimized: Any, feeds: dict[str, np.ndarray]) -> None:
    want = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    got = list(optimized(feeds).values())
    for y, reference in zip(got, want, strict=True):
        assert y.dtype == reference.dtype
        np.testing.assert_allclose(y, reference, rtol=1e-5)


def feeds(rows: int, threshold: float) -> dict[str, np.ndarray]:
    x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    return {"x": x, "threshold": np.asarray(threshold, np.float32), "width": np.array([4])}


def test_outputs_come_in_their_true_shape(tmp_path: Path) -> None:
    proto = picked_rows()
    shapes = {"x": Shape((1, 4), (9, 4), (99, 4)), "threshold": (), "width": (1,)}
    optimized = TensorRTBackend().optimize_model(proto, shapes)
    assert any("depend on data (" in note for note in optimized.report()["notes"])
    optimized.save(tmp_path / "late.engine")
    for each in (optimized, TensorRTBackend().load(tmp_path / "late.engine")):
        for rows, threshold in ((9, 0.0), (31, 0.5), (5, 1e9), (1, -1e9)):
            compare(proto, each, feeds(rows, threshold))


def test_a_shape_that_does_not_fit_is_an_error_that_names_the_layer() -> None:
    optimized = TensorRTBackend().optimize_model(picked_rows(), {"x": (9, 4), "threshold": (), "width": (1,)})
    with pytest.raises(Error, match="Reshape"):
        optimized({**feeds(9, -1e9), "width": np.array([5])})


def test_a_slice_whose_bounds_are_computed() -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["at"], axis=0, keepdims=1),
        helper.make_node("Add", ["at", "one"], ["behind"]),
        helper.make_node("Slice", ["x", "zero", "behind", "zero"], ["head"]),
        helper.make_node("Slice", ["x", "behind", "last", "zero"], ["tail"]),
        helper.make_node("Concat", ["tail", "head"], ["turned"], axis=0),
    ]
    proto = model(nodes, {"x": (FLOAT, [17]), "last": (INT64, [1])}, {"head": FLOAT, "tail": FLOAT, "turned": FLOAT})
    optimized = TensorRTBackend().optimize_model(proto, {"x": (17,), "last": (1,)})
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(17).astype(np.float32)
        compare(proto, optimized, {"x": x, "last": np.array([17])})
        compare(proto, optimized, {"x": x, "last": np.array([-1])})


def test_a_constant_that_only_data_could_size_is_sized_while_the_model_is_read() -> None:
    nodes = [helper.make_node("NonZero", ["mask"], ["places"]), helper.make_node("Gather", ["x", "places"], ["y"])]
    proto = model(nodes, {"x": (FLOAT, [5])}, {"y": FLOAT})
    proto.graph.initializer.append(helper.make_tensor("mask", BOOL, [5], [1, 0, 0, 1, 1]))
    optimized = TensorRTBackend().optimize_model(proto, {"x": (5,)})
    assert not any("sizes depend" in note for note in optimized.report()["notes"])
    compare(proto, optimized, {"x": np.arange(5, dtype=np.float32)})


def bounds_from_data() -> ModelProto:
    """A slice of x from a computed place on, backwards too, and the same with computed padding."""
    node = helper.make_node
    nodes = [
        node("ArgMax", ["scores"], ["place"], axis=0, keepdims=1),
        node("Add", ["place", "three"], ["end"]),
        node("Slice", ["x", "place", "end", "one"], ["some"]),
        node("Slice", ["x", "place", "least", "one", "back"], ["reversed"]),
        node("Concat", ["zero", "place", "zero", "zero", "end", "zero"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"], mode="reflect"),
    ]
    made = model(
        nodes,
        {"x": (FLOAT, [2, "n", 3]), "scores": (FLOAT, ["k"])},
        {"some": FLOAT, "reversed": FLOAT, "padded": FLOAT},
    )
    numbers = {"three": 3, "back": -1, "least": -(2**60)}
    made.graph.initializer.extend(helper.make_tensor(name, INT64, [1], [v]) for name, v in numbers.items())
    return made


def test_bounds_that_data_tell_have_a_kernel() -> None:
    optimized = TensorRTBackend().optimize_model(bounds_from_data(), {"x": (2, 9, 3), "scores": (4,)})
    assert "naive reference" not in str(optimized.report())
    session = onnxruntime.InferenceSession(bounds_from_data().SerializeToString(), providers=["CPUExecutionProvider"])
    for place in range(4):
        inputs = {
            "x": np.random.default_rng(place).standard_normal((2, 9, 3)).astype(np.float32),
            "scores": np.eye(4, dtype=np.float32)[place],
        }
        for name, want in zip(("some", "reversed", "padded"), session.run(None, inputs), strict=True):
            assert np.array_equal(optimized(inputs)[name], want), (name, place)


def test_each_kernel_and_each_layer_between_stages_is_timed() -> None:
    optimized = TensorRTBackend().optimize_model(picked_rows())
    rows = optimized.profile(feeds(5, 0.0), iterations=2)
    between = [row.name for row in rows if row.implementation in ("between stages", "its sizes")]
    assert between == ["NonZero_0 (NonZero)", "Reshape_0 (Reshape)"]
    assert len(rows) > len(between) and all(row.time_ms > 0 for row in rows)
