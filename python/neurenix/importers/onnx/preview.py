"""The domain ai.onnx.preview: ops that ONNX has not made its own yet."""

from __future__ import annotations

import numpy as np

from neurenix._native import Tensor
from neurenix.importers.onnx.attention import Scores, attend, known, per_head
from neurenix.importers.onnx.node import Node, Rule
from neurenix.importers.onnx.quantized import dtype_at


def flex_attention(node: Node) -> Tensor:
    """FlexAttention: what its graphs do to the scores and the weights is done by layers of their own."""
    q, k, v = node[0], node[1], node[2]
    scale = node.attr("scale")
    precision = dtype_at(node, "softmax_precision") or (q.dtype if q.dtype == np.float64 else np.dtype(np.float32))
    if not ("score_mod" in node.attrs or "prob_mod" in node.attrs or precision == np.float64):
        return attend(node, q, k, v, scale, Scores(node, q))
    k, v = per_head(node, q, k, v)
    scale = scale if scale is not None else float(known(q, 3, "the size of a head") ** -0.5)
    scores = node.add("MatMul", node.add("Mul", q, node.like(scale, q)), k, transB=1)
    scores = _modified(node, "score_mod", _cast(node, scores, precision))
    weights = _modified(node, "prob_mod", node.add("Softmax", scores, axis=-1))
    return node.add("MatMul", _cast(node, weights, v.dtype), v)


def _modified(node: Node, name: str, x: Tensor) -> Tensor:
    """A tensor through the graph of an attribute, where there is one."""
    graph = node.attr(name)
    if graph is None:
        return x
    return node.graph.tensor_of(node.graph.inline(f"{node.name}.{name}", graph, [x])[0])


def _cast(node: Node, x: Tensor, dtype: np.dtype[np.generic]) -> Tensor:
    return x if x.dtype == dtype else node.add("Cast", x, to=dtype)


RULES: dict[str, Rule] = {"FlexAttention": flex_attention}
