"""ONNX Runtime's mixtures of experts: all of them work on all tokens, and a router weighs what they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neurenix._native import Tensor
from neurenix.errors import UnsupportedError
from neurenix.importers.onnx import attention as att
from neurenix.importers.onnx.contrib_quantized import unpacked
from neurenix.importers.onnx.node import Array, Node, Rule

#: The layouts of the two halves of fused gated experts.
SEPARATE, INTERLEAVED, BEHIND = 0, 1, 2


@dataclass
class Layer:
    """One layer of all experts: weights [experts, outputs, inputs], bias [experts, outputs]."""

    weights: Tensor
    bias: Tensor | None

    def __call__(self, node: Node, x: Tensor) -> Tensor:
        """[experts or 1, tokens, inputs] as [experts, tokens, outputs]."""
        y = node.add("MatMul", x, self.weights, transB=1)
        return y if self.bias is None else node.add("Add", y, node.add("Unsqueeze", self.bias, axes=[1]))


def mixture(node: Node) -> Tensor:
    """MoE: weights are a softmax over all experts; those of the chosen ones are scaled to 1 if so wanted."""
    layers = [Layer(node[i], node.get(i + 1)) if node.has(i) else None for i in (2, 4, 6)]
    return _mixed(node, layers, _chosen(node, bool(node.attr("normalize_routing_weights", 0))))


def quantized_mixture(node: Node) -> Tensor:
    """QMoE: the weights, some bits each, are written out as numbers; a softmax goes over the chosen experts."""
    node.refuse("quant_type", "int")
    if node.attr("weights_prepacked", -1) == 1:
        raise UnsupportedError("experts in a GPU's own layout are not supported", expected="weights_prepacked of 0")
    layers = [_quantized(node, number, at, 11 + number) for number, at in enumerate((2, 5, 8))]
    weights = node.get(14)
    return _mixed(node, layers, _chosen(node, weights is None, weights))


def _quantized(node: Node, number: int, at: int, zeros: int) -> Layer | None:
    """A layer of weights, scales and bias, and zero points elsewhere."""
    if not node.has(at):
        return None
    packed, scales, zero = node.array(at), node.array(at + 1), node.array(zeros)
    bits = node.attr(f"fc{number + 1}_expert_weight_bits", node.attr("expert_weight_bits", 4))
    if bits not in (2, 4, 8) or packed is None or scales is None or (node.has(zeros) and zero is None):
        raise UnsupportedError(
            "QMoE is not supported in this form",
            tensor=node.proto.input[at],
            expected="2, 4 or 8 bits, constant weights, scales and zero points",
            got=f"{bits} bits",
        )
    numbers = dequantized(unpacked(packed, bits), scales, zero, bits)
    return Layer(node.constant(numbers, node[0].dtype), node.get(at + 2))


def dequantized(values: Array, scales: Array, zeros: Array | None, bits: int) -> Array:
    """Weights [experts, outputs, inputs] with a scale for each row, or for each block of one."""
    wide = scales.astype(np.float32).reshape(*values.shape[:2], -1)
    blocks = wide.shape[2]
    if zeros is None:
        zero: Array = np.full(wide.shape, 1 << (bits - 1), np.float32)
    elif scales.ndim == 2:
        # Rows share bytes.
        zero = unpacked(zeros, bits)[:, : values.shape[1], None].astype(np.float32)
    else:
        zero = unpacked(zeros, bits)[:, :, :blocks].astype(np.float32)
    each = values.shape[2] // blocks
    shaped = values.astype(np.float32).reshape(*values.shape[:2], blocks, each)
    numbers: Array = ((shaped - zero[..., None]) * wide[..., None]).reshape(values.shape)
    return numbers


def _chosen(node: Node, scaled: bool, weights: Tensor | None = None) -> Tensor:
    """The weight of each expert for each token, [experts, tokens, 1]: 0 for those that the router does not choose.

    `weights` are those to take in place of the router's own.
    """
    node.refuse("use_sparse_mixer", 0)
    scores = node.add("Softmax", node[1], axis=-1)
    values, places = node.add_all("TopK", [scores, node.integers([node.attr("k", 1)])], axis=-1)
    if weights is not None:
        values, scaled = (
            node.add("GatherElements", weights, places, axis=1),
            bool(node.attr("normalize_routing_weights", 0)),
        )
    if scaled:
        values = node.add("Div", values, node.add("ReduceSum", values, axes=[-1], keepdims=1))
    none = node.add("Expand", node.like(0.0, values), node.add("Shape", scores))
    gates = node.add("ScatterElements", none, places, values, axis=1)
    return node.add("Unsqueeze", node.add("Transpose", gates, perm=[1, 0]), axes=[2])


def _mixed(node: Node, layers: list[Layer | None], gates: Tensor) -> Tensor:
    first, second, third = layers
    assert first is not None and second is not None
    x = node[0]
    tokens = node.add("Reshape", x, node.integers([1, -1, att.known(x, -1, "the hidden size")]))
    hidden = _gated(node, tokens, first, third)
    y = node.add("ReduceSum", node.add("Mul", second(node, hidden), gates), axes=[0], keepdims=0)
    return node.add("Reshape", y, node.add("Shape", x))


def _gated(node: Node, tokens: Tensor, first: Layer, third: Layer | None) -> Tensor:
    """What the second layer takes."""
    kind, y = node.attr("activation_type", "relu"), first(node, tokens)
    if kind == "swiglu":
        return _swiglu(node, *_halves(node, y, None if third is None else third(node, tokens)))
    if kind not in ACTIVATIONS:
        raise UnsupportedError(
            "the activation of the experts is not supported", expected=f"swiglu, {', '.join(ACTIVATIONS)}", got=kind
        )
    y = ACTIVATIONS[kind](node, y)
    return y if third is None else node.add("Mul", y, third(node, tokens))


ACTIVATIONS: dict[str, Callable[[Node, Tensor], Tensor]] = {
    "relu": lambda node, y: node.add("Relu", y),
    "gelu": lambda node, y: node.add("Gelu", y, approximate="tanh"),
    "silu": lambda node, y: node.add("Silu", y),
    "identity": lambda node, y: y,
}


def _halves(node: Node, y: Tensor, third: Tensor | None) -> tuple[Tensor, Tensor]:
    """What opens, and what is opened."""
    layout = node.attr("swiglu_fusion", SEPARATE)
    if layout == SEPARATE and third is not None:
        return y, third
    if layout not in (INTERLEAVED, BEHIND) or third is not None:
        raise UnsupportedError(
            "experts of swiglu in this layout are not supported",
            expected="swiglu_fusion 0 with fc3, 1 or 2 without",
            got=f"{layout} {'without' if third is None else 'with'} fc3",
        )
    size = att.known(y, 2, "the inner size of the experts") // 2
    if layout == BEHIND:
        left, right = node.add_all("Split", [y], axis=2, split=[size, size])
        return left, right
    ends, axes, steps = (node.integers([value]) for value in (2 * size, 2, 2))
    even, odd = (node.add("Slice", y, node.integers([start]), ends, axes, steps) for start in (0, 1))
    return even, odd


def _swiglu(node: Node, gate: Tensor, linear: Tensor) -> Tensor:
    """gate * sigmoid(alpha * gate) * (linear + beta), both sides kept within the limit."""
    node.refuse("swiglu_limit_after_activation", 0)
    limit = node.attr("swiglu_limit")
    if limit is not None and np.isfinite(limit):
        most, least = node.like(limit, gate), node.like(-limit, gate)
        gate, linear = node.add("Clip", gate, None, most), node.add("Clip", linear, least, most)
    alpha, beta = node.attr("activation_alpha", 1.0), node.attr("activation_beta", 0.0)
    inner = gate if alpha == 1.0 else node.add("Mul", gate, node.like(alpha, gate))
    opened = node.add("Mul", gate, node.add("Sigmoid", inner))
    return node.add("Mul", opened, linear if beta == 0.0 else node.add("Add", linear, node.like(beta, linear)))


RULES: dict[str, Rule] = {"MoE": mixture, "QMoE": quantized_mixture}
