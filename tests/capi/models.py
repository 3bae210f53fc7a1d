"""Models of these tests, as ONNX, with values that their reference takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, BOOL, INT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT64


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], weights: Any = None) -> onnx.ModelProto:
    """A model of nodes, ports as (name, type, shape), and weights by name."""
    ports = [[helper.make_tensor_value_info(*port) for port in side] for side in (inputs, outputs)]
    held = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "toy", *ports, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def perceptron(dtype: int = FLOAT) -> onnx.ModelProto:
    """Two layers: x (batch, 16) to y (batch, 4)."""
    rng = np.random.default_rng(0)
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    shapes = {"w": (16, 32), "b": (32,), "w2": (32, 4), "b2": (4,)}
    weights = {name: (rng.standard_normal(shape) / 4).astype(kind) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]
    return model(nodes, [("x", dtype, ["batch", 16])], [("y", dtype, ["batch", 4])], weights)


def mixture() -> onnx.ModelProto:
    """Inputs and outputs of several dtypes and ranks, a scalar among them."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["scaled"]),
        helper.make_node("Where", ["mask", "scaled", "rows"], ["y"]),
        helper.make_node("ReduceSum", ["ids"], ["total"], keepdims=0),
    ]
    inputs = [("ids", INT, ["n"]), ("mask", BOOL, ["n", 1]), ("scale", FLOAT, [])]
    outputs = [("y", FLOAT, ["n", 8]), ("total", INT, [])]
    table = np.random.default_rng(1).standard_normal((10, 8)).astype(np.float32)
    return model(nodes, inputs, outputs, {"table": table})


def of_data() -> onnx.ModelProto:
    """As many outputs as there are numbers above 0."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node("Compress", ["x", "above"], ["kept"]),
        helper.make_node("Exp", ["kept"], ["y"]),
    ]
    return model(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, ["m"])], {"zero": np.float32(0)})


def long_one() -> onnx.ModelProto:
    """100 products with one matrix."""
    names = ["x", *(f"h{i}" for i in range(99)), "y"]
    nodes = [helper.make_node("MatMul", [before, "w"], [after]) for before, after in pairwise(names)]
    weights = {"w": np.eye(1024, dtype=np.float32)}
    return model(nodes, [("x", FLOAT, [256, 1024])], [("y", FLOAT, [256, 1024])], weights)
