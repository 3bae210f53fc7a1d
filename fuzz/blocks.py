"""Networks of blocks that are written layer by layer, some of which a precision of 16 bits can't compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
F32 = np.float32
#: Features of a block.
WIDTH = 32
#: bfloat16 has no digit left behind the point of it.
FAR = 3000.0


class Graph:
    """Writes an ONNX model layer by layer."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        self.random, self.prefix = np.random.default_rng(seed), prefix
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, value: Array) -> str:
        name = f"{self.prefix}w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def linear(self, x: str, width: int = WIDTH, bias: float = 0.0) -> str:
        w = self.random.standard_normal((WIDTH, width)).astype(F32) / F32(WIDTH**0.5)
        b = (bias + self.random.standard_normal(width)).astype(F32)
        return self.add("Add", self.add("MatMul", x, self.constant(w)), self.constant(b))

    def block(self, x: str, bias: float = 0.0) -> str:
        """x + Tanh(LayerNormalization(linear(x))): far out, it is lost what the norm leaves."""
        scale = self.constant(np.ones(WIDTH, F32))
        return self.add("Add", x, self.add("Tanh", self.add("LayerNormalization", self.linear(x, bias=bias), scale)))

    def model(self, outputs: dict[str, int], shape: tuple[Any, ...] = (8, WIDTH)) -> Any:
        graph = helper.make_graph(
            self.nodes,
            "blocks",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), *self.inputs],
            [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def input(self, name: str, dtype: int, shape: tuple[Any, ...]) -> str:
        """An input besides x."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name
