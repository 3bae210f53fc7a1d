"""Forms in which exporters leave models: statistics of a batch, branches of different ranks, functions written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

import neurenix as nx
from neurenix.hardware import get_backend

CPU = get_backend("cpu")
CHEAP: dict[str, Any] = {"optimization_level": 0, "timing_cache": False}
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["test_batchnorm_example_training_mode", "test_batchnorm_epsilon_training_mode"])
def test_statistics_of_the_batch_by_onnx_s_own_cases(name: str) -> None:
    # Asked for one op, onnx would forget the cases of all others for the rest of the process.
    (case,) = [one for one in collect_testcases(None) if one.name == name]
    inputs, outputs = case.data_sets[0]
    ports = [port.name for port in case.model.graph.input]
    given = dict(zip(ports, map(np.asarray, inputs), strict=True))
    found = CPU.optimize_model(case.model, {k: v.shape for k, v in given.items()}, **CHEAP).run(given)
    for one, other in zip(found.values(), outputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("shape", [(1, 6, 27), (4, 3), (2, 3, 4, 5)], ids=str)
def test_statistics_of_the_batch(dtype: Any, shape: tuple[int, ...]) -> None:
    """Weights are standardised like that in NFNets."""
    generator = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = (generator.standard_normal(shape) * 3 + 1).astype(dtype)
    rest = [generator.uniform(0.5, 2, shape[1]).astype(dtype) for _ in range(4)]
    names = ["x", "scale", "bias", "mean", "variance"]
    node = helper.make_node("BatchNormalization", names, ["y", "m", "v"], training_mode=1, momentum=0.7, epsilon=1e-3)
    ports = [helper.make_tensor_value_info(n, kind, a.shape) for n, a in zip(names, [x, *rest], strict=True)]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in "ymv"]
    model = helper.make_model(
        helper.make_graph([node], "g", ports, outputs), opset_imports=[helper.make_opsetid("", 20)]
    )
    found = CPU.optimize_model(model, **CHEAP).run(dict(zip(names, [x, *rest], strict=True)))
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    wide, (scale, bias, mean, variance) = x.astype(np.float64), (one.astype(np.float64) for one in rest)
    along = (slice(None), *[None] * (len(shape) - 2))
    new = wide.mean(axes), wide.var(axes)
    normal = (wide - new[0][along]) / np.sqrt(new[1] + 1e-3)[along] * scale[along] + bias[along]
    wanted = normal, mean * 0.7 + new[0] * 0.3, variance * 0.7 + new[1] * 0.3
    tolerance = 5e-3 if dtype == np.float16 else 1e-5
    for one, other in zip(found.values(), wanted, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def squeezed() -> Any:
    """A squeeze as torch's older exporter writes it: an If whose branches differ in rank."""
    inner = [helper.make_tensor_value_info("inner", FLOAT, None)]
    then = helper.make_graph([helper.make_node("Squeeze", ["pooled", "axis"], ["inner"])], "then", [], inner)
    other = helper.make_graph([helper.make_node("Identity", ["pooled"], ["inner"])], "else", [], inner)
    nodes = [
        helper.make_node("AveragePool", ["x"], ["pooled"], kernel_shape=[4], strides=[4]),
        helper.make_node("Shape", ["pooled"], ["extents"]),
        helper.make_node("Gather", ["extents", "last"], ["extent"]),
        helper.make_node("Equal", ["extent", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["y"], then_branch=then, else_branch=other),
    ]
    constants = [
        helper.make_tensor("axis", INT64, [1], [2]),
        helper.make_tensor("last", INT64, [], [2]),
        helper.make_tensor("one", INT64, [], [1]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [None, 3, None])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("length", [4, 12])
def test_branches_of_different_ranks_where_the_shapes_decide(length: int) -> None:
    """silero_vad.onnx has such: the batch may vary, and the length that decides is one extent."""
    given = {"x": nx.Shape((1, 3, length), (2, 3, length), (5, 3, length))}
    model = CPU.optimize_model(squeezed(), given, **CHEAP)
    for batch in (1, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 3, length)).astype(np.float32)
        wanted = x.reshape(batch, 3, -1, 4).mean(3)
        np.testing.assert_allclose(model(x), wanted[..., 0] if length == 4 else wanted, atol=1e-6)


def test_branches_of_different_ranks_where_nothing_decides() -> None:
    with pytest.raises(nx.UnsupportedError, match="different dtypes or numbers of dimensions"):
        CPU.optimize_model(squeezed(), {"x": nx.Shape((1, 3, 4), (1, 3, 8), (1, 3, 12))}, **CHEAP)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grid_written_out(size: tuple[int, ...], corners: int) -> None:
    body = onnx.FunctionProto()
    body.CopyFrom(onnx.defs.get_schema("AffineGrid", 20).function_body)
    body.domain = "local"
    axes = len(size) - 2
    ports = [
        helper.make_tensor_value_info("theta", FLOAT, [2, axes, axes + 1]),
        helper.make_tensor_value_info("size", INT64, [len(size)]),
    ]
    outputs = [helper.make_tensor_value_info("grid", FLOAT, None)]

    def model(domain: str) -> Any:
        node = helper.make_node("AffineGrid", ["theta", "size"], ["grid"], domain=domain, align_corners=corners)
        versions = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
        graph = helper.make_graph([node], "g", ports, outputs)
        return helper.make_model(graph, opset_imports=versions, functions=[body], ir_version=10)

    theta = np.random.default_rng(0).standard_normal((2, axes, axes + 1)).astype(np.float32)
    extents = np.array(size)
    (wanted,) = ReferenceEvaluator(model("")).run(None, {"theta": theta, "size": extents})
    found = CPU.optimize_model(model("local"), input_values={"size": extents}, **CHEAP)(theta)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
