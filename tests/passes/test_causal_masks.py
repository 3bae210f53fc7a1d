"""Masks that are causal, and masks that are nearly so, beside ONNX Runtime: on batches whose first keys are padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neurenix.hardware import get_backend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

LOWEST = np.finfo(np.float32).min
#: Keys that count, of each batch: of the first one the first query sees none before its own place, nor that.
KEPT = np.array([[0, 0, 1], [1, 1, 1]], bool).reshape(2, 1, 1, 3)


class Graph:
    """An attention of unknown sizes, layer by layer."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The name of what a layer gives."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def filled(self, value: Any, *axes: int, dtype: str = "float32") -> str:
        """A matrix of one number: as many rows as there are queries and columns as keys, or one of them."""
        sizes = [self.size(axis) if axis in axes else self.constant([1], "int64") for axis in (0, 1)]
        return self.op("Expand", self.constant(value, dtype), self.op("Concat", *sizes, axis=0))

    def size(self, axis: int) -> str:
        """Queries, or keys."""
        shape = self.op("Shape", "qk"[axis])
        return self.op("Slice", shape, self.constant([2], "int64"), self.constant([3], "int64"))

    def upper(self, matrix: str, diagonal: int = 1) -> str:
        """What lies behind a diagonal."""
        return self.op("Trilu", matrix, self.constant(diagonal, "int64"), upper=1)

    def truths(self, matrix: str) -> str:
        """Where it is not 0."""
        return self.op("Cast", matrix, to=onnx.TensorProto.BOOL)

    def hidden(self, condition: str, low: Any = -np.inf) -> str:
        """A low number where a condition holds, else 0."""
        return self.op("Where", condition, self.constant(low), self.constant(0))

    def model(self, mask: Callable[[Graph, str], str]) -> bytes:
        """The model, with scores masked so."""
        scores = self.op("MatMul", "q", self.op("Transpose", "k", perm=[0, 1, 3, 2]))
        y = self.op("MatMul", self.op("Softmax", mask(self, scores), axis=-1), "v")
        value = onnx.helper.make_tensor_value_info
        inputs = [value(n, onnx.TensorProto.FLOAT, ["b", 2, "qkk"["qkv".index(n)], 8]) for n in "qkv"]
        inputs.append(value("kept", onnx.TensorProto.BOOL, ["b", 1, 1, "k"]))
        outputs = [value(y, onnx.TensorProto.FLOAT, ["b", 2, "q", 8])]
        graph = onnx.helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        opset = onnx.helper.make_opsetid("", 17)
        return bytes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


def padded(g: Graph, scores: str, low: Any) -> str:
    return g.op("Add", scores, g.op("Where", "kept", g.constant(0), g.constant(low)))


CAUSAL: dict[str, Callable[[Graph, str], str]] = {
    "lowest": lambda g, s: g.op("Add", s, g.upper(g.filled(LOWEST, 0, 1))),
    "infinite": lambda g, s: g.op("Add", s, g.hidden(g.truths(g.upper(g.filled(1, 0, 1))))),
    "equal": lambda g, s: g.op(
        "Where", g.op("Equal", g.upper(g.filled(1, 0, 1)), g.constant(0)), s, g.constant(-np.inf)
    ),
    "infinite_and_padding": lambda g, s: padded(g, g.op("Add", s, g.upper(g.filled(-np.inf, 0, 1))), LOWEST),
}
OTHERS: dict[str, Callable[[Graph, str], str]] = {
    "lowest_and_padding": lambda g, s: padded(g, g.op("Add", s, g.upper(g.filled(LOWEST, 0, 1))), LOWEST),
    "lowest_and_infinite_padding": lambda g, s: padded(g, g.op("Add", s, g.upper(g.filled(LOWEST, 0, 1))), -np.inf),
    "lowest_within_padding": lambda g, s: g.op(
        "Where", "kept", g.op("Add", s, g.upper(g.filled(LOWEST, 0, 1))), g.constant(-np.inf)
    ),
    "lowest_over_padding": lambda g, s: g.op(
        "Where", g.truths(g.upper(g.filled(1, 0, 1))), g.constant(LOWEST), padded(g, s, -np.inf)
    ),
    "lowest_over_lowest": lambda g, s: g.op(
        "Where",
        "kept",
        g.op("Where", g.truths(g.upper(g.filled(1, 0, 1))), g.constant(LOWEST), s),
        g.constant(-1e30),
    ),
    "a_row_of_truths": lambda g, s: g.op(
        "Add", s, g.op("Where", g.truths(g.upper(g.filled(1, 1))), g.filled(-np.inf, 0, 1), g.constant(0))
    ),
    "a_row_of_equals": lambda g, s: g.op(
        "Where", g.op("Equal", g.upper(g.filled(1, 1)), g.filled(0, 0, 1)), s, g.constant(-np.inf)
    ),
    "halves_as_integers": lambda g, s: g.op(
        "Add",
        s,
        g.hidden(g.truths(g.op("Cast", g.upper(g.filled(0.5, 0, 1)), to=onnx.TensorProto.INT64))),
    ),
    "own_place_hidden": lambda g, s: g.op("Add", s, g.upper(g.filled(LOWEST, 0, 1), 0)),
}


@pytest.mark.parametrize("name", [*CAUSAL, *OTHERS])
@pytest.mark.parametrize("sizes", [(3, 3), (1, 3), (5, 3)], ids=str)
def test_each_mask_hides_what_onnx_runtime_hides(name: str, sizes: tuple[int, int]) -> None:
    model = Graph().model({**CAUSAL, **OTHERS}[name])
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        name: rng.standard_normal((2, 2, sizes[name != "q"], 8), np.float32) for name in ("q", "k", "v")
    }
    given["kept"] = KEPT
    want = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)[0]
    optimized = get_backend("cpu").optimize_model(model, {key: array.shape for key, array in given.items()})
    (got,) = optimized.run(given).values()
    assert (np.isnan(got) == np.isnan(want)).all()
    assert np.nanmax(np.abs(got - want)) <= 1e-5
    network = from_onnx(model)
    network.simplify()
    found = [layer.attrs["is_causal"] for layer in network.layers if layer.op == "Attention"]
    assert name in OTHERS or found == [1]
    assert name in CAUSAL or 1 not in found
